"""Finds lost-position: a coordinator reports a wrong committed position of a group.

The position is lower than an earlier one, although no client committed a lower one; or it is back after the group was
deleted; or no client ever requested it; or its metadata is not that of its commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, has_offset_fetches
from squall.checkers.anomalies.group_positions import GROUPS, GroupPartitionHistory, GroupPositions, positions_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.group_tables import ANY, DELETED, GroupCommit, ReportedCommittedOffset
from squall.checkers.history.tables import FAIL, LATE_END, OK

LEAST_RETENTION_NS = 60_000_000_000
"""Is the shortest time after which Kafka may expire a committed position: offsets.retention.minutes is at least 1."""

METADATA = "metadata"
"""Is the evidence that the reported position is right but its metadata is not."""

ANOMALIES = (
    AnomalyDefinition(
        "lost-position",
        AnomalyFamily.GROUPS,
        "a coordinator reports a committed position as lower than before, or as never committed, with no commit or "
        "reset in between; or it reports a position again after the deletion of the group was acknowledged; or it "
        "reports a position that nobody had asked to commit or reset; or it reports other metadata with a position "
        "than each commit of it had",
        source=GROUPS,
        other="the position that was committed before",
        needs=(HistoryNeed.POSITIONS,),
        meaning="times a coordinator reported a position that was too low, of a deleted group, uncommitted, or without "
        "its metadata",
        meaning_of_one="time a coordinator reported a position that was too low, of a deleted group, uncommitted, or "
        "without its metadata",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each wrong position that a coordinator reported, by the first of these that applies: an
    earlier position is lost, the group was deleted, no client requested the position, its metadata differs.
    """
    positions = seen.view(positions_of)
    for place in positions.places:
        for fetch in place.fetches:
            higher = list(_lost(fetch, place, positions))
            if higher:
                # A late abort explains a lost commit, but not the loss of another commit that is proven.
                proven, off, proc = max(higher)
                evidence = "" if proven else LATE_END
                yield Witness("lost-position", evidence, place.part, fetch.off, -1, fetch.op, proc, off)
            elif (deleted_by := _deleted_by(fetch, place, positions)) >= 0:
                yield Witness("lost-position", "", place.part, fetch.off, -1, fetch.op, deleted_by, -1)
            elif _invented(fetch, place, positions):
                yield Witness("lost-position", "", place.part, fetch.off, -1, fetch.op, fetch.proc, -1)
            elif _other_metadata(fetch, place, positions):
                yield Witness("lost-position", METADATA, place.part, fetch.off, -1, fetch.op, fetch.proc, -1)


def _lost(
    fetch: ReportedCommittedOffset, place: GroupPartitionHistory, positions: GroupPositions
) -> Iterator[tuple[bool, int, int]]:
    """Yield each earlier position above the one that `fetch` reported, if no later commit may explain the reported one.

    Each is given as (whether the loss is proven, the earlier position, the process that committed or fetched it). The
    loss is not proven if an EndTxn request of an earlier transaction came late and may have aborted the earlier commit.
    """
    known = [
        (commit.t0, positions.known_at(commit), commit.off, positions.late_abort(commit), commit.proc)
        for commit in place.commits
        # The offsets of a transaction may become the position only after its end was acknowledged: a fetch waits for
        # that only if it asks for stable offsets.
        if fetch.stable or commit.txn < 0
    ]
    known += [(each.t0, each.t1, each.off, False, each.proc) for each in place.fetches if each.off >= 0]
    for t0, since, off, late, proc in known:
        # Only a position that is reported as missing may have expired; a lower one may not.
        expired = fetch.off < 0 and fetch.t1 - t0 >= LEAST_RETENTION_NS
        if since < 0 or since > fetch.t0 or off <= fetch.off or expired:
            continue
        replaced = (
            not 0 <= positions.done_by(commit) < t0
            for commit in _explaining(place, positions)
            if positions.may_explain(commit, fetch.off, fetch.t1)
        )
        if not any(replaced):
            yield not late, off, proc


def _explaining(place: GroupPartitionHistory, positions: GroupPositions) -> list[GroupCommit]:
    """Return the commits that may have set a position. Commits for an earlier topic of the same name are among them if
    nothing shows when they could no longer take effect.
    """
    return [*place.commits, *(commit for commit in place.carried if positions.done_by(commit) < 0)]


def _deleted_by(fetch: ReportedCommittedOffset, place: GroupPartitionHistory, positions: GroupPositions) -> int:
    """Return the number of the client process that deleted the group before the reported position was requested. Return
    -1 if no deletion was acknowledged by then, or if a commit explains the position and may have taken effect after the
    deletion.
    """
    deletions = [
        (commit.t0, commit.proc)
        for commit in place.commits
        if commit.off == DELETED and commit.st == OK and commit.t1 <= fetch.t0
    ]
    if not deletions or fetch.off < 0:
        return -1
    since, proc = max(deletions)
    explained = (
        positions.late_commit(commit) or not 0 <= positions.done_by(commit) < since
        for commit in place.commits
        if positions.may_explain(commit, fetch.off, fetch.t1)
    )
    return -1 if any(explained) else proc


