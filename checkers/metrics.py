"""Turns the raw measures that an engine takes in every run into the numbers that people read.

The engines (`squall.checkers.measures`, `squall.spark_analysis.measures`) yield rows of `MeasurementRow`. All times in
these rows are ns on the run's clock, and all latencies are counted in units of 10 microseconds. `shape` makes
metrics.json of the rows, and `series` makes the series that plots are drawn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from squall.checkers.history.group_tables import PartitionOwnership
from squall.checkers.history.tables import (
    PRODUCER,
    ClientProcess,
    History,
    ObservedPartition,
    PartitionFinalRead,
    RecordedFault,
)
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.nemesis_log import FOREVER, windows

SCHEMA = 1
LATENCY_UNIT_NS = 10_000
"""Is the unit of latencies, in ns: with finer units, an exact percentile would need too much memory."""
PERCENTILES = (0.5, 0.99, 0.999)
OVERALL = -1
"""Is the `a` of a gap (`MeasurementRow`) in which no partition at all acknowledged a write; other gaps have the id of
their partition there.
"""

LATENCY, GAP, FAULT_GAP = "latency", "gap", "fault gap"
HEALED_GAP, FRESH_GAP, CALM_GAP = "healed gap", "fresh gap", "calm gap"
RECOVERY, READER_GAP, CALM_READER_GAP, ACKED = "recovery", "reader gap", "calm reader gap", "acked"
OUTCOMES, FINAL_READ, UNPLACED = "outcomes", "final read", "unplaced"
SENDS, READS, SECOND = "sends", "reads", "latency by second"
STALE, LAG = "stale", "lag"
ISOLATIONS = ("read_uncommitted", "read_committed")
"""Names the isolation levels by `RecordRow.iso`."""
TRANSACTIONS, COMMIT_LATENCY = "transactions", "commit latency"
UNCOMMITTED, UNCOMMITTED_OFFSETS = "uncommitted", "uncommitted offsets"
PRODUCER_GAP, TRANSACTION_GAP = "producer gap", "transaction gap"
PRODUCER_SENDS, TRIED = "producer sends", "tried transactions"

LOAD, AFTERWARDS = 0, 1
"""Are the values of `MeasurementRow.b` for acknowledged sends: of the load's producers, and of producers that wrote
after healing.
"""
ABORTED_DATA, NEVER_ENDED_DATA, EARLY_DATA = 0, 1, 2
"""Are the values of `MeasurementRow.a` for uncommitted reads: the transaction was aborted or failed; its client never
requested its end; its commit was requested later.
"""
ALL, CALM, FAULTY = -1, 0, 1
"""Are the values of `MeasurementRow.a` for latencies and outcomes: all sends, sends outside of faults, sends during
faults.
"""


class TxnOutcome(IntEnum):
    """Says how a transaction ended, as its client saw it. A row of the measure `transactions` has the outcome in
    `MeasurementRow.a`.
    """

    COMMITTED = 0
    ABORTED = 1
    """Is the outcome if the client requested the abort, and the coordinator did it."""
    TIMED_OUT = 2
    """Is the outcome if the transaction definitely did not commit, and its client learned that only after the
    transaction's time-out.
    """
    FAILED = 3
    """Is the outcome if the transaction definitely did not commit, although it was neither aborted on request nor timed
    out: its producer was fenced, or could not write, or the coordinator had no such transaction open any more
    (INVALID_TXN_STATE).
    """
    LEFT = 4
    """Is the outcome if the client never requested the end of the transaction; the coordinator aborts it after its
    time-out.
    """
    UNKNOWN = 5
    """Is the outcome if the client requested the end of the transaction, and no response says whether that succeeded.
    """


class MeasurementRow(NamedTuple):
    """Describes one measurement: its name, two keys `a` and `b`, and its numbers.

    | name | a | b | numbers |
    |---|---|---|---|
    | acked | partition | LOAD, AFTERWARDS | how many sends were acknowledged, under load and after healing |
    | unplaced | partition | process | sends acknowledged without an offset: how many, lowest sequence number |
    | latency | ALL, CALM, FAULTY | 0 | count, p50, p99, p99.9, max of acknowledged sends |
    | outcomes | CALM, FAULTY | status | how many of the load's sends had this status |
    | final read | partition | isolation | how many records final reads returned |
    | gap | partition or OVERALL | 0 | longest time in which writes waited and none was acknowledged, its begin |
    | healed gap | partition or OVERALL | 0 | longest gap after the last fault ended, its begin |
    | calm gap | partition or OVERALL | 0 | longest gap before and between faults (all if no fault began), its begin |
    | fresh gap | partition | 0 | longest healed gap, from the first acknowledged AFTERWARDS write in it, its begin |
    | fault gap | fault id | partition | longest gap that overlaps the fault, its begin |
    | recovery | fault id | partition | from the fault's begin to the first acknowledgement of a later send; -1: none |
    | reader gap | process | partition | longest time without progress after the last fault ended, its begin |
    | calm reader gap | process | partition | the same before and between faults (all if no fault began) |
    | sends | second | status | how many sends ended with this status in that second of the run |
    | reads | second | 0 | how many records were received in that second |
    | stale | process or ALL | partition or ALL | count, p50, p99, p99.9, max of the age of polls, see below |
    | lag | process or ALL | partition or ALL | count, p50, p99, p99.9, max of offsets that readers were behind |
    | transactions | a TxnOutcome | 0 | how many transactions had this outcome |
    | commit latency | 0 | 0 | count, p50, p99, p99.9, max of the time from asking for a commit to its acknowledgement |
    | uncommitted | ABORTED_DATA ... | 1: final reads | of how many transactions, how many reads; see below |
    | uncommitted offsets | ABORTED_DATA ... | 1: final reads | at how many offsets of these transactions |
    | latency by second | second | 0 | count, p50, p99, max of sends that were acknowledged in that second |
    | producer gap | a producer's first process | 0 | longest gap of its sends while no fault was on, its begin |
    | transaction gap | first process of a transactional id | 0 | the same of its transactions, see below |
    | producer sends | a producer's first process | status | how many of its sends ended so while no fault was on |
    | tried transactions | first process of a transactional id | 0, 1 | how many committed; how many failed |

    A write waits from when it was sent until its result came; if none ever came, only the moment of sending counts.
    Time in which no client tried to write is no gap, except between two writes that were not acknowledged, because
    nothing shows that the partition was back between them. So a gap ends with an acknowledgement, or with the last
    write that failed before all producers stopped trying.

    The age of a poll says for how long its reader had been behind: it is the time from when any client first learned of
    an offset beyond the poll's last record until the poll began; 0 if no client did. A reader sometimes requests the
    latest offset (with read_committed the last stable offset): that offset less the reader's position is its lag
    (mechanism R6 in docs/mechanisms.md). Final reads count for neither.

    A producer of the load may have several processes, one after the other (`same_producer`); its first process
    identifies it. A transactional id waits from when a transaction's end was requested until it is acknowledged, commit
    or abort. Tried transactions include those that failed before their end was requested, and each InitProducerId that
    failed. They do not include a transaction that its client left open beyond its time-out. A transaction failed (1) if
    it neither committed nor aborted, and no fault was on.

    Uncommitted reads are what readers at read_uncommitted got of transactions before any client requested a commit, or
    although no client ever did. They show that there was data that readers at read_committed must not get.
    """

    name: str
    a: int
    b: int
    numbers: tuple[float, ...]


ReaderPartition = tuple[int, int]
"""Is (process, partition) of a reader."""
OwnedSpan = tuple[int, int]
"""Is (begin, end), in ns, of a time in which a member owned a partition."""
ALWAYS: OwnedSpan = (0, FOREVER)
"""Is the span in which a reader without a group waits for records of its partitions: the whole run."""


def waiting_for(holds: Iterable[PartitionOwnership]) -> dict[ReaderPartition, list[OwnedSpan]]:
    """Map each member and partition to the times in which the member owned the partition, in order. A member waits for
    records of a partition only while it owns it. Example: {(3, 0): [(1000, 2000)]}, for process 3 and partition 0, in
    ns.
    """
    waits: dict[ReaderPartition, list[OwnedSpan]] = {}
    for hold in sorted(holds, key=lambda hold: hold.t0):
        waits.setdefault((hold.proc, hold.part), []).append((hold.t0, hold.t1 if hold.t1 >= 0 else FOREVER))
    return waits


@dataclass(frozen=True, slots=True)
class StuckLimits:
    """Holds the plan's limits on how long nothing may succeed after healing, in s. None means that the time is
    measured, but never fails the run.
    """

    stuck_producer_s: float | None = None
    stuck_consumer_s: float | None = None


@dataclass(frozen=True, slots=True)
class MeasurementContext:
    """Holds what an engine needs beside the history to take measures: partitions, faults, final reads and roles of
    producers.
    """

    origin_ns: int
    """Is the time of the history's header, from which seconds of the run count."""
    partitions: Sequence[ObservedPartition]
    faults: Sequence[RecordedFault]
    finals: Sequence[PartitionFinalRead]
    outcomes: Mapping[str, Mapping[str, int]]
    afterwards: Sequence[int] = ()
    """Lists the harness's own producers, which wrote after healing: their sends are not part of the load, and measures
    leave them out.
    """
    producers: Mapping[int, int] = field(default_factory=dict)
    """Maps a process to the first process of the same producer (`same_producer`), for example {9: 4} if process 9
    replaced process 4. First processes have no entry.
    """

    @property
    def transactions(self) -> bool:
        """Return whether the history has any transaction."""
        return bool(self.outcomes.get("txn"))

    @property
    def healed_ns(self) -> int:
        """Return when the last fault ended, in ns; -1 if there was none."""
        return max((fault.ended for fault in self.faults), default=-1)

    @property
    def between(self) -> list[tuple[int, int]]:
        """Return the times before and between faults as (begin, end) in ns, in order. If no fault ever began, that is
        all the time.
        """
        on = windows(self.faults)
        # The time after the last fault is left out: it counts as healed (`healed_ns`).
        calm = zip([self.origin_ns, *(ended for _, ended in on)], on or [(FOREVER, FOREVER)], strict=False)
        return [(since, began) for since, (began, _) in calm if since < began]


