"""Sets the signs of each witness: what was seen that may explain it, for `squall.checkers.mechanisms`. Pure.

Both engines derive the signs from the same `RunCircumstances`. The reference engine does it here, with a history in
memory; Spark does it in SQL (`squall.spark_analysis.signs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from squall.checkers import nemesis_log
from squall.checkers.fault_classes import UnknownFault, class_of
from squall.checkers.fault_traits import FORGETS_SYNCS
from squall.checkers.findings import Witness
from squall.checkers.guarantees import FaultClass
from squall.checkers.history.tables import OK, SEND, History, ObservedPartition, RecordedFault
from squall.checkers.history.values import producer_of
from squall.checkers.interruptions import EXPLAINED, interruptions
from squall.checkers.leaderships import EVER, Leaderships
from squall.checkers.mechanisms import BY_EPOCHS, BY_LOST_RECORDS, MechanismSign

BEFORE_NS = 5_000_000_000
"""Is for how long, in ns, a record may have been under way when a disturbance began: records sent earlier are not
affected.
"""
AFTER_NS = 30_000_000_000
"""Is how long after a disturbance, in ns, clients may still resend an unanswered request: Kafka's `request.timeout.ms`.
"""


OTHER_RECORD, OTHER_OFFSET = "inconsistent-offset", "stale-ack"
"""Name the anomalies in which two records conflict. `Witness.other` is the other record's value (OTHER_RECORD), or the
offset at which it was acknowledged (OTHER_OFFSET).
"""
_WITHOUT_OFFSET = {True: MechanismSign.LATER_EPOCH, False: MechanismSign(0), None: MechanismSign.UNPLACED}
"""Maps a result of `Leaderships.explain_without_offset` to a sign. The result says whether a later leader epoch
truncated a record that was acknowledged without an offset; None means that this is not known.
"""
_NOT_BY_TCP = ("duplicate", "reorder")
"""Lists the values of a fault's parameter `act` with which requests arrive twice, or out of order. With TCP alone that
never happens on a connection.
"""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Describes a stretch of time in one partition; part -1: in every partition."""

    part: int
    since: int
    until: int

    def meets(self, part: int, t0: int, t1: int) -> bool:
        """Return whether the window overlaps the time from `t0` to `t1`, in ns, in partition `part`."""
        return self.part in (part, -1) and self.since <= t1 and t0 <= self.until


class PowerLossRange(NamedTuple):
    """Describes the records of a partition that a node lost with its power at `at` ns: from offset `low` to before
    `high`.
    """

    part: int
    low: int
    high: int
    at: int
    sync_failed: bool
    """Is True if an fsync had failed on the node before."""


