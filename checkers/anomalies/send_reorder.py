"""send-reorder: a producer's records in another order than it handed them over in."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from checkers.anomalies.anomaly import JEPSEN, Anomaly, Check, Family, Need, Seen
from checkers.anomalies.logs import EVIDENCE, Log, logs_of, sent, witness
from checkers.findings import Witness
from checkers.history.values import producer_of

ANOMALIES = (
    Anomaly(
        "send-reorder",
        Family.DATA,
        "one producer's records to a partition stand in another order than they were handed over in",
        source=f"{JEPSEN}; Kafka documentation, design: messages of a producer are appended in the order they are sent",
        jepsen="nonmonotonic-send",
        other="the offset of the record handed over before it",
        needs=(Need.SENDS,),
        meaning="records stand in another order than they were sent in",
        meaning_of_one="record stands in another order than it was sent in",
    ),
)


def find(seen: Seen) -> Iterator[Witness]:
    """In each partition."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: Log) -> Iterator[Witness]:
    """Each record of a producer against the one it handed over just before, by where they stand.

    Where the acknowledged place is below `judged_from`, and final reads find the record at others only, it stood there,
    and what they find is a copy that came later. Where the log has lost its beginning and the record has a copy behind
    the one before it, both were sent again together, and the first copy of the one before it may be gone.
    """
    before: dict[int, tuple[int, int]] = {}
    for value in sorted(sent(log), key=attrgetter("op")):
        stands = value.stands
        if stands is None:
            continue
        if 0 <= value.acked_at < log.partition.judged_from and value.final_at and value.acked_at not in value.final_at:
            stands = (value.acked_at, 1 if value.acked_at in value.read_at else 0)
        off, level = stands
        producer = producer_of(value.val)
        other, other_level = before.get(producer, (-1, 0))
        if off < other and not (log.partition.judged_from and max(value.read_at, default=-1) > other):
            yield witness("send-reorder", value, off, other, EVIDENCE[min(level, other_level)])
        before[producer] = stands


CHECK = Check(__name__, ANOMALIES, find)