def _invented(fetch: ReportedCommittedOffset, place: GroupPartitionHistory, positions: GroupPositions) -> bool:
    """Return whether no client had requested to commit the reported position, and no administrator had requested to
    reset or delete the group's position, before it was reported. Requests that definitely failed do not count. A
    position that only an uncommitted transaction requested is `uncommitted-offset` instead.
    """
    if fetch.off < 0:
        return False
    asked_for = (
        commit.st != FAIL or (commit.off == fetch.off and positions.uncommitted(commit, fetch.t1))
        for commit in _explaining(place, positions)
        if commit.off in (fetch.off, ANY) and commit.t0 <= fetch.t1
    )
    return not any(asked_for)


def _other_metadata(fetch: ReportedCommittedOffset, place: GroupPartitionHistory, positions: GroupPositions) -> bool:
    """Return whether the metadata is known of every commit that may have set the position, and none of them had the
    reported metadata.
    """
    if fetch.off < 0 or fetch.meta < 0:
        return False
    had = {
        commit.meta for commit in _explaining(place, positions) if positions.may_explain(commit, fetch.off, fetch.t1)
    }
    return bool(had) and not had & {-1, fetch.meta}


SQL = f"""
with explaining as (
  select op, grp, part, off, st, t0, txn, te, never_commits, late_commit, done_by, meta from group_commits
  union all
  select c.op, c.grp, n.part, c.off, c.st, c.t0, c.txn, c.te, c.never_commits, c.late_commit, c.done_by, c.meta
  from group_commits c join partitions g on g.part = c.part
  join partitions n on n.topic = g.topic and n.number = g.number and n.part > g.part
  where g.deleted and c.done_by < 0),
known as (
  select grp, part, off, t0, since, txn, late_abort, proc from group_commits where since >= 0
  union all
  select `group`, part, off, t0, t1, -1L, false, proc from fetches where off >= 0),
contradicted as (
  select f.op, k.proc, f.`group` grp, f.part, f.off, f.t1, k.t0 known_t0, k.off known, k.late_abort
  from fetches f join known k on k.grp = f.`group` and k.part = f.part
  join partitions p on p.part = f.part
  where k.since <= f.t0 and k.off > f.off and (f.stable = 1 or k.txn < 0) and not p.deleted
    and (f.off >= 0 or f.t1 - k.t0 < {LEAST_RETENTION_NS}L)),
lost as (
  select * from contradicted c
  where not exists (
    select 1 from explaining d
    where d.grp = c.grp and d.part = c.part and d.st <> 1 and d.t0 <= c.t1
      and (d.off in (c.off, -1) or c.off < 0 and d.off = -2)
      and (d.late_commit or not (d.never_commits or (d.txn >= 0 and (d.te < 0 or d.te > c.t1))))
      and (d.done_by < 0 or d.done_by >= c.known_t0))),
deleted as (
  select f.op, f.`group` grp, f.part, f.off, f.t1, max(struct(d.t0, d.proc)) last
  from fetches f join group_commits d on d.grp = f.`group` and d.part = f.part
  join partitions p on p.part = f.part
  where d.off = -2 and d.st = 0 and d.done_by between 0 and f.t0 and f.off >= 0 and not p.deleted
  group by f.op, f.`group`, f.part, f.off, f.t1),
back as (
  select * from deleted c
  where not exists (
    select 1 from group_commits d
    where d.grp = c.grp and d.part = c.part and d.st <> 1 and d.t0 <= c.t1 and d.off in (c.off, -1)
      and (d.late_commit or not (d.never_commits or (d.txn >= 0 and (d.te < 0 or d.te > c.t1))))
      and (d.late_commit or d.done_by < 0 or d.done_by >= c.last.t0))),
invented as (
  select f.op, f.proc, f.part, f.off from fetches f join partitions p on p.part = f.part
  where f.off >= 0 and not p.deleted and not exists (
    select 1 from explaining d
    where d.grp = f.`group` and d.part = f.part and d.t0 <= f.t1 and d.off in (f.off, -1)
      and (d.st <> 1 or d.off = f.off and d.txn >= 0 and (d.never_commits or d.te < 0 or d.te > f.t1)))),
stripped as (
  select f.op, f.proc, f.part, f.off
  from fetches f join partitions p on p.part = f.part
  join explaining d on d.grp = f.`group` and d.part = f.part
  where f.off >= 0 and f.meta >= 0 and not p.deleted and d.st <> 1 and d.t0 <= f.t1 and d.off in (f.off, -1)
    and (d.late_commit or not (d.never_commits or (d.txn >= 0 and (d.te < 0 or d.te > f.t1))))
  group by f.op, f.proc, f.part, f.off, f.meta
  having count_if(d.meta in (-1, f.meta)) = 0)
select 'lost-position' anomaly, if(first.proven, '', 'late end') evidence, part, off, -1L val, op,
       bigint(first.proc) proc, first.known other
from (
  select part, off, op, max(struct(not late_abort as proven, known, proc)) first
  from lost group by part, off, op)
union all
select 'lost-position', '', part, off, -1L, op, bigint(last.proc), -1L
from back b left anti join lost l on l.op = b.op and l.part = b.part
union all
select 'lost-position', '', part, off, -1L, op, bigint(proc), -1L
from invented i
  left anti join lost l on l.op = i.op and l.part = i.part left anti join back b on b.op = i.op and b.part = i.part
union all
select 'lost-position', '{METADATA}', part, off, -1L, op, bigint(proc), -1L
from stripped i
  left anti join lost l on l.op = i.op and l.part = i.part left anti join back b on b.op = i.op and b.part = i.part
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("group_commits", "fetches", "partitions"))] if has_offset_fetches(history) else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