@dataclass(frozen=True, slots=True)
class RunCircumstances:
    """Holds what happened in a run that may explain anomalies: leader terms, disturbances, power losses and disk
    damage. The signs of witnesses are read from it.
    """

    leaderships: Leaderships = Leaderships()
    disturbed: tuple[TimeWindow, ...] = ()
    """Lists when requests may have failed or stayed unanswered: around each fault, and around each leader change
    (`_around`).
    """
    tampered: tuple[TimeWindow, ...] = ()
    """Lists when a fault delivered Produce requests twice or out of order, which TCP never does. During such a fault, a
    broker may get a record more often than its client sent it.
    """
    contested: tuple[TimeWindow, ...] = ()
    """Lists the times in which two leaders of a partition may have led. A window lasts from the begin of the second
    leader's term to the end of the first leader's term. If the first term ended before the second one began, the
    window's `until` is earlier than its `since`. Such a window concerns only records that were sent before `until` and
    were not yet acknowledged at `since`.
    """
    power_lost: tuple[PowerLossRange, ...] = ()
    power_unknown: str = ""
    """Says why `power_lost` may be incomplete; empty if it is complete."""
    damaged: tuple[tuple[int, int], ...] = ()
    """Holds (partition, when its disk was damaged, in ns); the id -1 means any partition."""
    everywhere: MechanismSign = MechanismSign(0)
    """Combines the signs that every witness gets, because they concern the whole run: MOVED if a partition had more
    than one leader epoch, or if a disk was damaged.
    """
    outputs: bool = False
    """Is True if members of groups wrote output records made from the records that they had read. Then the interruption
    of a member may explain an anomaly (`squall.checkers.interruptions`).
    """

    def signs(self, part: int, off: int, t0: int, t1: int, *, failed: bool, tries: int = -1) -> MechanismSign:
        """Return the signs of what may explain a witness, such as a power loss (`MechanismSign`). The witness's record
        is at offset `off` of partition `part`. It was sent at `t0`, acknowledged at `t1`, and sent `tries` times; each
        of these is -1 if it is not known. `failed` is True if sends of its producer to this partition failed or were
        not answered around that time.
        """
        found, done = self.everywhere, t1 if t1 >= 0 else EVER
        if off < 0 <= t1:
            found |= _WITHOUT_OFFSET[self.leaderships.explain_without_offset(part, t0, t1)]
        elif self.leaderships.cut_of(part, off, t0, t1) < EVER:
            found |= MechanismSign.LATER_EPOCH
        if self.leaderships.changed(part):
            found |= MechanismSign.LED_ANEW
        if any(each.meets(part, t0, done) for each in self.contested):
            found |= MechanismSign.SEVERAL_LED
        if failed or any(each.meets(part, t0, done) for each in self.disturbed):
            found |= MechanismSign.DISTURBED
        untold = tries < 0 and found & MechanismSign.DISTURBED
        if tries > 1 or untold or any(each.meets(part, t0, done) for each in self.tampered):
            found |= MechanismSign.RESENT
        for each in self.power_lost:
            if each.part == part and each.at >= t0 and (off < 0 or each.low <= off < each.high):
                found |= BY_LOST_RECORDS if each.sync_failed else MechanismSign.POWER_LOST
        if any(hit in (part, -1) and at >= t0 for hit, at in self.damaged):
            found |= MechanismSign.DAMAGED
        return found

    def why_unknown(self, need: MechanismSign, found: int = 0) -> str:
        """Return why some of the signs in `need` could not be looked for; empty if all could. `found` has the signs
        that the witness has.
        """
        if need & BY_EPOCHS and self.leaderships.unknown:
            return self.leaderships.unknown
        if need & MechanismSign.LATER_EPOCH and found & MechanismSign.UNPLACED:
            return "at which offset the record was: its acknowledgement has none"
        return self.power_unknown if need & BY_LOST_RECORDS else ""


def circumstances_of(
    leaderships: Leaderships,
    faults: Iterable[RecordedFault],
    partitions: Sequence[ObservedPartition],
    *,
    outputs: bool = False,
) -> RunCircumstances:
    """Return those events of a run that may explain anomalies, such as leader changes, power losses and disk damage.
    `outputs` is True if members of groups wrote output records made from the records that they had read.
    """
    began = [fault for fault in faults if fault.began >= 0]
    parts = {each.name: each.part for each in partitions}
    lost: list[PowerLossRange] = []
    silent: list[int] = []
    damaged = []
    tampered = tuple(
        TimeWindow(-1, fault.began, fault.ended if fault.ended >= 0 else EVER)
        for fault in began
        if fault.params.get("api") == "Produce" and fault.params.get("act") in _NOT_BY_TCP
    )
    windows = [_around(-1, fault.began, fault.ended) for fault in began]
    for fault in began:
        try:
            its_class = class_of(fault.action, fault.fault_class)
        except UnknownFault:  # `classes_of` reports it in the verdict
            continue
        if its_class in (FaultClass.W1, FaultClass.WM):
            for node in fault.resolved:
                found = _lost_by(fault, node, parts, sync_failed=_sync_failed(node, fault.began, began))
                lost += found or ()
                silent += [node] if found is None else []
        elif its_class in (FaultClass.D, FaultClass.DM):
            damaged.append((_damaged_part(fault, parts), fault.began))
    # Reversed, so that the lowest epoch of each partition remains: with it no leader changed.
    first = {each.part: each.epoch for each in reversed(leaderships.rows)}
    windows += [
        _around(each.part, each.since, each.since) for each in leaderships.rows if each.epoch > first[each.part]
    ]
    everywhere = MechanismSign.MOVED if leaderships.moved or damaged else MechanismSign(0)
    nodes = ", ".join(map(str, dict.fromkeys(silent)))
    unknown = f"{nemesis_log.FILE} does not say which records broker {nodes} lost with its power" if nodes else ""
    contested = tuple(_contested(leaderships))
    return RunCircumstances(
        leaderships, tuple(windows), tampered, contested, tuple(lost), unknown, tuple(damaged), everywhere, outputs
    )


def _around(part: int, began: int, ended: int) -> TimeWindow:
    """Return the window of the records that a disturbance may have affected: it begins `BEFORE_NS` before the
    disturbance, and ends `AFTER_NS` after it. `ended` is -1 if the disturbance never ended.
    """
    return TimeWindow(part, began - BEFORE_NS, ended + AFTER_NS if ended >= 0 else EVER)