def context_of(history: History, faults: Sequence[RecordedFault]) -> MeasurementContext:
    """Return what an engine needs to know beside the records to take measures: partitions, faults, final reads, and
    which processes belong to one producer. `faults` come from nemesis.jsonl, all else from the history.
    """
    afterwards = [each.proc for each in history.processes if AFTER_HEALING in each.settings]
    about = history.mono_ns, history.partitions, faults, history.finals, history.outcomes
    return MeasurementContext(*about, afterwards, same_producer(history.processes))


def same_producer(processes: Iterable[ClientProcess]) -> dict[int, int]:
    """Return a map from each later process of a producer to that producer's first process, for example {7: 4, 9: 4}.
    Processes belong to one producer if they have the same transactional id. If they have none, they belong to one
    producer if they have the same producer number, or else the same member number, in their settings.
    """
    first: dict[tuple[str, Any], int] = {}
    found = {}
    for each in sorted(processes, key=lambda each: each.proc):
        reported = ((name, each.settings.get(name)) for name in _NAMES_OF_PRODUCERS)
        named = next((pair for pair in reported if pair[1] not in (None, "")), None)
        if each.role == PRODUCER and named is not None:
            found[each.proc] = first.setdefault(named, each.proc)
    return {proc: one for proc, one in found.items() if one != proc}


