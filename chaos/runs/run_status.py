"""Holds the current state of a run: for the terminal, and for scrapers of the run's metrics.

The run writes the state, and other threads read it. So each field is replaced as a whole, and nothing here waits.
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
class RunPhase:
    """Is one phase of a run. Times are of `time.monotonic`, in seconds."""

    name: str
    began: float
    lasts_s: float | None = None
    """Gives the planned length; None if the length is not known beforehand."""
    ended: float | None = None

    @property
    def stage(self) -> str:
        """Returns the phase's name without its current step: "judge" of "judge: start Spark"."""
        return self.name.partition(":")[0]

    def took_s(self, now: float) -> float:
        """Return the phase's duration so far, in seconds."""
        return (now if self.ended is None else self.ended) - self.began

    def left_s(self, now: float) -> float | None:
        """Return the rest of the phase's planned time, in seconds: 0 once the time is over, None without a plan."""
        return None if self.lasts_s is None else max(0.0, self.lasts_s - self.took_s(now))

    def words(self, now: float) -> str:
        """Return the phase's progress in words: "load: 12 of 30 s", "Spark: 7 s"."""
        took_s = self.took_s(now)
        if self.lasts_s is None:
            return f"{self.name}: {took_s:.0f} s" if took_s >= 1 else self.name
        if took_s > self.lasts_s + 1:
            return f"{self.name}: {self.lasts_s:g} s, and {took_s - self.lasts_s:.0f} s more"
        return f"{self.name}: {min(took_s, self.lasts_s):.0f} of {self.lasts_s:g} s"


@dataclass(slots=True)
class RunStatus:
    """Holds the state of a run. Until a part of the run has begun, the part's fields are empty."""

    about: Mapping[str, str] = field(default_factory=dict)
    """Describes the run: its name, seed, target, runtime and workload."""
    phases: list[RunPhase] = field(default_factory=list)
    load: LoadCounters | None = None
    """Counts what the workload's clients do."""
    final: LoadCounters | None = None
    """Counts what the readers in the phase "final reads" do."""
    faults: Sequence[FaultExecution] = ()
    """Lists all planned faults."""
    coming: Callable[[], Sequence[UpcomingFault]] = tuple
    """Returns the faults that have not begun, the next fault first."""
    nodes: Mapping[int, str] = field(default_factory=dict)
    """Maps a broker to running, paused or down. `nodes` and `view` are kept up to date only if a display needs them."""
    view: ClusterSnapshot | None = None
    """Holds leaders and ISRs, as a broker last reported them. None: no broker reports them."""
    verdict: str | None = None

    @property
    def phase(self) -> RunPhase | None:
        """Returns the current phase; None between phases."""
        return self.phases[-1] if self.phases and self.phases[-1].ended is None else None

    def begin(self, name: str, lasts_s: float | None) -> RunPhase:
        """Begin a phase now, and return it. The caller sets when the phase ends."""
        phase = RunPhase(name, time.monotonic(), lasts_s)
        self.phases = [*self.phases, phase]
        return phase

    def counts(self) -> dict[str, int]:
        """Return the counters to display: the load's, and once the final reads have begun, those of the final reads
        instead.
        """
        if self.final is not None:
            return {"final reads": self.final.read}
        return {} if self.load is None else counts_of(self.load)

    def under_way(self) -> list[FaultExecution]:
        """Return the faults that have begun and not ended."""
        return [played for played in self.faults if played.began is not None and played.ended is None]


def counts_of(counters: LoadCounters) -> dict[str, int]:
    """Return the counters in `NAMES`, which are displayed and written to run.json."""
    return {name: getattr(counters, name) for name in NAMES}
