"""Finds zombie-write: a record became visible although its producer had been fenced before the record was sent, or
committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import FINAL, READS, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, has_transactions
from squall.checkers.anomalies.logs import logs_of
from squall.checkers.anomalies.transactions import committed_reads
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import History, InitProducerIdResult, Txn

ANOMALIES = (
    AnomalyDefinition(
        "zombie-write",
        AnomalyFamily.TRANSACTIONS,
        "a read_committed reader got a record that was sent, or whose commit was first asked for, after another "
        "producer had taken over its transactional id",
        source="KIP-98: InitProducerId fences all earlier producers of its id, and ends their transactions",
        other="the process that had taken over",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITTED_READS),
        meaning="records of fenced producers became visible",
        meaning_of_one="record of a fenced producer became visible",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each visible record that was sent, or whose commit was requested, after another process with
    the same transactional id had got an answer to InitProducerId.
    """
    inits = seen.view(_inits_of)
    sent_at = {(value.part, value.val): value.t0 for log in seen.view(logs_of) for value in log.values.values()}
    for got in seen.view(committed_reads):
        fence = _fenced(got.txn, inits.get(got.txn.id, []))
        if fence is not None and max(sent_at.get((got.part, got.val), -1), got.txn.te) > fence.t:
            evidence = FINAL if got.final else READS
            yield Witness("zombie-write", evidence, got.part, got.off, got.val, got.txn.op, got.txn.proc, fence.proc)


def _fenced(txn: Txn, inits: list[InitProducerIdResult]) -> InitProducerIdResult | None:
    """Return the InitProducerId with which another process fenced the producer of this transaction: the first one for
    its transactional id that was requested after the producer had got its producer id. None if there was none.

    The order of two requests that were under way at the same time is not known, so these do not count.
    """
    own = max((init.t for init in inits if init.proc == txn.proc and init.t <= txn.t0), default=None)
    if own is None:
        return None
    return min((init for init in inits if init.proc != txn.proc and init.t0 >= own), default=None)


def _inits_of(history: History) -> dict[int, list[InitProducerIdResult]]:
    found: dict[int, list[InitProducerIdResult]] = {}
    for init in (each for each in history.inits.rows() if each.producer_id >= 0):
        found.setdefault(init.id, []).append(init)
    return found


SQL = """
with given as (select * from inits where producer_id >= 0),
own as (
  select t.op txn, t.id, t.proc, max(i.t) since
  from txns t join given i on i.id = t.id and i.proc = t.proc and i.t <= t.t0
  group by t.op, t.id, t.proc),
fence as (
  select o.txn, min(struct(i.t, i.proc)) by
  from own o join given i on i.id = o.id and i.proc <> o.proc and i.t0 >= o.since
  group by o.txn)
select 'zombie-write' anomaly, if(c.final, 'final', 'reads') evidence, c.part, c.off, c.val, c.txn op,
       bigint(c.txn_proc) proc, bigint(by.proc) other
from committed_reads c join fence f on f.txn = c.txn join standing s on s.part = c.part and s.val = c.val
where s.t0 > by.t or c.te > by.t
"""


def _queries(history: ConversionResult) -> Queries:
    if not has_transactions(history):
        return []
    return [WitnessQuery(SQL, ("txns", "inits", "committed_reads", "standing"))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