_NAMES_OF_PRODUCERS = ("transactional_id", "producer", "member")
"""Lists the settings of a process that identify its producer; the first one that is set counts."""


def shape(measures: Iterable[MeasurementRow], context: MeasurementContext) -> dict[str, Any]:
    """Return the content of metrics.json, which the README describes in "What a run leaves behind"."""
    by_name = _by_name(measures)
    names = {partition.part: partition.name for partition in context.partitions}
    gaps = {measure.a: measure for measure in by_name.get(GAP, ())}
    overall = gaps.pop(OVERALL, None)
    acked, ended, shown = (
        {(measure.a, measure.b): int(measure.numbers[0]) for measure in by_name.get(name, ())}
        for name in (ACKED, OUTCOMES, FINAL_READ)
    )
    unplaced = Counter[int]()
    for measure in by_name.get(UNPLACED, ()):
        unplaced[measure.a] += int(measure.numbers[0])
    return {
        "schema": SCHEMA,
        "outcomes": {f: dict(counts) for f, counts in context.outcomes.items()},
        "sends_without_faults": {name: ended.get((CALM, st), 0) for st, name in enumerate(("ok", "fail", "info"))},
        "latency_ms": {name: _latency(by_name.get(LATENCY, ()), flag) for name, flag in _LATENCIES.items()},
        "unavailable": {
            "overall": _gap(overall, context) if overall else None,
            "partitions": {names[part]: _gap(gap, context) for part, gap in sorted(gaps.items())},
        },
        "faults": [_fault(fault, by_name, names, context) for fault in context.faults if fault.began >= 0],
        "after_healing": {
            "healed_s": _seconds(context.healed_ns, context) if context.healed_ns >= 0 else None,
            "producers": _worst(by_name.get(HEALED_GAP, ()), names, context),
            "readers": [
                {"proc": each.a, "partition": names[each.b], **_gap(each, context)}
                for each in sorted(by_name.get(READER_GAP, ()), key=lambda each: (-each.numbers[0], each.a, each.b))[
                    :20
                ]
            ],
        },
        "reading": _reading(by_name, names),
        "producers": [
            {"proc": first, **{name: int(ended.get(st, 0)) for st, name in enumerate(("ok", "fail", "info"))}}
            for first, ended in _by_process(by_name.get(PRODUCER_SENDS, ())).items()
        ],
        "transactional_ids": [
            {"proc": first, "committed": int(tried.get(0, 0)), "failed": int(tried.get(1, 0))}
            for first, tried in _by_process(by_name.get(TRIED, ())).items()
        ],
        "transactions": _transactions(by_name) if context.transactions else None,
        "partitions": {
            partition.name: {
                "part": partition.part,
                "acked": acked.get((partition.part, LOAD), 0),
                "acked_after_healing": acked.get((partition.part, AFTERWARDS), 0),
                "acked_without_offset": unplaced[partition.part],
                "complete_final_reads": sum(final.complete for final in context.finals if final.part == partition.part),
                "final_read_records": {
                    name: shown.get((partition.part, iso), 0) for iso, name in enumerate(ISOLATIONS)
                },
                "final_read_from": partition.cover_from,
                "final_read_to": partition.cover_to,
            }
            for partition in context.partitions
        },
    }


