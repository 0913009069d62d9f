"""Displays a run in progress: the phase, acknowledged records a second, active faults, and what comes next.

On a terminal it is one block that is updated in place; elsewhere a line at each phase and every few seconds. A thread
updates it, because judging waits for other processes and not for trio.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from squall.broker.overriding import override
from squall.chaos import screen
from squall.chaos.faults.context import FaultExecution
from squall.chaos.faults.nemesis import UpcomingFault
from squall.chaos.runs.run_status import RunStatus

LINE_EVERY_S, SLOWER = 5.0, 6
"""Give the interval between two lines on a pipe, in s, and by which factor it is longer while the run is judged and
reported, when no records are counted any more.
"""
REFRESH_S = 0.25
NEXT = 2
"""Limits how many coming faults are displayed by name; the others are only counted."""

AFTERWARDS = ("judge", "report")
"""Names the phases that begin after the cluster has stopped."""

MakePhase = Callable[[str], AbstractContextManager[None]]
"""Displays the named phase until the block ends."""


def no_display(_: str) -> AbstractContextManager[None]:
    """Display nothing: a `MakePhase` for a run without a display."""
    return nullcontext()


class ProgressDisplay(Protocol):
    """Is the interface through which a run shows its phases, counts and messages. `Progress` prints them,
    `NullProgress` prints nothing.
    """

    status: RunStatus
    """Holds what there is to display; the run writes it."""
    view_every_s: float | None
    """Gives how often the run asks the brokers for leaders and ISRs in order to show them, in s. None: never."""

    def phase(self, name: str, lasts_s: float | None = None) -> AbstractContextManager[None]:
        """Display the phase `name` until the block ends. lasts_s: its planned length in seconds, or None."""

    def say(self, line: str) -> None:
        """Show a message about the run."""


class NullProgress(ProgressDisplay):
    """Displays nothing, because a simulation is over before anybody could watch it."""

    view_every_s: float | None = None

    def __init__(self) -> None:
        self.status = RunStatus()

    @override
    def phase(self, name: str, lasts_s: float | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    @override
    def say(self, line: str) -> None:
        pass


class Progress(ProgressDisplay):
    """Displays one run. `title`: what is running, and which run. `then`: the later phases of the run in order, such as
    "judge" and "report", to display those that have not begun.
    """

    def __init__(self, title: str, console: Console | None = None, *, then: Sequence[str] = ()) -> None:
        self.console = console or screen.console(stderr=True)
        self.status = RunStatus()
        self.view_every_s: float | None = None
        self._title, self._then = title, tuple(then)
        self._began = time.monotonic()
        self._rate = 0.0
        self._seen = (self._began, 0)
        self._said: dict[str, int] = {}
        self._last = self._began
        """Gives when the most recent line was printed."""

    def begin(self, title: str) -> None:
        """Replace the title, and count the displayed time from now."""
        self._title, self._began = title, time.monotonic()

    @contextmanager
    def phase(self, name: str, lasts_s: float | None = None) -> Iterator[None]:
        """Display the phase `name` until the block ends."""
        phase = self.status.begin(name, lasts_s)
        if not self.console.is_terminal:
            self._line()
        try:
            yield
        finally:
            phase.ended = time.monotonic()

    @override
    def say(self, line: str) -> None:
        """Show a line that stays on the terminal."""
        self.console.print(line, highlight=False)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the display up to date until the block ends."""
        if self.console.is_terminal:
            with Live(
                get_renderable=self._render, console=self.console, refresh_per_second=1 / REFRESH_S, transient=True
            ):
                yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._lines, args=(over,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _lines(self, over: threading.Event) -> None:
        while not over.wait(LINE_EVERY_S):
            if self._due(time.monotonic()):
                self._line()

    def _due(self, now: float) -> bool:
        phase = self.status.phase
        if phase is None:
            return False
        return phase.stage not in AFTERWARDS or now - self._last >= SLOWER * LINE_EVERY_S

    def _measure(self, now: float) -> None:
        acked = self.status.counts().get("acked", 0)
        since, before = self._seen
        # The display is drawn several times a second, and a rate over so short a time would jump.
        if now - since >= 0.9:
            self._rate = (acked - before) / (now - since)
            self._seen = (now, acked)

    def _line(self) -> None:
        phase, now = self.status.phase, time.monotonic()
        assert phase is not None
        self._last = now
        self._measure(now)
        parts = [f"[{now - self._began:5.1f} s] {phase.words(now)}"]
        counts = self.status.counts()
        if counts == self._said:
            pass  # once is enough
        elif counts.get("acked"):
            parts.append(f"{counts['acked']} acknowledged, {self._rate:.0f}/s")
        elif counts.get("final reads"):
            parts.append(f"{counts['final reads']} records read")
        self._said = counts
        if faults := self.status.under_way():
            parts.append("| " + ", ".join(map(describe, faults)))
        if coming := next_words(self.status.coming()):
            parts.append(f"| next: {coming}")
        self.console.print("  ".join(parts), highlight=False, markup=False)

    def _render(self) -> Any:
        now = time.monotonic()
        self._measure(now)
        table = Table.grid(padding=(0, 2))
        # In one paragraph: a list of them would not fit on a small terminal.
        if done := [f"{each.name} {each.took_s(now):.1f} s" for each in self.status.phases if each.ended is not None]:
            table.add_row("[green]done[/]", Text(", ".join(done)))
        if (phase := self.status.phase) is not None:
            table.add_row("[yellow]now[/]", Text(phase.words(now), style="bold"))
        if phase is not None and phase.stage not in AFTERWARDS:
            self._render_load(table)
        if coming := next_words(self.status.coming()):
            table.add_row("[cyan]next[/]", Text(coming))
        if after := self._after():
            table.add_row("[dim]then[/]", Text(", ".join(after), style="dim"))
        outer = Table.grid()
        outer.add_row(Text(f"{self._title}  {now - self._began:.0f} s", style="bold"))
        outer.add_row(table)
        return outer

    def _render_load(self, table: Table) -> None:
        if counts := self.status.counts():
            counters = "  ".join(f"{name} {value:,}" for name, value in counts.items())
            rate = f"  ({self._rate:,.0f} acknowledged/s)" if "acked" in counts else ""
            table.add_row("", counters + rate)
        if faults := self.status.under_way():
            table.add_row("[red]hurt[/]", Text(", ".join(map(describe, faults))))

    def _after(self) -> Sequence[str]:
        """Return the later phases of the run (`then` of the constructor) that have not begun."""
        known = {phase.stage for phase in self.status.phases}
        reached = [number for number, name in enumerate(self._then, 1) if name in known]
        return self._then[max(reached, default=0) :]


def describe(played: FaultExecution) -> str:
    """Return the action, the targets and the parameters of a fault in progress."""
    details = " ".join(str(value) for value in played.fault.params.values())
    return f"{played.fault.action} {','.join(map(str, played.hit))} {details}".strip()


def next_words(coming: Sequence[UpcomingFault]) -> str:
    """Return the next faults in words: "kill in 3 s, then pause in 9 s"."""
    named = [_coming(each) for each in coming[:NEXT]]
    more = f", and {len(coming) - NEXT} more" if len(coming) > NEXT else ""
    return ", then ".join(named) + more


def _coming(each: UpcomingFault) -> str:
    if each.in_s <= 0:
        return f"{each.fault.action} when {each.fault.when}" if each.fault.when else f"{each.fault.action} now"
    return f"{each.fault.action} in {each.in_s:.0f} s"
