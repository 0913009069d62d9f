"""Defines what the queries read: the tables of the history, and views that several queries share.

A query names its views; only named views are created, each after the views that it reads itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from squall.checkers.history.tables import ObservedPartition


@dataclass(frozen=True, slots=True)
class SparkView:
    """Describes one view. `sql` is its statement, or a function that makes the statement for the history's partitions.
    """

    sql: str | Callable[[Sequence[ObservedPartition]], str]
    reads: tuple[str, ...] = ()
    """Lists the tables of the history (the names of their Parquet files) and the other views that it reads."""
    kept: bool = False
    """Is True if several statements read the view, so that it is computed once and cached."""
    by: str = ""
    """Is the column by which the rows are partitioned; empty if that does not matter."""


PLACES = """
select part, off, val,
       max(if(kind = 0, 1, 0)) sent, max(if(kind = 0, st, null)) st, max(if(kind = 0, op, null)) send_op,
       max(if(kind = 0, t0, null)) t0, max(if(kind = 0, t1, null)) t1, max(key) key,
       max(tries) tries, max(if(kind = 1, 1, 0)) is_read, max(if(final > 0, 1, 0)) is_final,
       max(if(iso = 0, final, 0)) final_round, max(if(iso = 1, final, 0)) committed_round,
       min(if(kind = 1, op, null)) read_op, min(if(kind = 1, t1, null)) read_t1
from records where kind < 2 group by part, off, val
"""
"""Selects one row for each value at each offset, with its send and a summary of its reads. A send without an offset has
the offset -1. This is the only aggregation that reads every record.
"""

STANDING = """
select part, val, shiftright(val, 40) producer, max(sent) sent, max(st) st, coalesce(max(send_op), min(read_op)) op,
       max(t0) t0, max(t1) t1, max(key) key, max(tries) tries,
       max(if(sent = 1, off, -1)) acked_at, min(read_t1) first_read,
       min(if(is_read = 1, off, null)) read_min, max(if(is_read = 1, off, null)) read_max,
       min(if(is_final = 1, off, null)) final_min, max(if(is_final = 1, off, null)) final_max,
       max(if(sent = 1 and off >= 0, is_read, 0)) acked_read, max(if(sent = 1 and off >= 0, is_final, 0)) acked_final,
       max(final_round) final_round, max(committed_round) committed_round
from places where val >= 0 group by part, val
"""
"""Selects one row for each value: whether it was sent, at which offset it was acknowledged, and at which offsets
readers and final readers found it.
"""

TXN_VALUES = """
select m.val, m.part, t.op txn, t.proc txn_proc, t.id, t.te, t.t1 txn_t1, t.timeout_ms,
       t.st = 0 and t.how = 1 committed, t.how <> 1 or t.st = 1 never_commits,
       t.how = 2 or t.st = 1 aborted, t.late_commit = 1 late_commit, t.late_abort = 1 late_abort
from members m join txns t on m.txn = t.op where m.kind = 0
"""
"""Selects one row for each value that was sent in a transaction."""

COMMITTED_READS = """
select t.txn, t.txn_proc, t.te, t.never_commits, t.late_commit, r.part, r.val,
       min(r.off) off, min(r.op) op, min(r.t1) first, max(r.final) > 0 final
from records r join txn_values t on r.val = t.val
where r.kind = 1 and r.iso = 1 and r.val >= 0
group by t.txn, t.txn_proc, t.te, t.never_commits, t.late_commit, r.part, r.val
"""
"""Selects one row for each value that was sent in a transaction and that a read_committed reader got, with the lowest
offset at which it was read. `final` says that a final read got it.
"""

WR_EDGES = """
select w.txn writer, t.op reader, w.te writer_at, t.te reader_at, max(t.proc) proc,
       max(w.late_commit) late, min(struct(r.part, r.off, r.val)) read
from records r join members m on m.kind = 1 and m.op = r.op join txns t on t.op = m.txn
join txn_values w on w.val = r.val
where r.kind = 1 and r.iso = 1 and r.val >= 0 and r.t1 <= t.te and t.how = 1 and t.st <> 1 and not w.never_commits
  and w.txn <> t.op