def series(measures: Iterable[MeasurementRow], context: MeasurementContext) -> dict[str, Any]:
    """Return the content of series.json: what happened in each second of the run, from second 0, and when each fault
    was on.
    """
    by_name = _by_name(measures)
    seconds: dict[int, dict[str, float]] = {}
    for measure in by_name.get(SENDS, ()):
        seconds.setdefault(measure.a, {})[("acked", "failed", "unknown")[measure.b]] = measure.numbers[0]
    for measure in by_name.get(READS, ()):
        seconds.setdefault(measure.a, {})["read"] = measure.numbers[0]
    for measure in by_name.get(SECOND, ()):
        _, p50, p99, highest = (number * LATENCY_UNIT_NS / 1e6 for number in measure.numbers)
        seconds.setdefault(measure.a, {}).update(p50_ms=p50, p99_ms=p99, max_ms=highest)
    begin, end = min(seconds, default=0), max(seconds, default=-1)
    columns = ("acked", "failed", "unknown", "read", "p50_ms", "p99_ms", "max_ms")
    return {
        "schema": SCHEMA,
        "second": list(range(begin, end + 1)),
        **{
            # Nothing in a second is a count of 0, but no latency.
            name: [seconds.get(second, {}).get(name, None if "_" in name else 0) for second in range(begin, end + 1)]
            for name in columns
        },
        "faults": [
            {"id": fault.id, "action": fault.action, "target": fault.target, **_window(fault, context)}
            for fault in context.faults
            if fault.began >= 0
        ],
    }


