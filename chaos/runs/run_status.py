"""Holds the current state of a run: for the terminal, and for scrapers of the run's metrics.

The run writes, and others read, also from other threads. So each field is replaced as a whole, and nothing here waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from squall.chaos.faults.context import FaultExecution
from squall.chaos.faults.nemesis import UpcomingFault
from squall.chaos.faults.targets import ClusterSnapshot
from squall.workloads.counters import NAMES, LoadCounters


@dataclass(slots=True)
class Phase:
    """One part of a run. Times are of `time.monotonic`, seconds."""

    name: str
    began: float
    lasts_s: float | None = None
    """As planned; None where nobody knows beforehand."""
    ended: float | None = None

    @property
    def stage(self) -> str:
        """Its name without what is done in it just now: "judge" of "judge: start Spark"."""
        return self.name.partition(":")[0]

    def took_s(self, now: float) -> float:
        """Return its duration so far, in seconds."""
        return (now if self.ended is None else self.ended) - self.began

    def left_s(self, now: float) -> float | None:
        """Return the rest of its planned time, in seconds: 0 once that is over, None without a plan."""
        return None if self.lasts_s is None else max(0.0, self.lasts_s - self.took_s(now))

    def words(self, now: float) -> str:
        """Return its progress: "load: 12 of 30 s", "Spark: 7 s"."""
        took_s = self.took_s(now)
        if self.lasts_s is None:
            return f"{self.name}: {took_s:.0f} s" if took_s >= 1 else self.name
        if took_s > self.lasts_s + 1:
            return f"{self.name}: {self.lasts_s:g} s, and {took_s - self.lasts_s:.0f} s more"
        return f"{self.name}: {min(took_s, self.lasts_s):.0f} of {self.lasts_s:g} s"


@dataclass(slots=True)
class RunStatus:
    """Holds the state of a run. Until a part of the run has begun, its fields here are empty."""

    about: Mapping[str, str] = field(default_factory=dict)
    """Which run this is: its name, seed, target, runtime and workload."""
    phases: list[Phase] = field(default_factory=list)
    load: LoadCounters | None = None
    """Of the workload's clients."""
    final: LoadCounters | None = None
    """Of the final readers."""
    faults: Sequence[FaultExecution] = ()
    """All that are planned."""
    coming: Callable[[], Sequence[UpcomingFault]] = tuple
    """Faults that have not begun, the next one first."""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """Broker -> running, paused or down. This and `view` only where somebody wants to see them."""
    view: ClusterSnapshot | None = None
    """Leaders and ISRs, as some broker said last. None: none says."""
    verdict: str | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase that is under way; None between phases."""
        return self.phases[-1] if self.phases and self.phases[-1].ended is None else None

    def begin(self, name: str, lasts_s: float | None) -> Phase:
        """A phase begins now; the caller says when it ends."""
        phase = Phase(name, time.monotonic(), lasts_s)
        self.phases = [*self.phases, phase]
        return phase

    def counts(self) -> dict[str, int]:
        """The counters that people watch: of the final reads once they have begun, before that of the load."""
        if self.final is not None:
            return {"final reads": self.final.read}
        return {} if self.load is None else counts_of(self.load)

    def under_way(self) -> list[FaultExecution]:
        """Faults that have begun and not ended."""
        return [played for played in self.faults if played.began is not None and played.ended is None]


def counts_of(counters: LoadCounters) -> dict[str, int]:
    """The counters that people watch."""
    return {name: getattr(counters, name) for name in NAMES}
