"""Finds hanging-txn: after healing a last stable offset does not move for longer than a transaction may last."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.answers import answers
from squall.checkers.findings import Witness
from squall.checkers.history.tables import SEND, History, ReportedBounds
from squall.checkers.history.values import AFTER_HEALING

LOOKED_FOR_EVERY_MS = 10_000
"""Is Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms: a transaction may outlive its time-out by
this many ms.
"""

NAME = "hanging-txn"

ANOMALIES = (
    AnomalyDefinition(
        NAME,
        AnomalyFamily.TRANSACTIONS,
        "in the final reads the last stable offset of a partition is below the high watermark, and since healing it "
        "has not moved for longer than a transaction may last: the longest time-out of the transactions that wrote "
        "there, and ten seconds more, within which a coordinator notices the time-out",
        source="KIP-890: Transactions Server-Side Defense (hanging transactions); KAFKA-14402",
        other="the high watermark",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.FINAL_READS),
        meaning="partitions cannot be read to their end at read_committed",
        meaning_of_one="partition cannot be read to its end at read_committed",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each partition with a hanging transaction.

    The last stable offsets come from responses to any client since the harness wrote to the healed cluster. If the
    harness did not write, only responses to final reads count.
    """
    timeouts, healed = _timeouts_ns(seen.history), _healed_ns(seen.history)
    of_part: dict[int, list[ReportedBounds]] = {}
    for reported in seen.view(answers):
        since_healed = reported.final or (healed is not None and reported.t0 >= healed)
        if reported.part in timeouts and since_healed and reported.lso >= 0 and reported.hw >= 0:
            of_part.setdefault(reported.part, []).append(reported)
    for part, answered in of_part.items():
        last = max(answered, key=lambda reported: (reported.t1, reported.op, reported.idx))
        since = min(reported.t1 for reported in answered if reported.lso == last.lso)
        # Only a final read shows that nothing moved after the last response.
        if last.final and last.lso < last.hw and last.t1 - since > timeouts[part]:
            yield Witness(NAME, "", part, last.lso, -1, last.op, -1, last.hw)


def _healed_ns(history: History) -> int | None:
    """Return when the harness began to write to the healed cluster, in ns; None if it never did."""
    harness = {each.proc for each in history.processes if AFTER_HEALING in each.settings}
    sends = (record for record in history.records.rows() if record.kind == SEND and record.proc in harness)
    return min((record.t0 for record in sends), default=None)


def _timeouts_ns(history: History) -> dict[int, int]:
    """Return, for each partition, the longest time in ns that a transaction which wrote to it may last."""
    lasts = {txn.op: (txn.timeout_ms + LOOKED_FOR_EVERY_MS) * 1_000_000 for txn in history.txns.rows()}
    found: dict[int, int] = {}
    for member in history.members.rows():
        if member.kind == SEND:
            found[member.part] = max(found.get(member.part, 0), lasts[member.txn])
    return found


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
