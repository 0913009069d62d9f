"""Where the records stand: what was sent and acknowledged against what readers found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from checkers.catalog import ACKS, FINAL, READS
from checkers.findings import Witness
from checkers.history.tables import FAIL, INFO, OK, POLL, SEND, History, Partition, Record, producer_of

EVIDENCE = (ACKS, READS, FINAL)
"""By how good it is: 0, 1, 2."""


@dataclass(slots=True)
class Value:
    """All that the history says of one value in one partition."""

    part: int
    val: int
    sent: bool = False
    st: int = INFO
    op: int = -1
    """Of the send; of the first poll where nobody sent it there."""
    t0: int = -1
    t1: int = -1
    acked_at: int = -1
    """The acknowledged offset; -1 where there was none."""
    key: int = -1
    read_at: set[int] = field(default_factory=set)
    final_at: set[int] = field(default_factory=set)
    """Those of `read_at` at which a final read found it."""
    first_read: int = -1
    """When the first read that returned it came back."""

    @property
    def acked(self) -> bool:
        """The broker promised to keep it."""
        return self.sent and self.st == OK

    @property
    def stands(self) -> tuple[int, int] | None:
        """(offset, evidence) by the best evidence there is; the lowest offset where there are several."""
        if self.final_at:
            return min(self.final_at), 2
        if self.read_at:
            return min(self.read_at), 1
        return (self.acked_at, 0) if self.acked_at >= 0 else None


@dataclass(slots=True)
class Log:
    """One partition as seen by everybody together."""

    partition: Partition
    values: dict[int, Value] = field(default_factory=dict)
    at: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Offset -> value -> the best evidence (0, 1, 2) that it is there, and the operation that says so: the send that
    was acknowledged there, else the first that read it there."""
    corrupt: dict[int, int] = field(default_factory=dict)
    """Offset -> the first operation that read something there that does not verify."""
    corrupt_finally: set[int] = field(default_factory=set)
    seen: int = -1
    """The highest offset that any reader saw."""


def logs_of(history: History) -> list[Log]:
    """What all operations together say of each partition, by partition."""
    logs = {partition.part: Log(partition) for partition in history.partitions}
    for record in history.records.rows():
        if record.kind == SEND:
            _add_send(logs[record.part], record)
        elif record.kind == POLL:
            _add_read(logs[record.part], record)
    return list(logs.values())


def _add_send(log: Log, record: Record) -> None:
    value = log.values.setdefault(record.val, Value(record.part, record.val))
    value.sent, value.st, value.op, value.key = True, record.st, record.op, record.key
    value.t0, value.t1 = record.t0, record.t1
    if record.off >= 0:
        value.acked_at = record.off
        there = log.at.setdefault(record.off, {})
        there[record.val] = (there.get(record.val, (0, 0))[0], record.op)


def _add_read(log: Log, record: Record) -> None:
    log.seen = max(log.seen, record.off)
    if record.val < 0:
        log.corrupt[record.off] = min(record.op, log.corrupt.get(record.off, record.op))
        if record.final:
            log.corrupt_finally.add(record.off)
        return
    value = log.values.setdefault(record.val, Value(record.part, record.val))
    value.read_at.add(record.off)
    if record.final:
        value.final_at.add(record.off)
    if not value.sent:
        value.op = record.op if value.op < 0 else min(value.op, record.op)
    value.first_read = record.t1 if value.first_read < 0 else min(value.first_read, record.t1)
    there = log.at.setdefault(record.off, {})
    level, op = there.get(record.val, (0, record.op))
    acked_here = value.acked_at == record.off
    there[record.val] = (max(level, 2 if record.final else 1), op if acked_here else min(op, record.op))


def find(history: History) -> Iterator[Witness]:
    """All anomalies of this module."""
    for log in logs_of(history):
        yield from lost(log)
        yield from duplicates(log)
        yield from inconsistent_offsets(log)
        yield from phantoms(log)
        yield from corrupt(log)
        yield from wrong_offsets(log)
        yield from send_reorders(log)
        yield from stale_acks(log)


def _witness(name: str, value: Value, off: int, other: int, evidence: str = "") -> Witness:
    return Witness(name, evidence, value.part, off, value.val, value.op, producer_of(value.val), other)


# ------------------------------------------------------------------------------------------------------------- loss


def lost(log: Log) -> Iterator[Witness]:
    """lost-write and unseen.

    A send without an acknowledgement counts once a reader got it: readers get only what is committed. One that
    definitely failed never counts.
    """
    superseded = _last_of_key(log)
    for value in log.values.values():
        if not value.sent or value.final_at or not (value.acked or (value.st == INFO and value.read_at)):
            continue
        off = value.acked_at if value.acked_at >= 0 else max(value.read_at, default=-1)
        since = value.t1 if value.acked else value.first_read
        if not _judged(log.partition, off, since) or off in log.corrupt_finally:
            continue
        if value.key >= 0 and superseded.get(value.key, -1) > off:
            continue
        # Without an offset it cannot be placed: the worse name.
        yield _witness("lost-write" if off <= log.seen else "unseen", value, off, log.seen)


