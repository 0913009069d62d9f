"""Where commands print: a terminal as wide as it is, and lines without an end everywhere else."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000
"""Columns of a pipe or a file: whoever reads a log searches whole lines."""


def console(*, stderr: bool = False) -> Console:
    """For results, or (stderr) for what is said meanwhile. COLUMNS sets the width, as it does for other programs."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDE
    return Console(stderr=stderr, highlight=False, width=width)
