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
"""Gives the width of a pipe or a file, in columns, so that `grep` finds whole lines in a log."""


def console(*, stderr: bool = False) -> Console:
    """Return a console for results, or with `stderr` for progress messages. COLUMNS sets the width, as for other
    programs.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDE
    return Console(stderr=stderr, highlight=False, width=width)


def columns() -> int:
    """Return the width of standard output in columns: the terminal's, or COLUMNS; `WIDE` for a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else WIDE


def live_line(console: Console, words: Callable[[], str]) -> AbstractContextManager[object]:
    """Keep a last line up to date on a terminal until the block ends; other output appears above that line.

    words: returns the line's text; it is called from another thread. Without a terminal nothing is shown.
    """
    if not console.is_terminal:
        return nullcontext()
    from rich.live import Live
    from rich.text import Text

    return Live(get_renderable=lambda: Text(words()), console=console, refresh_per_second=4, transient=True)


def in_words(seconds: float) -> str:
    """Return a waiting time in words, rounded: "40 s", "3 min", "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
