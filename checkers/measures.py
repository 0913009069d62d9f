"""Computes measures for the reference engine, by simple algorithms. `squall.checkers.metrics` defines the measures."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from squall.checkers import measured_producers, measured_transactions
from squall.checkers.gaps import Gap, longest, unanswered, within
from squall.checkers.history.tables import (
    LISTED,
    OK,
    SEND,
    ClientProcess,
    History,
    RecordedFault,
    RecordRow,
    ReportedBounds,
)
from squall.checkers.history.values import producer_of, sequence_of
from squall.checkers.metrics import (
    ACKED,
    AFTERWARDS,
    ALL,
    ALWAYS,
    CALM,
    CALM_GAP,
    CALM_READER_GAP,
    FAULT_GAP,
    FAULTY,
    FINAL_READ,
    FRESH_GAP,
    GAP,
    HEALED_GAP,
    LAG,
    LATENCY,
    LATENCY_UNIT_NS,
    LOAD,
    OUTCOMES,
    OVERALL,
    READER_GAP,
    READS,
    RECOVERY,
    SECOND,
    SENDS,
    STALE,
    UNPLACED,
    MeasurementContext,
    MeasurementRow,
    OwnedSpan,
    ReaderPartition,
    percentile,
    spread,
    waiting_for,
)
from squall.checkers.nemesis_log import FOREVER, windows


def measure(history: History, context: MeasurementContext) -> list[MeasurementRow]:
    """Return every measure of a history, sorted."""
    sent = [record for record in history.records.rows() if record.kind == SEND]
    sends = [send for send in sent if producer_of(send.val) not in context.afterwards]
    after = [send for send in sent if producer_of(send.val) in context.afterwards]
    reported = list(history.told.rows())
    measures = [
        *_latencies(sends, context),
        *_gaps(sends, after, context),
        *_recoveries(sends, context.faults),
        *_reader_gaps(reported, history.processes, waiting_for(history.holds.rows()), context),
        *_by_second(sends, reported, context.origin_ns),
        *_spread(STALE, _ages(reported)),
        *_spread(LAG, _lags(reported)),
        *_acked(sends, LOAD),
        *_acked(after, AFTERWARDS),
        *_unplaced(sends),
        *measured_transactions.measure(history),
        *measured_producers.measure(history, sends, context),
    ]
    return sorted(measures)


def _acked(sends: list[RecordRow], when: int) -> Iterator[MeasurementRow]:
    acked = Counter(send.part for send in sends if send.st == OK)
    return (MeasurementRow(ACKED, part, when, (count,)) for part, count in acked.items())


def _unplaced(sends: list[RecordRow]) -> Iterator[MeasurementRow]:
    found: dict[tuple[int, int], list[int]] = {}
    for send in sends:
        if send.st == OK and send.off < 0:
            found.setdefault((send.part, producer_of(send.val)), []).append(sequence_of(send.val))
    return (MeasurementRow(UNPLACED, *place, (len(which), min(which))) for place, which in found.items())


def _latency(send: RecordRow) -> int:
    return (send.t1 - send.t0) // LATENCY_UNIT_NS


def _latencies(sends: list[RecordRow], context: MeasurementContext) -> Iterator[MeasurementRow]:
    faulty = windows(context.faults)
    by_flag: dict[int, list[int]] = {}
    outcomes: Counter[tuple[int, int]] = Counter()
    for send in sends:
        hit = any(send.t0 <= ended and send.t1 >= began for began, ended in faulty)
        flag = FAULTY if hit else CALM
        outcomes[flag, send.st] += 1
        if send.st == OK:
            by_flag.setdefault(flag, []).append(_latency(send))
            by_flag.setdefault(ALL, []).append(_latency(send))
    yield from (MeasurementRow(OUTCOMES, *key, (count,)) for key, count in outcomes.items())
    for flag, times in by_flag.items():
        times.sort()
        yield MeasurementRow(LATENCY, flag, 0, spread(times))


def _gaps(sends: list[RecordRow], after: list[RecordRow], context: MeasurementContext) -> Iterator[MeasurementRow]:
    fresh: dict[int, list[int]] = {}
    for send in after:
        if send.st == OK:
            fresh.setdefault(send.part, []).append(send.t1)
    groups: dict[int, list[RecordRow]] = {}
    for send in sends:
        groups.setdefault(send.part, []).append(send)
        groups.setdefault(OVERALL, []).append(send)
    for group, members in groups.items():
        gaps = unanswered(members)
        yield MeasurementRow(GAP, group, 0, longest(gaps))
        healed = within(gaps, context.healed_ns, FOREVER) if context.healed_ns >= 0 else []
        if healed:
            yield MeasurementRow(HEALED_GAP, group, 0, longest(healed))
        if calm := [gap for begin, end in context.between for gap in within(gaps, begin, end)]:
            yield MeasurementRow(CALM_GAP, group, 0, longest(calm))
        served = [
            (min(first), gap[1])
            for gap in healed
            if (first := [t for t in fresh.get(group, ()) if gap[0] <= t < gap[1]])
        ]
        if served:
            yield MeasurementRow(FRESH_GAP, group, 0, longest(served))
        for fault in context.faults:
            over = [gap for gap in gaps if 0 <= fault.began <= gap[1] and (gap[0] <= fault.ended or fault.ended < 0)]
            if over and group != OVERALL:
                yield MeasurementRow(FAULT_GAP, fault.id, group, longest(over))


def _recoveries(sends: list[RecordRow], faults: Iterable[RecordedFault]) -> Iterator[MeasurementRow]:
    for fault in faults:
        first: dict[int, int] = {}
        for send in sends:
            if 0 <= fault.began <= fault.whole_since <= send.t0:
                # -1 remains if no send was acknowledged: the partition did not recover.
                known = first.setdefault(send.part, -1)
                if send.st == OK:
                    took = send.t1 - fault.began
                    first[send.part] = took if known < 0 else min(known, took)
        yield from (MeasurementRow(RECOVERY, fault.id, part, (took,)) for part, took in first.items())


def _reader_gaps(
    reported: list[ReportedBounds],
    processes: Iterable[ClientProcess],
    held: Mapping[ReaderPartition, Sequence[OwnedSpan]],
    context: MeasurementContext,
) -> Iterator[MeasurementRow]:
    """Yield the longest gaps without progress of each reader: after healing, and in times without faults.

    A response is progress if it has records. It is also progress if it says that there are no more records, unless some
    client had already learned of a later end from the same leader epoch: within one epoch the end only grows. A reader
    is measured from its first poll until the history last mentions it. A member of a group is measured only while it
    owns the partition, each ownership by itself. Processes that do not read by themselves are not measured
    (`ClientProcess.keeps_reading`).
    """
    knows = _ends_of_epochs(reported)
    last = {process.proc: process.last_t for process in processes if process.keeps_reading}
    points: dict[tuple[int, int, OwnedSpan], list[int]] = {}
    for each in reported:
        if each.kind >= LISTED or each.final or each.proc not in last:
            continue
        waits = held.get((each.proc, each.part), (ALWAYS,))
        wait = waits[max(bisect_right(waits, each.t0, key=lambda wait: wait[0]) - 1, 0)]
        times = points.setdefault((each.proc, each.part, wait), [each.t0])
        times[0] = min(times[0], each.t0)
        limit = each.lso if each.iso == 1 else each.hw
        if each.st == OK and (each.records or (each.position >= limit and not knows(each))):
            times.append(each.t1)
    gaps: dict[ReaderPartition, list[Gap]] = {}
    for (proc, part, wait), (began, *progress) in points.items():
        if (end := min(last[proc], wait[1])) > began:
            times = sorted(t for t in progress if began < t < end)
            gaps.setdefault((proc, part), []).extend(pairwise([began, *times, end]))
    for place, waited in gaps.items():
        if healed := within(waited, context.healed_ns, FOREVER) if context.healed_ns >= 0 else []:
            yield MeasurementRow(READER_GAP, *place, longest(healed))
        if calm := [gap for begin, end in context.between for gap in within(waited, begin, end)]:
            yield MeasurementRow(CALM_READER_GAP, *place, longest(calm))


def _ends_of_epochs(reported: list[ReportedBounds]) -> Callable[[ReportedBounds], bool]:
    """Return a function that takes a response and returns whether the log certainly had more records for its reader. It
    had if, before the request was sent, some client had learned of an end of the log above the position to which the
    response moved the reader. The end and the response must be of the same leader epoch. The end is the high watermark;
    for readers at read_committed it is the last stable offset.
    """
    ends: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for each in reported:
        for iso, end in enumerate((each.hw, each.lso)):
            if each.epoch >= 0 and end >= 0:
                ends.setdefault((each.part, each.epoch, iso), []).append((end, each.t1))
    first_known = {key: _first_known(known) for key, known in ends.items()}

    def at(each: ReportedBounds) -> bool:
        first = first_known.get((each.part, each.epoch, each.iso))
        since = first(each.position) if first is not None else None
        return since is not None and since <= each.t0

    return at


def _by_second(sends: list[RecordRow], reported: list[ReportedBounds], origin: int) -> Iterator[MeasurementRow]:
    ended = Counter(((send.t1 - origin) // 10**9, send.st) for send in sends if send.t1 >= 0)
    yield from (MeasurementRow(SENDS, second, st, (count,)) for (second, st), count in ended.items())
    reads: Counter[int] = Counter()
    shown: Counter[tuple[int, int]] = Counter()
    latencies: dict[int, list[int]] = {}
    for each in reported:
        if each.records:
            reads[(each.t1 - origin) // 10**9] += each.records
            if each.final:
                shown[each.part, each.iso] += each.records
    for send in sends:
        if send.st == OK:
            latencies.setdefault((send.t1 - origin) // 10**9, []).append(_latency(send))
    yield from (MeasurementRow(READS, second, 0, (count,)) for second, count in reads.items())
    yield from (MeasurementRow(FINAL_READ, *place, (count,)) for place, count in shown.items())
    for second, times in latencies.items():
        times.sort()
        numbers = (len(times), percentile(times, 0.5), percentile(times, 0.99), times[-1])
        yield MeasurementRow(SECOND, second, 0, numbers)


Reader = tuple[int, int]
"""Identifies a reader in one partition: (process, partition)."""


def _ages(reported: list[ReportedBounds]) -> Iterator[tuple[Reader, int]]:
    """Yield (reader, age) of each poll, in units of LATENCY_UNIT_NS. The age is the time from when some client first
    saw a high watermark above the position to which the poll moved the reader, until the poll began; 0 if no client had
    seen one.
    """
    ends: dict[int, list[tuple[int, int]]] = {}
    for each in reported:
        if each.hw >= 0:
            ends.setdefault(each.part, []).append((each.hw, each.t1))
    for part, known in ends.items():
        first_known = _first_known(known)
        for each in reported:
            if each.part == part and each.kind < LISTED and not each.final and each.st == OK:
                since = first_known(each.position)
                yield (each.proc, part), max(0, each.t0 - since) // LATENCY_UNIT_NS if since is not None else 0


def _first_known(known: list[tuple[int, int]]) -> Callable[[int], int | None]:
    """Return a function of a position: it returns when an offset above the position was first reported, in ns; None if
    none ever was. `known` holds (offset, when it was reported, in ns).
    """
    known.sort()
    offsets = [end for end, _ in known]
    earliest = [t for _, t in known]
    # From the end on: `earliest[index]` becomes the first time at which any end from `offsets[index]` on was known.
    for index in range(len(earliest) - 2, -1, -1):
        earliest[index] = min(earliest[index], earliest[index + 1])

    def at(position: int) -> int | None:
        index = bisect_right(offsets, position)
        return earliest[index] if index < len(earliest) else None

    return at


def _lags(reported: list[ReportedBounds]) -> Iterator[tuple[Reader, int]]:
    """Yield, for each latest offset that a reader requested, the reader and how many offsets it was behind."""
    positions: dict[Reader, int] = {}
    for each in sorted(reported, key=lambda each: (each.op, each.idx)):
        reader = each.proc, each.part
        if each.kind < LISTED:
            if not each.final:
                positions[reader] = each.position
        elif each.kind == LISTED and reader in positions:
            yield reader, max(0, max(each.hw, each.lso) - positions[reader])


def _spread(name: str, values: Iterable[tuple[Reader, int]]) -> Iterator[MeasurementRow]:
    """Yield measurements with the spread (count, percentiles, maximum) of the values: for each reader, and for all
    readers together.
    """
    groups: dict[Reader, list[int]] = {}
    for reader, value in values:
        groups.setdefault(reader, []).append(value)
        groups.setdefault((ALL, ALL), []).append(value)
    for (proc, part), members in groups.items():
        members.sort()
        yield MeasurementRow(name, proc, part, spread(members))
