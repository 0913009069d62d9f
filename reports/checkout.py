"""Commands and paths as pages show them: typed in the checkout, so that they hold after it was moved."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "./squall" if (ROOT / "squall").is_file() else "squall"
"""A checkout's launcher, or the program that pip has installed, which has no checkout: paths are absolute then."""


def from_checkout(path: Path) -> str:
    """A path from the checkout's folder."""
    return os.path.relpath(path.absolute(), ROOT) if PROGRAM.startswith("./") else str(path.absolute())