def _reading(by_name: Mapping[str, Sequence[MeasurementRow]], names: Mapping[int, str]) -> dict[str, Any]:
    """Return the age of polls (`stale_ms`, see `MeasurementRow`) and how many offsets readers were behind (`lag`). Both
    are given for all readers together. The largest values are also given for 20 pairs of a reader and a partition:
    those with the largest age of a poll.
    """
    worst: dict[tuple[int, int], dict[str, float]] = {}
    for name, key, unit in _READING:
        for each in by_name.get(name, ()):
            if each.a != ALL:
                worst.setdefault((each.a, each.b), {})[key] = round(each.numbers[-1] * unit, 3)
    order = sorted(worst, key=lambda reader: (-worst[reader].get("stale_ms", 0), -worst[reader].get("lag", 0), reader))
    return {
        **{key: _percentiles(by_name.get(name, ()), ALL, unit) for name, key, unit in _READING},
        "readers": [{"proc": proc, "partition": names[part], **worst[proc, part]} for proc, part in order[:20]],
    }


_READING = ((STALE, "stale_ms", LATENCY_UNIT_NS / 1e6), (LAG, "lag", 1))
"""Lists each measure of readers, its name in metrics.json, and its unit there."""
_LATENCIES = {"all": ALL, "without_faults": CALM, "with_faults": FAULTY}


def _transactions(by_name: Mapping[str, Sequence[MeasurementRow]]) -> dict[str, Any]:
    """Return how transactions ended, and how many uncommitted records readers at read_uncommitted got of them."""
    ended = {each.a: int(each.numbers[0]) for each in by_name.get(TRANSACTIONS, ())}
    got = {(each.a, each.b): map(int, each.numbers) for each in by_name.get(UNCOMMITTED, ())}
    offsets = {(each.a, each.b): int(each.numbers[0]) for each in by_name.get(UNCOMMITTED_OFFSETS, ())}

    def amount(data: int, final: int) -> dict[str, int]:
        transactions, reads = got.get((data, final), (0, 0))
        return {"transactions": transactions, "offsets": offsets.get((data, final), 0), "reads": reads}

    return {
        "ended": {end.name.lower(): ended.get(end, 0) for end in TxnOutcome},
        "commit_ms": _latency(by_name.get(COMMIT_LATENCY, ()), 0),
        "read_uncommitted": {
            when: {which: amount(data, final) for which, data in _UNCOMMITTED.items()}
            for final, when in enumerate(("under_load", "final_reads"))
        },
    }


_UNCOMMITTED = {"aborted": ABORTED_DATA, "never_ended": NEVER_ENDED_DATA, "before_commit": EARLY_DATA}


def spread(ordered: Sequence[int]) -> tuple[float, ...]:
    """Return (count, p50, p99, p99.9, maximum) of sorted numbers, at least one."""
    return (len(ordered), *(percentile(ordered, fraction) for fraction in PERCENTILES), ordered[-1])


