"""Forecasts how long runs take, how much they leave on disk, and what still fits into a night. It does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import fmean

from squall.chaos.nightly.items import PlannedRun
from squall.checkers.nightly.results import RunAttempt

MIB = 1 << 20
CORES: Mapping[str, int] = {"sim": 1}
"""Maps a runtime to the CPU cores that one of its runs needs. A run on any other runtime needs two."""
_PRIOR = {"sim": (3.0, 0.15, 1.5, 0.05)}
_OTHER_PRIOR = 40.0, 1.0, 1.5, 0.5
"""Estimates the cost of a run by its runtime, until such a run has ended: seconds, seconds for each second of load, MiB
that remain, and MiB for each second of load.
"""
MARGIN = 1.5
"""Multiplies the forecast bytes of a night, because a run that is not valid keeps all its files."""
PAGES_BYTES = int(2.5 * MIB)
"""Estimates the bytes of a run in Allure's results and Allure's page. Measured: 104 MiB for 48 runs."""
PAGE_SHARE = 1.4
"""Estimates the size of Allure's page as a multiple of its results, which the page contains as base64."""
_REPORT_S = 30.0, 2.0
"""Estimates the seconds that a night's report takes, until a report has been measured: a constant, and a factor for
each run.
"""
_LIMIT_S = (600.0, 3.0)
"""Limits the seconds of one run: a constant, and a factor for each second of load. All waits of a run are bounded; this
limit is for a run that hangs all the same.
"""


@dataclass(frozen=True, slots=True)
class RunCost:
    """Holds the cost of one run: seconds of wall time, and bytes that remain on disk."""

    seconds: float
    bytes: float


def cores(item: PlannedRun) -> int:
    """Return the CPU cores that a run needs."""
    return CORES.get(item.runtime, 2)


def limit_s(item: PlannedRun) -> float:
    """Return the seconds that one run may take, which is far more than a healthy run takes."""
    fixed, each_s = _LIMIT_S
    return fixed + each_s * item.time_s


class CostModel:
    """Learns the cost of runs, in seconds and bytes, from runs that have ended, and predicts the cost of others."""

    def __init__(self, known: Iterable[tuple[PlannedRun, RunAttempt]] = ()) -> None:
        self.report = False
        """Is True if the night makes its report."""
        self._reports: list[float] = []
        self._seen: dict[tuple[str, str, float], list[RunAttempt]] = {}
        for item, attempt in known:
            self.learn(item, attempt)

    def learn(self, item: PlannedRun, attempt: RunAttempt) -> None:
        """Take the seconds and bytes of an attempt that has ended into account in later predictions."""
        self._seen.setdefault(_kind(item), []).append(attempt)

    def learn_report(self, runs: int, seconds: float) -> None:
        """Learn how many seconds the report of a night with so many runs took."""
        self._reports.append(seconds / _usual_report_s(runs))

    def report_s(self, runs: int) -> float:
        """Return the predicted seconds of the report of a night with so many runs; 0 if the night makes none."""
        if not self.report:
            return 0.0
        return (fmean(self._reports) if self._reports else 1.0) * _usual_report_s(runs)

    def of(self, item: PlannedRun) -> RunCost:
        """Return the expected cost of a run: the mean of the runs with the same runtime, target and seconds of load, or
        an estimate if none has ended.
        """
        if seen := self._seen.get(_kind(item)):
            return RunCost(fmean(each.seconds for each in seen), fmean(each.bytes for each in seen))
        fixed_s, each_s, fixed_mib, each_mib = _PRIOR.get(item.runtime, _OTHER_PRIOR)
        return RunCost(fixed_s + each_s * item.time_s, (fixed_mib + each_mib * item.time_s) * MIB)


def _usual_report_s(runs: int) -> float:
    fixed, each_s = _REPORT_S
    return fixed + each_s * runs


def _kind(item: PlannedRun) -> tuple[str, str, float]:
    return item.runtime, item.cell["target"], item.time_s


@dataclass(frozen=True, slots=True)
class NightForecast:
    """Holds the expected cost of a night; `bytes` errs on the high side. `left_out`: the items for which there is no
    time or no disk space, and why.
    """

    seconds: float
    bytes: float
    plays: tuple[PlannedRun, ...]
    left_out: tuple[tuple[PlannedRun, str], ...]
    enough_s: float
    """Is the budget, in seconds, that would be enough for all runs and the report."""


def forecast(
    items: Sequence[PlannedRun], costs: CostModel, budget_s: float | None, keep_bytes: int, slots: int, done: int = 0
) -> NightForecast:
    """Return which of the items, in this order, fit into a night of `budget_s` seconds that leaves at most `keep_bytes`
    on disk. The seconds include the report, if the night makes one. done: how many runs ended before the night was
    resumed; the report covers them, too. slots: how many runs with OS processes are played at a time.
    """
    spent = used = planned = enough = 0.0
    plays: list[PlannedRun] = []
    left_out: list[tuple[PlannedRun, str]] = []
    for number, item in enumerate(items, 1):
        cost = costs.of(item)
        share = cost.seconds * cores(item) / (2 * slots)
        # A run's own time counts in full: it does not end sooner because others run beside it.
        enough = max(enough, planned + cost.seconds + costs.report_s(done + number))
        planned += share
        report_s = costs.report_s(done + len(plays) + 1)
        if why := no_room(cost, spent, used, budget_s, keep_bytes, report_s):
            left_out.append((item, why))
            continue
        spent, used = spent + share, used + cost.bytes + PAGES_BYTES
        plays.append(item)
    spent += costs.report_s(done + len(plays))
    return NightForecast(spent, used * MARGIN, tuple(plays), tuple(left_out), enough)


def no_room(
    cost: RunCost, spent_s: float, used_bytes: float, budget_s: float | None, keep_bytes: int, report_s: float = 0.0
) -> str:
    """Return why a run does not fit into the rest of the night; empty if it fits. budget_s: the seconds of the night
    (None: no limit), of which `report_s` are reserved for the report; keep_bytes: the bytes that it may leave on disk.
    """
    if budget_s is not None and spent_s + cost.seconds + report_s > budget_s:
        left = max(0.0, budget_s - spent_s)
        kept = f", of which the report takes about {ceil(report_s)} s" if report_s else ""
        return f"no time: such a run takes about {ceil(cost.seconds)} s, and {left:.0f} s of the budget are left{kept}"
    keeps = cost.bytes + PAGES_BYTES
    if used_bytes + keeps > keep_bytes:
        return (
            f"no room: such a run keeps about {ceil(keeps / MIB)} MiB, and {used_bytes / MIB:.0f} of the "
            f"{keep_bytes / MIB:.0f} MiB (--keep-mib) are taken"
        )
    return ""


def spent_s(attempts: Iterable[RunAttempt]) -> float:
    """Return the seconds in which at least one run was under way. The time between an interruption and a resumption
    does not count.
    """
    spans = sorted((began, began + each.seconds) for each in attempts
                   if (began := datetime.fromisoformat(each.began).timestamp()))  # fmt: skip
    total = reached = 0.0
    for began, ended in spans:
        total += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return total