group by w.txn, t.op, w.te, t.te
"""
"""Selects the edges of the G1c search: a row for each pair of transactions (`writer`, `reader`) that may both have
committed, if the reader got a record of the writer before the reader's own commit was requested. `writer_at` and
`reader_at` are when the ends of the two transactions were requested. `read` is the first such record, by (part, off,
val). `late` says that a delayed EndTxn may have committed the writer.
"""

GROUP_COMMITS = """
with everywhere as (
  select c.*, c.part place from commits c where c.part >= 0
  union all
  select c.*, p.part place from commits c cross join partitions p where c.part < 0)
select c.op, c.proc, c.`group` grp, c.place part, c.off, c.st, c.t0, c.txn, c.late, c.meta, coalesce(t.te, -1L) te,
       coalesce(t.how <> 1 or t.st = 1, false) never_commits,
       coalesce(t.late_commit = 1, false) late_commit, coalesce(t.late_abort = 1, false) late_abort,
       case when c.st <> 0 or c.off < 0 then -1L when c.txn < 0 then c.t1
            when t.st = 0 and t.how = 1 then t.t1 else -1L end since,
       case when c.st = 2 or c.t1 < 0 or c.late = 1 then -1L when c.txn < 0 then c.t1
            when t.st = 0 then t.t1 else -1L end done_by
from everywhere c left join txns t on t.op = c.txn
"""
"""Selects a row for each position that a client requested to commit. `since` is the time from which on the position is
known to be committed, and `done_by` the time after which the request can no longer take effect; -1 if no such time is
known.
"""

GROUP_HOLDS = """
select proc, `group` grp, part, pos, begun, t0,
       coalesce(max(if(begun = 0, pos, null)) over earlier, min(pos) over earlier) lowest
from holds window earlier as (
  partition by `group`, part order by t0 range between unbounded preceding and current row)
"""
"""Selects the rows of `holds` (a member owned a partition). Adds `lowest`: the offset from which on the group had to
read the partition, as far as this row and earlier ones show. If members began by auto.offset.reset, `lowest` is the
highest offset that a reset gave, because that reset skipped all records below; else it is the lowest offset at which
any member began.
"""

MADE = """
select o.*, coalesce(r.off, -1L) off from outputs o
left join (select val, min(off) off from records where kind = 1 and iso = 1 and val >= 0 group by val) r
  on r.val = o.val
"""
"""Selects the outputs: records that pipeline members made of records which they had read. `off` is the lowest offset at
which a read_committed reader got the output; -1 if none did.
"""

INTERRUPTED = """
with group_members as (select distinct `group` grp, proc from holds),
polled as (
  select distinct m.grp, r.proc, r.part, r.op, r.val, r.t0, r.t1
  from records r join group_members m on m.proc = r.proc where r.kind = 1 and r.final = 0),
made as (
  select o.`group` grp, o.proc, o.val, o.src, s.st, s.t0,
         row_number() over (partition by o.`group`, o.src order by s.t0, o.val) nth
  from outputs o join standing s on s.part = o.part and s.val = o.val where s.sent = 1),
got as (
  select grp, val, t1, row_number() over (partition by grp, val order by t1, op) nth
  from (select distinct grp, val, op, t1 from polled)),
got_again as (
  select m.grp, m.src from made m left join got g on g.grp = m.grp and g.val = m.src and g.nth = m.nth
  group by m.grp, m.src having count(*) = count_if(g.t1 <= m.t0)),
owned as (select *, max(t0) over (partition by `group`, part) last_t0 from holds),
last as (
  select h.`group` grp, h.part, max(p.op) op
  from owned h join (select distinct proc, op, t0, t1 from polled) p
    on p.proc = h.proc and p.t1 >= h.t0 and (h.t1 < 0 or p.t0 <= h.t1)
  where h.how in (2, 3) or h.t0 < h.last_t0
  group by h.`group`, h.part, h.proc, h.t0, h.t1, h.how),
unfinished as (
  select grp, src val from made where st <> 0
  union
  select p.grp, p.val from last l join polled p on p.grp = l.grp and p.part = l.part and p.op = l.op)
