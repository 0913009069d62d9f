"""What a run shows while it goes: the phase, acknowledged records a second, faults under way.

On a terminal one block that is kept up to date; elsewhere a line at each phase and every few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chaos import screen

LINE_EVERY_S = 5.0
REFRESH_S = 0.25


class Watching(Protocol):
    """Whoever watches a run."""

    counts: Callable[[], dict[str, int]]
    """The workload's counters, once there are any."""
    faults: Callable[[], list[str]]
    """What is under way."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """`name` is going on until the block ends."""

    def say(self, line: str) -> None:
        """Something to know of the run."""


class Nobody:
    """Nobody watches: a simulation is over before anybody could."""

    def __init__(self) -> None:
        self.counts: Callable[[], dict[str, int]] = dict
        self.faults: Callable[[], list[str]] = list

    def phase(self, name: str) -> AbstractContextManager[None]:
        """As `Watching.phase`."""
        return nullcontext()

    def say(self, line: str) -> None:
        """As `Watching.say`."""


class Progress:
    """One run's display. `counts` gives the workload's counters, `faults` what is under way, once there are any."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.console = console or screen.console(stderr=True)
        self._title = title
        self._began = time.monotonic()
        self._phases: list[tuple[str, float, float | None]] = []
        self._rate = 0.0
        self._seen = (self._began, 0)
        self.counts: Callable[[], dict[str, int]] = dict
        self.faults: Callable[[], list[str]] = list

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show `name` as what is going on until the block ends."""
        began = time.monotonic()
        self._phases.append((name, began, None))
        if not self.console.is_terminal:
            self._line(name)
        try:
            yield
        finally:
            self._phases[-1] = (name, began, time.monotonic())

    def say(self, line: str) -> None:
        """As `Watching.say`: it stays on the terminal."""
        self.console.print(line, highlight=False)

    async def show(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the display up to date until cancelled."""
        if not self.console.is_terminal:
            task_status.started()
            await self._lines()
            return
        with Live(self._render(), console=self.console, refresh_per_second=1 / REFRESH_S, transient=True) as live:
            task_status.started()
            try:
                while True:
                    await trio.sleep(REFRESH_S)
                    self._measure()
                    live.update(self._render())
            finally:
                live.update(Text(""))

    async def _lines(self) -> None:
        while True:
            await trio.sleep(LINE_EVERY_S)
            self._measure()
            if self._phases and self._phases[-1][2] is None:
                self._line(self._phases[-1][0])

    def _measure(self) -> None:
        now, acked = time.monotonic(), self.counts().get("acked", 0)
        since, before = self._seen
        if now - since >= 0.9:
            self._rate = (acked - before) / (now - since)
            self._seen = (now, acked)

    def _line(self, name: str) -> None:
        faults = ", ".join(self.faults())
        counts = self.counts()
        load = f"  {counts['acked']} acknowledged, {self._rate:.0f}/s" if counts.get("acked") else ""
        at = time.monotonic() - self._began
        self.console.print(f"[{at:5.1f} s] {name}{load}{'  | ' + faults if faults else ''}", highlight=False)

    def _render(self) -> Any:
        table = Table.grid(padding=(0, 2))
        for name, began, ended in self._phases:
            took = (ended or time.monotonic()) - began
            mark = "[green]done[/]" if ended else "[yellow]now[/]"
            table.add_row(mark, name, f"{took:5.1f} s")
        counts = self.counts()
        if counts:
            told = "  ".join(f"{name} {value:,}" for name, value in counts.items())
            table.add_row("", "records", f"{told}  ({self._rate:,.0f} acknowledged/s)")
        faults = self.faults()
        table.add_row("", "faults under way", ", ".join(faults) if faults else "-")
        outer = Table.grid()
        outer.add_row(Text(f"squall run  {self._title}  {time.monotonic() - self._began:.0f} s", style="bold"))
        outer.add_row(table)
        return outer


def plain(text: str) -> None:
    """A line for people, on the error stream."""
    sys.stderr.write(text + "\n")
