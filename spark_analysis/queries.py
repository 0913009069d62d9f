"""The anomalies as SQL. Every query yields witness rows: anomaly, evidence, part, off, val, op, proc, other.

Same definitions and same witnesses as `checkers.reference`, whose docstrings say why; tests/parity holds them together.
They read `records` and `told` (the Parquet files of `checkers.history`), and `partitions`, `places`, `standing` below.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkers.history.tables import Partition

WITNESS = ("anomaly", "evidence", "part", "off", "val", "op", "proc", "other")

PLACES = """
select part, off, val,
       max(if(kind = 0, 1, 0)) sent, max(if(kind = 0, st, null)) st, max(if(kind = 0, op, null)) send_op,
       max(if(kind = 0, t0, null)) t0, max(if(kind = 0, t1, null)) t1, max(key) key,
       max(if(kind = 1, 1, 0)) is_read, max(if(final > 0, 1, 0)) is_final,
       min(if(kind = 1, op, null)) read_op, min(if(kind = 1, t1, null)) read_t1
from records where kind < 2 group by part, off, val
"""
"""View `places`: one row for each value at each offset, sends without an offset at -1. What all reads of one record
have in common is folded here, by the only aggregation that sees every record."""

STANDING = """
select part, val, shiftright(val, 40) producer, max(sent) sent, max(st) st, coalesce(max(send_op), min(read_op)) op,
       max(t0) t0, max(t1) t1, max(key) key, max(if(sent = 1, off, -1)) acked_at, min(read_t1) first_read,
       min(if(is_read = 1, off, null)) read_min, max(if(is_read = 1, off, null)) read_max,
       min(if(is_final = 1, off, null)) final_min, max(if(is_final = 1, off, null)) final_max,
       max(if(sent = 1 and off >= 0, is_read, 0)) acked_read, max(if(sent = 1 and off >= 0, is_final, 0)) acked_final
from places where val >= 0 group by part, val
"""
"""View `standing`: one row for each value: was it sent, was it acknowledged and where, and where does it stand."""

_LOST_AT = "if(acked_at >= 0, acked_at, coalesce(read_max, -1L))"

VALUES = """
with v as (
  select s.*, seen, {lost_at} lost_at,
         sent = 1 and final_min is null and (st = 0 or (st = 2 and read_min is not null)) missing,
         if(st = 0, t1, first_read) since, cover_from, cover_to, cover_t0, judged_from
  from standing s join partitions using (part)),
j as (
  select *, missing and not (lost_at >= 0 and lost_at < judged_from)
            and ((lost_at >= 0 and lost_at >= cover_from and lost_at < cover_to) or since <= cover_t0){excuses} lost
  from v)
select inline(array_compact(array(
  if(lost, named_struct('anomaly', if(lost_at <= seen, 'lost-write', 'unseen'), 'evidence', '', 'part', part,
    'off', lost_at, 'val', val, 'op', op, 'proc', producer, 'other', seen), null),
  if(final_min < final_max or read_min < read_max, named_struct('anomaly', 'duplicate',
    'evidence', if(final_min < final_max, 'final', 'reads'), 'part', part,
    'off', if(final_min < final_max, final_max, read_max), 'val', val, 'op', op, 'proc', producer,
    'other', if(final_min < final_max, final_min, read_min)), null),
  if(sent = 0, named_struct('anomaly', 'phantom', 'evidence', '', 'part', part, 'off', read_min, 'val', val, 'op', op,
    'proc', -1L, 'other', -1L), null),
  if(acked_at >= judged_from and read_min is not null and if(final_min is not null, acked_final, acked_read) = 0,
    named_struct('anomaly', 'wrong-offset', 'evidence', if(final_min is not null, 'final', 'reads'), 'part', part,
    'off', acked_at, 'val', val, 'op', op, 'proc', producer, 'other', coalesce(final_min, read_min)), null))))
from j
"""
"""lost-write, unseen, duplicate, phantom, wrong-offset."""

NOT_CORRUPT = """
  and not exists (
    select 1 from places c where c.part = v.part and c.off = v.lost_at and c.val < 0 and c.is_final = 1)"""
"""Excuse of a lost record: what stands in its place is damaged, and reported as that."""

NOT_SUPERSEDED = """
  and not (key >= 0 and coalesce(max(if(key >= 0, final_max, null)) over (partition by part, key), -1L) > lost_at)"""
"""Excuse of a lost record of a compacted partition: a later one of its key is there."""

CORRUPT = """
select 'corrupt' anomaly, '' evidence, part, off, val, read_op op, -1L proc, -1L other
from places where val < 0 and is_read = 1
"""

OFFSETS = """
select 'inconsistent-offset' anomaly, if(finals > 1, 'final', if(reads > 1, 'reads', 'acks')) evidence,
       part, off, displaced.val val, displaced.op op, shiftright(displaced.val, 40) proc, stands.val other
