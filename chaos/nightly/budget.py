"""Forecasts how long runs take, how much they leave on disk, and what still fits into a night. It does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import fmean

from squall.chaos.nightly.items import PlannedRun
from squall.checkers.nightly.results import VALID, RunAttempt
from squall.workloads.registry import SCENARIOS

MIB = 1 << 20
CORES: Mapping[str, int] = {"sim": 1}
"""Maps a runtime to the CPU cores that one of its runs needs. A run on any other runtime needs two."""
_PRIOR_S = {"sim": (3.0, 0.15), "process": (28.0, 1.0), "docker": (45.0, 1.0), "external": (28.0, 1.0)}
"""Estimates a run's seconds before any has ended, by runtime: a constant, and a factor for each second of load."""
_KAFKA_S = 20.0
"""Estimates the additional seconds of a run of Apache Kafka, whose JVMs have to start and restart."""
_THIN_BYTES = 1.5 * MIB, 500.0
"""Estimates the bytes that remain of a valid run: a constant, and a number of bytes for each sent record. In measured
runs between half of this and nearly all of it remained.
"""
_WHOLE_MIB = {"sim": 5.0}
_OTHER_WHOLE_MIB = 60.0
_KAFKA_WHOLE_MIB = 250.0
"""Estimates the MiB that remain of a run of Apache Kafka that is not valid and is therefore kept whole: data, traces
and logs.
"""
WHOLE_SHARE = 0.1
"""Estimates the share of runs that keep all their files because they are not valid, 0 to 1. Their number is rounded up
for each runtime and target, so it is at least one.
"""
PAGES_BYTES = int(2.5 * MIB)
"""Estimates the bytes of a run in Allure's results and Allure's page. Measured: 104 MiB for 48 runs."""
PAGE_SHARE = 1.4
"""Estimates the size of Allure's page as a multiple of its results, which the page contains as base64."""
_WARM_S = 3.0
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
    """Counts the bytes that remain once the files that nothing reads any more are removed."""


@dataclass(frozen=True, slots=True)
class _ObservedCost:
    """Holds the cost of a run that has ended. bytes: those that remained on disk; None if the run kept all its files,
    because only the others count in the mean.
    """

    seconds: float
    bytes: float | None


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
        self._seen: dict[tuple[str, ...], list[_ObservedCost]] = {}
        self._whole: dict[tuple[str, str], float] = {}
        for item, attempt in known:
            self.learn(item, attempt)

    def learn(self, item: PlannedRun, attempt: RunAttempt) -> None:
        """Take the seconds and bytes of an attempt that has ended into account in later predictions."""
        thin = attempt.verdict == VALID and not attempt.fails
        for kind in _kinds(item):
            self._seen.setdefault(kind, []).append(_ObservedCost(attempt.seconds, attempt.bytes if thin else None))
        if not thin:
            place = _place(item)
            self._whole[place] = max(self._whole.get(place, 0), attempt.bytes)

    def learn_report(self, runs: int, seconds: float) -> None:
        """Learn how many seconds the report of a night with so many runs took."""
        self._reports.append(seconds / _usual_report_s(runs))

    def report_s(self, runs: int) -> float:
        """Return the predicted seconds of the report of a night with so many runs; 0 if the night makes none."""
        if not self.report:
            return 0.0
        return (fmean(self._reports) if self._reports else 1.0) * _usual_report_s(runs)

    def of(self, item: PlannedRun) -> RunCost:
        """Return the expected cost of a run: the mean of the most similar runs, or an estimate if there are none. The
        bytes are those of a valid run, most of whose files are removed.
        """
        cost = self._usual(item)
        for kind in _kinds(item):
            if seen := self._seen.get(kind):
                # Only from the first key: runs with the second one may send more or fewer records, and leave as many
                # bytes.
                kept = [each.bytes for each in seen if each.bytes is not None] if kind == _kinds(item)[0] else []
                return RunCost(fmean(each.seconds for each in seen), fmean(kept) if kept else cost.bytes)
        return cost

    def whole_bytes(self, item: PlannedRun) -> float:
        """Return the expected bytes of a run that keeps all its files: the most that such a run with the same runtime
        and target has left so far. If there was no such run, return an estimate.
        """
        place = _place(item)
        usual = _KAFKA_WHOLE_MIB if item.cell["target"] == "kafka" else _WHOLE_MIB.get(item.runtime, _OTHER_WHOLE_MIB)
        return self._whole.get(place, usual * MIB)

    def _usual(self, item: PlannedRun) -> RunCost:
        fixed, each_s = _PRIOR_S.get(item.runtime, _PRIOR_S["process"])
        kafka = _KAFKA_S if item.cell["target"] == "kafka" else 0.0
        alone, of_record = _THIN_BYTES
        kept = alone + of_record * rate(item) * (item.time_s + _WARM_S)
        return RunCost(fixed + kafka + each_s * item.time_s, kept)


def _usual_report_s(runs: int) -> float:
    fixed, each_s = _REPORT_S
    return fixed + each_s * runs


def rate(item: PlannedRun) -> float:
    """Return the records that a run sends in a second."""
    if "--rate" in item.arguments:
        return float(item.arguments[item.arguments.index("--rate") + 1])
    scenario = SCENARIOS[item.cell["workload"]]
    usual: float = scenario.model_fields["rate"].default
    return float(scenario.LIGHT.get("rate", usual)) if item.runtime == "sim" else usual


def _place(item: PlannedRun) -> tuple[str, str]:
    return item.runtime, item.cell["target"]


def _kinds(item: PlannedRun) -> tuple[tuple[str, ...], ...]:
    """Return the two keys under which the cost of a run is looked up. The first has runtime, target, seconds of load,
    workload and records per second. The second has only the first three of these, so it also matches less similar runs.
    """
    where = (*_place(item), f"{item.time_s:g}")
    return (*where, item.cell["workload"], f"{rate(item):g}"), where


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
    return NightForecast(spent, used + _bytes_kept_whole(plays, costs), tuple(plays), tuple(left_out), enough)


def _bytes_kept_whole(items: Sequence[PlannedRun], costs: CostModel) -> float:
    """Return the expected bytes of those runs that turn out not to be valid, because a run that is not valid keeps all
    its files.
    """
    places: dict[tuple[str, str], list[PlannedRun]] = {}
    for item in items:
        places.setdefault(_place(item), []).append(item)
    return sum(ceil(WHOLE_SHARE * len(alike)) * costs.whole_bytes(alike[0]) for alike in places.values())


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
