"""Finds files that are no code, in a checkout or in an installed package; and the commit that they are of.

hatch_build.py runs this file by itself, so it imports nothing of ours.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Where `squall.broker` and so on have their folders: a checkout, or `squall/` in site-packages."""
SHARED = ROOT / "chaos" / "shared"
"""Where a wheel has them."""
COMMIT_OF_WHEEL, COMMIT_OF_SDIST = SHARED / "commit", ROOT / "COMMIT"
"""Files with the commit that a wheel or an sdist was built from."""


def is_checkout() -> bool:
    """Return whether this is a working copy, with tests and documentation."""
    return (ROOT / "pyproject.toml").is_file()


def shared(name: str) -> Path:
    """A folder or file that a checkout has at its root: compose, plans."""
    return ROOT / name if is_checkout() else SHARED / name


def commit() -> str:
    """The commit of this checkout, or the one that this package was built from. Empty if neither is known.

    It has 40 digits, and `-dirty` behind them if files of the checkout were changed.
    """
    written = COMMIT_OF_SDIST if is_checkout() else COMMIT_OF_WHEEL
    if written.is_file():
        return written.read_text().strip()
    if not is_checkout() or not (ROOT / ".git").exists():  # else git would answer for a repository around this folder
        return ""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


PACKAGES = ROOT if is_checkout() else ROOT.parent
"""What PYTHONPATH names for a process that is to import this Squall: a checkout (its squall.py), or site-packages."""
