"""Where files stand that are no code: in a checkout, or in an installed package."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the packages: a checkout, or site-packages."""
SHARED = ROOT / "chaos" / "shared"
"""Where a wheel has them."""


def is_checkout() -> bool:
    """Whether this is a working copy, with tests and documentation."""
    return (ROOT / "pyproject.toml").is_file()


def shared(name: str) -> Path:
    """A folder or file that a checkout has at its root: compose, plans."""
    return ROOT / name if is_checkout() else SHARED / name
