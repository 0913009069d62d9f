"""Writes commands and paths for a user whose current folder is the checkout, the folder with Squall's source code.
Pages with such paths stay correct after the checkout was moved.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "./squall" if (ROOT / "squall").is_file() else "squall"
"""Is the checkout's launcher, or the program installed by pip; in the latter case there is no checkout, and paths are
absolute.
"""


def from_checkout(path: Path) -> str:
    """Return the path relative to the checkout's folder; absolute if there is no checkout."""
    return os.path.relpath(path.absolute(), ROOT) if PROGRAM.startswith("./") else str(path.absolute())
