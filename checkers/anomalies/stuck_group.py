"""Finds stuck-group: a group has live members but reads nothing, although all faults are over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import OK, POLL, SEND, History, RecordRow
from squall.checkers.history.values import AFTER_HEALING

SESSIONS, REBALANCES = 10, 2
"""Define the time limit for a group without progress: ten session time-outs, or twice the sum of the session time-out
and the longest time between polls, if that is longer. A coordinator notices a dead member after one session time-out,
and a rebalance waits once for its members, at most for their longest time between polls.
"""

ANOMALIES = (
    AnomalyDefinition(
        "stuck-group",
        AnomalyFamily.LIVENESS,
        "a record was acknowledged after healing, in a partition that the group reads, and retention did not remove "
        f"it; a member was alive all the time, but no member got the record for {SESSIONS} session time-outs (or for "
        "twice the sum of the session time-out and the longest time between polls, if that is longer)",
        source="KIP-848, KIP-62: a rebalance ends once each member has answered, or its time-out is over",
        other="for how many ns",
        needs=(HistoryNeed.MEMBERS, HistoryNeed.ACKS, HistoryNeed.WRITES_AFTER_HEALING),
        meaning="partitions of a group stood still although it had live members and all faults had ended",
        meaning_of_one="partition of a group stood still although it had live members and all faults had ended",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each group and partition in which no member got the harness's first write after healing
    within the time limit.
    """
    history = seen.history
    first = _first_after_healing(history)
    began: dict[int, dict[int, int]] = {}
    read: dict[int, set[int]] = {}
    for hold in history.holds.rows():
        members = began.setdefault(hold.group, {})
        members[hold.proc] = min(hold.t0, members.get(hold.proc, hold.t0))
        read.setdefault(hold.group, set()).add(hold.part)
    limits = {each.proc: _limit_ns(each.settings) for each in history.processes}
    last = {process.proc: process.last_t for process in history.processes}
    partitions = {partition.part: partition for partition in history.partitions}
    for group, members in began.items():
        limit = max(limits[proc] for proc in members)
        for part in sorted(read[group] & first.keys()):
            send, until = first[part], first[part].t1 + limit
            there = not partitions[part].may_lack(send.off)
            alive = any(t0 <= send.t1 and last[proc] >= until for proc, t0 in members.items())
            if limit and there and alive and not _got(history, members, send, until):
                yield Witness("stuck-group", "", part, send.off, send.val, send.op, -1, limit)


def _limit_ns(settings: Mapping[str, object]) -> int:
    """Return how long a member with these settings may keep its group from progress, in ns; 0 if that is not known."""
    session_ns, polls_ns = (_ns(settings.get(name)) for name in ("session_timeout_ms", "max_poll_interval_ms"))
    return max(SESSIONS * session_ns, REBALANCES * (session_ns + polls_ns)) if session_ns else 0


def _ns(timeout_ms: object) -> int:
    return timeout_ms * 1_000_000 if type(timeout_ms) is int else 0


def _first_after_healing(history: History) -> dict[int, RecordRow]:
    harness = {process.proc for process in history.processes if AFTER_HEALING in process.settings}
    found: dict[int, RecordRow] = {}
    for record in history.records.rows():
        if record.kind == SEND and record.st == OK and record.proc in harness and record.off >= 0:
            found[record.part] = min(record, found.get(record.part, record), key=lambda each: each.op)
    return found


def _got(history: History, members: dict[int, int], send: RecordRow, until: int) -> bool:
    return any(
        record.kind == POLL
        and record.part == send.part
        and record.off >= send.off
        and record.t1 <= until
        and record.proc in members
        for record in history.records.rows()
    )


SQL = f"""
with sent as (
  select r.part, min(struct(r.op, r.off, r.val, r.t1)) first from records r join processes p on p.proc = r.proc
  where r.kind = 0 and r.st = 0 and r.off >= 0 and contains(p.settings, '"{AFTER_HEALING}"') group by r.part),
members as (
  select h.`group` grp, h.proc, min(h.t0) t0, max(p.last_t) last_t,
         coalesce(max(try_cast(get_json_object(p.settings, '$.session_timeout_ms') as bigint)), 0L) session_ms,
         coalesce(max(try_cast(get_json_object(p.settings, '$.max_poll_interval_ms') as bigint)), 0L) polls_ms
  from holds h join processes p on p.proc = h.proc group by h.`group`, h.proc),
limits as (
  select grp, 1000000L * max(
    if(session_ms > 0, greatest({SESSIONS} * session_ms, {REBALANCES} * (session_ms + polls_ms)), 0L)) ns
  from members group by grp),
wanted as (
  select l.grp, s.part, s.first.*, l.ns, s.first.t1 + l.ns until
  from (select distinct `group` grp, part from holds) h join limits l on l.grp = h.grp join sent s on s.part = h.part
  join partitions p on p.part = h.part
  where l.ns > 0 and s.first.off >= p.judged_from)
select 'stuck-group' anomaly, '' evidence, part, off, val, op, -1L proc, ns other
from wanted w
where exists (select 1 from members m where m.grp = w.grp and m.t0 <= w.t1 and m.last_t >= w.until)
  and not exists (
    select 1 from records r join members m on m.proc = r.proc
    where m.grp = w.grp and r.kind = 1 and r.part = w.part and r.off >= w.off and r.t1 <= w.until)
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("records", "processes", "holds", "partitions"))] if history.holds else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