def _judged(partition: Partition, off: int, since: int) -> bool:
    """Whether a final read would have shown a record at `off`, known to be committed at `since`.

    Either a final reader went past that offset, or it read to the end, and the record was in before it began.
    """
    if 0 <= off < partition.judged_from:
        return False
    passed = off >= 0 and partition.cover_from <= off < partition.cover_to
    return passed or since <= partition.cover_t0


def _last_of_key(log: Log) -> dict[int, int]:
    """Key -> the highest offset at which a final read found a record of it. Compacted partitions only."""
    last: dict[int, int] = {}
    for value in log.values.values():
        if value.key >= 0 and value.final_at:
            last[value.key] = max(last.get(value.key, -1), max(value.final_at))
    return last


# ------------------------------------------------------------------------------------------------------ wrong places


def duplicates(log: Log) -> Iterator[Witness]:
    """One value read at two offsets. Final reads alone are the better evidence."""
    for value in log.values.values():
        for places, evidence in ((value.final_at, FINAL), (value.read_at, READS)):
            if len(places) > 1:
                yield _witness("duplicate", value, max(places), min(places), evidence)
                break


def inconsistent_offsets(log: Log) -> Iterator[Witness]:
    """One offset with two values: the one with the least evidence is the one that was displaced."""
    for off, there in log.at.items():
        if len(there) > 1:
            ranked = sorted((level, val, op) for val, (level, op) in there.items())
            (_, val, op), second_best, (_, stands, _) = ranked[0], ranked[-2][0], ranked[-1]
            where = (log.partition.part, off, val, op, producer_of(val))
            yield Witness("inconsistent-offset", EVIDENCE[second_best], *where, stands)


def phantoms(log: Log) -> Iterator[Witness]:
    """Read, but never sent to this partition."""
    for value in log.values.values():
        if not value.sent:
            yield Witness("phantom", "", value.part, min(value.read_at), value.val, value.op, -1, -1)


def corrupt(log: Log) -> Iterator[Witness]:
    """A record whose payload did not verify: once for each offset."""
    for off, op in log.corrupt.items():
        yield Witness("corrupt", "", log.partition.part, off, -1, op, -1, -1)


def wrong_offsets(log: Log) -> Iterator[Witness]:
    """Acknowledged at one offset, found at others only. What final reads found outweighs what others did.

    What stood below `judged_from` may have been removed, as configured: a copy elsewhere then proves nothing.
    """
    for value in log.values.values():
        places, evidence = (value.final_at, FINAL) if value.final_at else (value.read_at, READS)
        if value.acked_at >= log.partition.judged_from and places and value.acked_at not in places:
            yield _witness("wrong-offset", value, value.acked_at, min(places), evidence)


# ------------------------------------------------------------------------------------------------------------ order


def send_reorders(log: Log) -> Iterator[Witness]:
    """Each record of a producer against the one it handed over just before, by where they stand.

    Where the acknowledged place is below `judged_from`, and final reads find the record at others only, it stood there,
    and what they find is a copy that came later.
    """
    before: dict[int, tuple[int, int]] = {}
    for value in sorted(_sent(log), key=attrgetter("op")):
        stands = value.stands
        if stands is None:
            continue
        if 0 <= value.acked_at < log.partition.judged_from and value.final_at and value.acked_at not in value.final_at:
            stands = (value.acked_at, 1 if value.acked_at in value.read_at else 0)
        off, level = stands
        producer = producer_of(value.val)
        if producer in before and off < before[producer][0]:
            other, other_level = before[producer]
            yield _witness("send-reorder", value, off, other, EVIDENCE[min(level, other_level)])
        before[producer] = stands


def stale_acks(log: Log) -> Iterator[Witness]:
    """Each acknowledged offset against the highest one acknowledged before that send was invoked.

    Where both records stand where they were acknowledged, the final reads prove it. Else one of the two was lost: this
    one, or another producer's.
    """
    acks = sorted((value.t1, value.acked_at, value.acked_at in value.final_at) for value in _sent(log) if value.acked)
    highest = highest_standing = -1
    at = 0
    for value in sorted(_sent(log), key=attrgetter("t0", "op")):
        while at < len(acks) and acks[at][0] < value.t0:
            _, off, standing = acks[at]
            highest = max(highest, off)
            highest_standing = max(highest_standing, off if standing else -1)
            at += 1
        if value.acked_at < 0:
            continue
        stands = value.acked_at in value.final_at
        if stands and value.acked_at <= highest_standing:
            yield _witness("stale-ack", value, value.acked_at, highest_standing, FINAL)
        elif value.acked_at <= highest:
            witness = _witness("stale-ack", value, value.acked_at, highest, ACKS)
            yield witness._replace(proc=-1) if stands else witness


def _sent(log: Log) -> Iterable[Value]:
    return (value for value in log.values.values() if value.sent and value.st != FAIL)