def percentile(ordered: Sequence[int], fraction: float) -> float:
    """Return the value at `fraction` (0 to 1) of sorted numbers, interpolated between the two nearest numbers."""
    position = fraction * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


def _by_name(measures: Iterable[MeasurementRow]) -> dict[str, list[MeasurementRow]]:
    by_name: dict[str, list[MeasurementRow]] = {}
    for measure in sorted(measures):
        by_name.setdefault(measure.name, []).append(measure)
    return by_name


def _by_process(measures: Iterable[MeasurementRow]) -> dict[int, dict[int, float]]:
    """Return the first of each row's `numbers` as {a: {b: number}}, for example {3: {0: 120.0, 1: 4.0}}. `a` is the
    first process of a producer or transactional id. `b` says which outcome the number counts, such as the status of
    sends.
    """
    found: dict[int, dict[int, float]] = {}
    for each in measures:
        found.setdefault(each.a, {})[each.b] = each.numbers[0]
    return found


def _latency(measures: Iterable[MeasurementRow], flag: int) -> dict[str, float] | None:
    return _percentiles(measures, flag, LATENCY_UNIT_NS / 1e6)


def _percentiles(measures: Iterable[MeasurementRow], flag: int, unit: float) -> dict[str, float] | None:
    for measure in measures:
        if measure.a == flag:
            count, *times = measure.numbers
            names = ("p50", "p99", "p99.9", "max")
            scaled = (round(time * unit, 3) for time in times)
            return {"count": int(count), **dict(zip(names, scaled, strict=True))}
    return None


def _seconds(ns: float, context: MeasurementContext) -> float:
    """Convert a time in ns to seconds since the begin of the run."""
    return round((ns - context.origin_ns) / 1e9, 3)


def _gap(measure: MeasurementRow, context: MeasurementContext) -> dict[str, float]:
    length, begin = measure.numbers
    return {"s": round(length / 1e9, 3), "from_s": _seconds(begin, context)}


def _worst(
    measures: Iterable[MeasurementRow], names: Mapping[int, str], context: MeasurementContext
) -> dict[str, Any] | None:
    parts = [measure for measure in measures if measure.a != OVERALL]
    if not parts:
        return None
    worst = max(parts, key=lambda measure: measure.numbers[0])
    return {"partition": names[worst.a], **_gap(worst, context)}


def _window(fault: RecordedFault, context: MeasurementContext) -> dict[str, float | None]:
    ended = _seconds(fault.ended, context) if fault.ended >= 0 else None
    return {"began_s": _seconds(fault.began, context), "ended_s": ended}


def _fault(
    fault: RecordedFault,
    by_name: Mapping[str, Sequence[MeasurementRow]],
    names: Mapping[int, str],
    context: MeasurementContext,
) -> dict[str, Any]:
    """Return the entry of one fault in metrics.json, such as its longest gap and its recovery time. `recovery_s` is the
    time of the slowest partition; null if a partition that was written to did not recover. `names` maps each
    partition's id to its name.
    """
    gaps = {each.b: each.numbers[0] for each in by_name.get(FAULT_GAP, ()) if each.a == fault.id}
    recovered = {each.b: each.numbers[0] for each in by_name.get(RECOVERY, ()) if each.a == fault.id}
    # -1 means that the partition never recovered, which is slower than any other.
    slowest = max(recovered, key=lambda part: (recovered[part] < 0, recovered[part]), default=None)
    worst = max(gaps, key=lambda part: gaps[part], default=None)
    return {
        "id": fault.id,
        "action": fault.action,
        "target": fault.target,
        **_window(fault, context),
        "recovery_s": round(recovered[slowest] / 1e9, 3) if slowest is not None and recovered[slowest] >= 0 else None,
        "slowest_partition": names[slowest] if slowest is not None else None,
        "longest_gap_s": round(gaps[worst] / 1e9, 3) if worst is not None else None,
        "longest_gap_partition": names[worst] if worst is not None else None,
    }
