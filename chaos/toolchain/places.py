"""Finds files that are no Python code, in a checkout or in an installed package, and the commit that they are from.

hatch_build.py runs this file by itself, so it imports nothing of ours.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Is the folder that contains the packages `broker`, `chaos` and so on: a checkout, or `squall/` in site-packages."""
SHARED = ROOT / "chaos" / "shared"
"""Is the folder in a wheel that holds files other than Python code, such as compose and plans."""
COMMIT_OF_WHEEL, COMMIT_OF_SDIST = SHARED / "commit", ROOT / "COMMIT"
"""Are the files with the commit from which a wheel or an sdist was built."""


def is_checkout() -> bool:
    """Return whether this is a working copy, with tests and documentation."""
    return (ROOT / "pyproject.toml").is_file()


def shared(name: str) -> Path:
    """Return the path of a folder or file that a checkout has at its root, such as compose or plans."""
    return ROOT / name if is_checkout() else SHARED / name


def commit() -> str:
    """Return the commit of this checkout, or the commit from which this package was built; empty if neither is known.

    It has 40 digits, followed by `-dirty` if files of the checkout were changed.
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
"""Is the PYTHONPATH of a process that imports this Squall: a checkout (with its squall.py), or site-packages."""