from (select part, off, sum(is_final) finals, sum(is_read) reads, count(*) n,
             min(struct(is_read + is_final as level, val, coalesce(send_op, read_op) as op)) displaced,
             max(struct(is_read + is_final as level, val)) stands
      from places where off >= 0 and val >= 0 group by part, off having n > 1)
"""

READERS = """
with odd as (select * from records where kind = 1 and before >= 0 and off <> before + 1),
order_of as (
  select part, off, lead(off) over (partition by part order by off) next
  from (select distinct part, off from places where off >= 0))
select concat(if(inside = 1, 'int-', ''), 'nonmonotonic-poll') anomaly, '' evidence, part, off, val, op,
       bigint(proc) proc, before other
from odd where off <= before
union all
select concat(if(inside = 1, 'int-', ''), 'poll-skip'), '', o.part, o.off, val, op, bigint(proc), before
from odd o join order_of n on n.part = o.part and n.off = o.before join partitions p on p.part = o.part
where o.off > before and next < o.off and not compacted
"""
"""The converter says what each reader read before each record, so that no sort of all reads is needed. Only reads with
a hole between them are looked up in the version order."""

SEND_ORDER = """
select 'send-reorder' anomaly, elt(1 + least(level, level_before), 'acks', 'reads', 'final') evidence, part, off, val,
       op, producer proc, before other
from (
  select part, val, op, producer, off, level, lag(off) over handed before, lag(level) over handed level_before
  from (
    select *, if(retired, acked_at, coalesce(final_min, read_min, acked_at)) off,
           case when retired then acked_read when final_min is not null then 2 when read_min is not null then 1 else 0
           end level
    from (
      select s.*, acked_at >= 0 and acked_at < judged_from and final_min is not null and acked_final = 0 retired
      from standing s join partitions using (part) where sent = 1 and st <> 1))
  where off >= 0 window handed as (partition by part, producer order by op))
where off < before
"""

STALE_ACKS = """
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
      from standing where sent = 1 and st = 0 and acked_at >= 0)
    window earlier as (partition by part order by t, is_ack rows between unbounded preceding and 1 preceding))
  where is_ack = 0)
where final or acked_at <= coalesce(highest, -1L)
"""
"""An acknowledgement at the very time of an invocation does not precede it."""

TOLD = """
select anomaly, evidence, part, off, -1L val, op, bigint(proc) proc, other
from (
  select part, op, proc, inline(array_compact(array(
    if(hw >= 0 and hw < hw_before, named_struct('anomaly', 'offset-regression', 'evidence', 'high watermark',
      'off', hw, 'other', hw_before), null),
    if(lso >= 0 and lso < lso_before, named_struct('anomaly', 'offset-regression', 'evidence', 'last stable offset',
      'off', lso, 'other', lso_before), null),
    if(hw >= 0 and lso > hw, named_struct('anomaly', 'lso-violation', 'evidence', 'above the high watermark',
      'off', lso, 'other', hw), null),
    if(lso >= 0 and iso = 1 and last_off >= lso, named_struct('anomaly', 'lso-violation', 'evidence',
      'read at or above it', 'off', lso, 'other', last_off), null))))
  from told)
"""


def partitions(rows: Sequence[Partition]) -> str:
    """View `partitions`, in the statement itself: reading a file of a few rows costs as much as reading a large one."""
    facts = (
        f"({each.part}, {str(each.compacted).lower()}, {each.judged_from}L, {each.seen}L, {each.cover_from}L, "
        f"{each.cover_to}L, {each.cover_t0}L)"
        for each in rows
    )
    columns = "part, compacted, judged_from, seen, cover_from, cover_to, cover_t0"
    nothing = "(-1, false, 0L, 0L, 0L, 0L, 0L)"
    return f"select * from values {', '.join(facts) or nothing} as t({columns})"


def anomalies(*, corrupt: bool, compacted: bool, holes: bool) -> str:
    """All of them as one statement.

    `corrupt`, `compacted`, `holes`: whether the history has such records, such partitions, reads that did not go on
    right behind the read before. What cannot be found is not looked for.
    """
    excuses = (NOT_CORRUPT if corrupt else "") + (NOT_SUPERSEDED if compacted else "")
    values = VALUES.format(lost_at=_LOST_AT, excuses=excuses)
    queries = [values, OFFSETS, SEND_ORDER, STALE_ACKS, TOLD]
    queries += [READERS] if holes else []
    queries += [CORRUPT] if corrupt else []
    columns = ", ".join(WITNESS)
    return "\nunion all\n".join(f"select {columns} from ({query})" for query in queries)