def _add(windows: list[TimeWindow], new: TimeWindow) -> None:
    """Add one window of a partition. Windows that overlap are joined, because sends may fail by the thousand."""
    if windows and new.meets(new.part, windows[-1].since, windows[-1].until):
        last = windows.pop()
        new = TimeWindow(new.part, min(last.since, new.since), max(last.until, new.until))
    windows.append(new)


def _contested(leaderships: Leaderships) -> Iterator[TimeWindow]:
    last_until: dict[int, int] = {}
    for each in sorted(leaderships.rows, key=attrgetter("since")):
        if each.part in last_until:
            yield TimeWindow(each.part, each.since, min(each.until, last_until[each.part]))
        last_until[each.part] = max(each.until, last_until.get(each.part, -1))


def _sync_failed(node: Any, before: int, faults: Iterable[RecordedFault]) -> bool:
    return any(FORGETS_SYNCS in each.traits and each.began < before and node in each.resolved for each in faults)


def _lost_by(
    fault: RecordedFault, node: Any, parts: Mapping[str, int], *, sync_failed: bool
) -> list[PowerLossRange] | None:
    """Return the ranges of records that one node lost with its power; None if the fault's evidence does not say."""
    try:
        reported: Any = (fault.evidence or {})["lost"]
        # A process may append records until it has ended.
        at = max(fault.began, int(reported.get("ended_ns", -1)))
        logs = reported["nodes"][str(node)]["logs"].items()
        ranges = [(name, int(low), int(high)) for name, (low, high) in logs if name in parts]
        return [PowerLossRange(parts[name], low, high, at, sync_failed) for name, low, high in ranges]
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _damaged_part(fault: RecordedFault, parts: dict[str, int]) -> int:
    """Return the partition whose file a fault damaged; -1 if the fault's evidence names no partition of the history."""
    damaged = (fault.evidence or {}).get("damaged")
    path = str(damaged.get("path", "")) if isinstance(damaged, dict) else ""
    return parts.get(path.rpartition("/")[0].rpartition("/")[2], -1)


def signed(history: History, of: RunCircumstances, witnesses: Sequence[Witness]) -> Iterator[Witness]:
    """Yield the witnesses with their `signs` set: bits for what was seen that may explain a witness, such as a power
    loss (`MechanismSign`). `of` holds the run's events from which signs follow.
    """
    # Most histories show no witness, and are not read once more for nothing.
    sent = {(row.part, row.val): row for row in history.records.rows() if row.kind == SEND} if witnesses else {}
    failed: dict[tuple[int, int], list[TimeWindow]] = {}
    for row in sent.values():
        if row.st != OK:
            _add(failed.setdefault((row.part, producer_of(row.val)), []), _around(row.part, row.t0, row.t1))
    acknowledged = [row for row in sent.values() if row.st == OK and row.off >= 0]
    cuts: dict[tuple[int, int], int] = {}
    if any(each.anomaly == OTHER_OFFSET for each in witnesses):
        for row in acknowledged:
            if (cut := of.leaderships.cut_of(row.part, row.off, row.t0, row.t1)) < EVER:
                cuts[row.part, row.off] = min(cut, cuts.get((row.part, row.off), EVER))
    # Only these witnesses need the bounds, which cost a pass over all sends for each term.
    if any(each.off < 0 for each in witnesses):
        of = replace(of, leaderships=of.leaderships.bounded_by(acknowledged))
    explained = interruptions(history) if any(each.anomaly in EXPLAINED for each in witnesses) else ()
    for each in witnesses:
        send = sent.get((each.part, each.val))
        t0, t1, tries = (send.t0, send.t1, send.tries) if send else (-1, -1, -1)
        done = t1 if t1 >= 0 else EVER
        its_failed = any(one.meets(each.part, t0, done) for one in failed.get((each.part, producer_of(each.val)), ()))
        signs = of.signs(each.part, each.off, t0, t1, failed=its_failed, tries=tries)
        if each.anomaly == OTHER_OFFSET and cuts.get((each.part, each.other), EVER) <= each.off:
            signs |= MechanismSign.LATER_EPOCH
        if each.anomaly == OTHER_RECORD and (other := sent.get((each.part, each.other))):
            # Not where it was acknowledged: a record that was sent twice may have been read at another offset.
            until = other.t1 if other.st == OK else -1
            if of.leaderships.cut_of(each.part, each.off, other.t0, until) < EVER:
                signs |= MechanismSign.LATER_EPOCH
        if (each.anomaly, each.proc, each.val) in explained:
            signs |= MechanismSign.INTERRUPTED
        yield each._replace(signs=int(signs))