select 'eos-duplicate' anomaly, m.proc, m.val from made m join got_again a on a.grp = m.grp and a.src = m.src
union all
select 'eos-loss' anomaly, m.proc, u.val from unfinished u join group_members m on m.grp = u.grp
"""
"""Selects each (anomaly, process, value) that interruptions of a group's members explain: an input that they left
unfinished (eos-loss), or an output of an input that they read again (eos-duplicate). `squall.checkers.interruptions`
defines them.
"""

TWICE = "select val from places where val >= 0 and is_read = 1 group by val having count(*) > 1"
"""Selects the values that were read at more than one offset."""

ALONE = "select *, coalesce(st = 0, false) acked, false in_txn from"
IN_TRANSACTIONS = """
select s.*, coalesce(s.st = 0, false) and coalesce(t.committed, true) acked, t.txn is not null in_txn
from ({}) s left join txn_values t on t.part = s.part and t.val = s.val and s.sent = 1
"""

JUDGED = """
select s.*, seen, if(acked_at >= 0, acked_at, coalesce(read_max, -1L)) placed_at, cover_from, cover_to, cover_t0,
       judged_from,
       not compacted and (final_round > 0 and final_round < last_round
                          or committed_round > 0 and committed_round < last_committed_round) vanished
from standing s join partitions using (part)
"""
"""Selects one row for each value, with its send, its acknowledgement and its reads (the columns of the view
`standing`). Adds columns of the partition that say at which offsets and times a record must be in the final reads
(`seen`, `cover_from` and others, see `ObservedPartition`). `placed_at` is the acknowledged offset, else the highest
offset at which the value was read; -1 if neither is known. `vanished` is true if an earlier round of final reads
returned the value, the last round did not, and the partition is not compacted.
"""


def standing(rows: Sequence[ObservedPartition]) -> str:
    """Return the statement of the view `standing`: one row for each value, with its send, its acknowledged offset and
    its reads (STANDING). Two columns are added. `acked` says that the broker acknowledged the send, and also the commit
    of its transaction if there is one. `in_txn` says that the value was sent in a transaction. `rows` are the history's
    partitions; if none is transactional, the statement reads no transactions.
    """
    return IN_TRANSACTIONS.format(STANDING) if any(each.transactional for each in rows) else f"{ALONE} ({STANDING})"


def partitions(rows: Sequence[ObservedPartition]) -> str:
    """Return a statement with the rows of the table `partitions` as SQL literals, because Spark reads a file of a few
    rows no faster than a large file.
    """
    topics: dict[str, int] = {}
    facts = (
        f"({each.part}, {str(each.compacted).lower()}, {str(each.deletable).lower()}, {each.judged_from}L, "
        f"{each.explained_to}L, {each.seen}L, {each.cover_from}L, {each.cover_to}L, {each.cover_t0}L, "
        f"{each.last_round}L, {each.last_committed_round}L, {each.committed_t0}L, {str(each.deleted).lower()}, "
        f"{topics.setdefault(each.topic, len(topics))}, {each.index})"
        for each in rows
    )
    columns = "part, compacted, deletable, judged_from, explained_to, seen, cover_from, cover_to, cover_t0"
    columns += ", last_round, last_committed_round, committed_t0, deleted, topic, number"
    # SQL has no `values` without a row; no partition has the id -1.
    nothing = "(-1, false, false, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, false, 0, 0)"
    return f"select * from values {', '.join(facts) or nothing} as t({columns})"


VIEWS: dict[str, SparkView] = {
    "partitions": SparkView(partitions),
    # All later views group or sort by partition, so one exchange here is enough.
    "places": SparkView(PLACES, ("records",), kept=True, by="part"),
    "txn_values": SparkView(TXN_VALUES, ("members", "txns")),
    "committed_reads": SparkView(COMMITTED_READS, ("records", "txn_values"), kept=True),
    "wr_edges": SparkView(WR_EDGES, ("records", "members", "txns", "txn_values"), kept=True),
    "standing": SparkView(standing, ("places", "txn_values"), kept=True),
    "group_commits": SparkView(GROUP_COMMITS, ("commits", "partitions", "txns")),
    "group_holds": SparkView(GROUP_HOLDS, ("holds",)),
    "made": SparkView(MADE, ("outputs", "records")),
    "interrupted": SparkView(INTERRUPTED, ("records", "outputs", "holds", "standing")),
    "twice": SparkView(TWICE, ("places",)),
    "judged": SparkView(JUDGED, ("standing", "partitions")),
}


def in_order(names: Iterable[str]) -> Iterator[str]:
    """Return the names of these tables and views, and of all that they read. Each name comes after the names that it
    reads.
    """
    made: dict[str, None] = {}

    def make(name: str) -> None:
        if name not in made:
            for each in VIEWS[name].reads if name in VIEWS else ():
                make(each)
            made[name] = None

    for name in sorted(names):
        make(name)
    return iter(made)
