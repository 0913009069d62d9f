"""Finds hanging-txn: after healing a last stable offset does not move for longer than a transaction may last."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.answers import answers
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, has_transactions
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
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


SQL = f"""
with healed as (
  select min(r.t0) ns from records r join processes p on p.proc = r.proc
  where r.kind = 0 and contains(p.settings, '"{AFTER_HEALING}"')),
answers as (
  select told.* from told cross join healed
  where (final > 0 or coalesce(t0 >= ns, false)) and lso >= 0 and hw >= 0),
longest as (select part, (max(timeout_ms) + {LOOKED_FOR_EVERY_MS}L) * 1000000L ns from txn_values group by part),
last as (select part, max(struct(t1, op, idx, lso, hw, final)) at from answers group by part),
since as (
  select a.part, min(a.t1) t1 from answers a join last l on l.part = a.part and l.at.lso = a.lso group by a.part)
select 'hanging-txn' anomaly, '' evidence, l.part, l.at.lso off, -1L val, l.at.op op, -1L proc, l.at.hw other
from last l join since s on s.part = l.part join longest t on t.part = l.part
where l.at.final > 0 and l.at.lso < l.at.hw and l.at.t1 - s.t1 > t.ns
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("told", "txn_values", "records", "processes"))] if has_transactions(history) else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
