"""Makes the consoles that commands print on. A terminal keeps its own width; everywhere else lines are not wrapped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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


def columns() -> int:
    """Columns of standard output: of the terminal, or of COLUMNS; `WIDE` in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDE


def live_line(console: Console, words: Callable[[], str]) -> AbstractContextManager[object]:
    """Keep a last line up to date on a terminal until the block ends; other output appears above it.

    words: called from another thread. Without a terminal nothing is shown.
    """
    if not console.is_terminal:
        return nullcontext()
    from rich.live import Live
    from rich.text import Text

    return Live(get_renderable=lambda: Text(words()), console=console, refresh_per_second=4, transient=True)


def in_words(seconds: float) -> str:
    """A time to wait, no more exact than anybody needs: "40 s", "3 min", "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
