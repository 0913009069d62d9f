"""Finds stale-ack: an acknowledged offset is not above the offsets that were acknowledged before."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from squall.checkers.anomalies.anomaly import ACKS, FINAL, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.logs import ObservedLog, logs_of, sent, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

ANOMALIES = (
    AnomalyDefinition(
        "stale-ack",
        AnomalyFamily.DATA,
        "an acknowledged offset is not above every offset acknowledged before that send was invoked",
        source="Kafka documentation, design, Replication: a log is appended to at its end",
        other="the highest offset acknowledged before",
        needs=(HistoryNeed.ACKS,),
        meaning="acknowledged offsets are not above those acknowledged before",
        meaning_of_one="acknowledged offset is not above those acknowledged before",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each acknowledged offset that is not above the offsets which the same partition had
    acknowledged before the send began.
    """
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield a witness for each acknowledged offset that is not above the highest one acknowledged before its send was
    invoked.

    The evidence is `final` if final reads find both records at their acknowledged offsets. Otherwise one of the two
    records was lost, and the evidence is `acks`.
    """
    acks = sorted((value.t1, value.acked_at, value.acked_at in value.final_at) for value in sent(log) if value.acked)
    highest = highest_standing = -1
    at = 0
    for value in sorted(sent(log), key=attrgetter("t0", "op")):
        # Strictly before: two events at one instant have no known order.
        while at < len(acks) and acks[at][0] < value.t0:
            _, off, standing = acks[at]
            highest = max(highest, off)
            highest_standing = max(highest_standing, off if standing else -1)
            at += 1
        if value.acked_at < 0:
            continue
        stands = value.acked_at in value.final_at
        if stands and value.acked_at <= highest_standing:
            yield witness("stale-ack", value, value.acked_at, highest_standing, FINAL)
        elif value.acked_at <= highest:
            found = witness("stale-ack", value, value.acked_at, highest, ACKS)
            # If this record is still at its offset, the lost record may be any producer's: no process is named.
            yield found._replace(proc=-1) if stands else found


SQL = """
select 'stale-ack' anomaly, if(final, 'final', 'acks') evidence, part, acked_at off, val, op,
       if(final or acked_final = 0, producer, -1L) proc, if(final, standing_highest, highest) other
from (
  select *, acked_final = 1 and acked_at <= coalesce(standing_highest, -1L) final
  from (
    select *, max(if(is_ack = 1, acked_at, null)) over earlier highest,
           max(if(is_ack = 1 and acked_final = 1, acked_at, null)) over earlier standing_highest
    from (
      select part, val, op, producer, acked_at, acked_final, inline(array(
               named_struct('t', t0, 'is_ack', 0), named_struct('t', t1, 'is_ack', 1)))
      from standing where sent = 1 and acked and acked_at >= 0)
    window earlier as (partition by part order by t, is_ack rows between unbounded preceding and 1 preceding))
  where is_ack = 0)
where final or acked_at <= coalesce(highest, -1L)
"""
"""Selects the witnesses: sends whose acknowledged offset is not above all offsets that were acknowledged before the
send was invoked. An acknowledgement at the very time of the invocation does not count.
"""


def _queries(_: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("standing",))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
