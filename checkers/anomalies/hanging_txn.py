"""hanging-txn: after everything was healed a last stable offset stands still for longer than a transaction may last."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.anomalies.anomaly import Anomaly, Check, Family, Need, Seen
from checkers.anomalies.answers import answers
from checkers.findings import Witness
from checkers.history.tables import SEND, History, Told

ANOMALIES = (
    Anomaly(
        "hanging-txn",
        Family.TRANSACTIONS,
        "in the final reads the last stable offset of a partition stays below the high watermark, and has not moved "
        "for longer than the longest time-out of the transactions that wrote there",
        source="KIP-890: Transactions Server-Side Defense (hanging transactions); KAFKA-14402",
        other="the high watermark",
        needs=(Need.TRANSACTIONS, Need.FINAL_READS),
        meaning="partitions cannot be read to their end at read_committed",
    ),
)


def find(seen: Seen) -> Iterator[Witness]:
    """By what brokers reported since the first final read of a partition began: everything is healed by then."""
    timeouts = _timeouts_ns(seen.history)
    of_part: dict[int, list[Told]] = {}
    for told in seen.view(answers):
        if told.part in timeouts and told.final and told.lso >= 0 and told.hw >= 0:
            of_part.setdefault(told.part, []).append(told)
    for part, answered in of_part.items():
        last = max(answered, key=lambda told: (told.t1, told.op, told.idx))
        since = min(told.t1 for told in answered if told.lso == last.lso)
        if last.lso < last.hw and last.t1 - since > timeouts[part]:
            yield Witness("hanging-txn", "", part, last.lso, -1, last.op, -1, last.hw)


def _timeouts_ns(history: History) -> dict[int, int]:
    """Partition -> the longest time-out of the transactions that wrote to it."""
    of_txn = {txn.op: txn.timeout_ms * 1_000_000 for txn in history.txns.rows()}
    found: dict[int, int] = {}
    for member in history.members.rows():
        if member.kind == SEND:
            found[member.part] = max(found.get(member.part, 0), of_txn[member.txn])
    return found


CHECK = Check(__name__, ANOMALIES, find)
