"""Finds commit-ahead: a group's committed position is beyond a record that none of its members got."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import OWN, PROGRAM, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.group_positions import GROUPS, GroupPartitionHistory, positions_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.group_tables import CRASHED, FROM_COMMITTED, GroupCommit
from squall.checkers.history.tables import FAIL, POLL, History

OWN_COMMIT = "own commit"
"""Is the evidence that a program under test committed the position itself, and had reported no record at or beyond this
offset by then. No broker can have caused that.
"""
SKIPPED = "skipped record"
"""Is the evidence that a program under test committed a position beyond this record. It had reported later records, but
not this one: it may have skipped this one, or a broker may have left it out.
"""

ANOMALIES = (
    AnomalyDefinition(
        "commit-ahead",
        AnomalyFamily.GROUPS,
        "after a restart or rebalance a member resumes at a committed position beyond a record that no member of its "
        "group ever got",
        source=GROUPS,
        other="where the member resumed",
        needs=(HistoryNeed.MEMBERS, HistoryNeed.RESUMED, HistoryNeed.FINAL_READS),
        meaning="records were committed before any member of the group had got them, and will not be processed now",
        meaning_of_one="record was committed before any member of the group had got it, and will not be processed now",
    ),
)


class _GroupReads:
    """Holds which records the members of each group got, by partition."""

    def __init__(self, history: History) -> None:
        self.isolation = {process.proc: process.isolation for process in history.processes}
        self.client = {process.proc: process.client for process in history.processes}
        group = {hold.proc: hold.group for hold in history.holds.rows()}
        self.final: dict[tuple[int, int], dict[int, int]] = {}
        """Maps (partition, isolation level) to what final reads returned: offset -> value."""
        self.got: dict[tuple[int, int], dict[int, int]] = {}
        """Maps (group, partition) to offset -> when a member first got a record there, in ns."""
        self.reported: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Maps (process, partition) to (ns, offset) of each record that a program under test reported as processed."""
        for record in history.records.rows():
            if record.kind == POLL and record.final:
                here = self.final.setdefault((record.part, record.iso), {})
                # If final reads differ, any value would do, but both engines must choose the same.
                here[record.off] = max(record.val, here.get(record.off, -1))
            elif record.kind == POLL and record.proc in group:
                got = self.got.setdefault((group[record.proc], record.part), {})
                got[record.off] = min(record.t1, got.get(record.off, record.t1))
                if self.client.get(record.proc) == PROGRAM:
                    self.reported.setdefault((record.proc, record.part), []).append((record.t1, record.off))

    def reported_by(self, commit: GroupCommit) -> int:
        """Return the highest offset in the partition whose record the committing process had reported as processed when
        it sent the commit; -1 if it had reported none.
        """
        own = self.reported.get((commit.proc, commit.part), ())
        return max((off for t, off in own if t <= commit.t0), default=-1)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield one witness for each record that a resuming member passed over, with the first member that did so. A
    partition gives no witnesses if an administrator moved the group's positions there. Nor does it if a member that
    runs a client library was killed while it owned the partition: what such a member got and did not report is not
    known.
    """
    places = seen.view(positions_of).places
    if not places:
        return
    reads = _GroupReads(seen.history)
    partitions = {partition.part: partition for partition in seen.history.partitions}
    for place in places:
        partition = partitions[place.part]
        if partition.compacted or place.reset or _may_hide_reads(place, reads):
            continue
        passed: dict[int, tuple[int, int, int, int]] = {}
        for hold in place.holds:
            if hold.begun != FROM_COMMITTED:
                continue
            lowest = max(place.begins_at(hold.t0), partition.judged_from)
            got = reads.got.get((place.group, place.part), {})
            for off, val in reads.final.get((place.part, reads.isolation[hold.proc]), {}).items():
                if lowest <= off < hold.pos and not got.get(off, hold.t0 + 1) <= hold.t0:
                    found = (hold.t0, hold.proc, hold.pos, val)
                    passed[off] = min(found, passed.get(off, found))
        own = _own_commits(place, reads, {pos for _, _, pos, _ in passed.values()})
        for off, (t0, proc, pos, val) in passed.items():
            reported = [reported for sent, reported in own.get(pos, ()) if sent <= t0]
            evidence = "" if not reported else OWN_COMMIT if min(reported) < off else SKIPPED
            yield Witness("commit-ahead", evidence, place.part, off, val, -1, proc, pos)


def _own_commits(
    place: GroupPartitionHistory, reads: _GroupReads, positions: set[int]
) -> dict[int, list[tuple[int, int]]]:
    """Return, for each position in `positions`, the commits of that position by programs under test, outside of
    transactions. Each commit is given as (ns of its request, highest offset that the process had reported as processed
    by then).
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for commit in place.commits:
        if commit.off in positions and commit.st != FAIL and commit.txn < 0 and reads.client[commit.proc] == PROGRAM:
            found.setdefault(commit.off, []).append((commit.t0, reads.reported_by(commit)))
    return found


def _may_hide_reads(place: GroupPartitionHistory, reads: _GroupReads) -> bool:
    """Return whether a crashed member may have got records that it did not report. Our own client and programs under
    test report a record before they commit past it, so their crashes hide nothing.
    """
    return any(hold.how == CRASHED and reads.client[hold.proc] not in (OWN, PROGRAM) for hold in place.holds)


SQL = f"""
with of_groups as (select distinct proc, `group` grp from holds),
silent as (
  select distinct h.`group` grp, h.part from holds h join processes p on p.proc = h.proc
  where h.how = {CRASHED} and p.client not in ('{OWN}', '{PROGRAM}')
  union
  select grp, part from group_commits where off < 0),
got as (
  select g.grp, r.part, r.off, min(r.t1) t1 from records r join of_groups g on g.proc = r.proc
  where r.kind = 1 and r.final = 0 group by g.grp, r.part, r.off),
resumed as (
  select h.*, if(get_json_object(p.settings, '$.isolation') in ('1', 'read_committed'), 1, 0) iso,
         greatest(h.lowest, q.judged_from) since
  from group_holds h join processes p on p.proc = h.proc join partitions q on q.part = h.part
  left anti join silent s on s.grp = h.grp and s.part = h.part
  where h.begun = 1 and not q.compacted and not q.deleted),
standing_finally as (
  select part, iso, off, max(val) val from records where kind = 1 and final > 0 group by part, iso, off),
passed as (
  select grp, part, off, first.* from (
    select h.grp, h.part, s.off, min(struct(h.t0, bigint(h.proc) proc, h.pos, s.val)) first
    from resumed h join standing_finally s on s.part = h.part and s.iso = h.iso and s.off >= h.since and s.off < h.pos
    left join got g on g.grp = h.grp and g.part = h.part and g.off = s.off
    where coalesce(g.t1 > h.t0, true)
    group by h.grp, h.part, s.off)),
own as (
  select c.op, c.grp, c.part, c.off pos, c.t0, coalesce(max(r.off), -1) reported
  from group_commits c
  left semi join passed w on w.grp = c.grp and w.part = c.part and w.pos = c.off
  join processes p on p.proc = c.proc and p.client = '{PROGRAM}'
  left join records r on r.proc = c.proc and r.part = c.part and r.kind = 1 and r.final = 0 and r.t1 <= c.t0
  where c.st <> {FAIL} and c.txn < 0
  group by c.op, c.grp, c.part, c.off, c.t0),
asked as (
  select w.grp, w.part, w.off, min(o.reported) reported from passed w
  join own o on o.grp = w.grp and o.part = w.part and o.pos = w.pos and o.t0 <= w.t0
  group by w.grp, w.part, w.off)
select 'commit-ahead' anomaly,
       case when a.off is null then '' when a.reported < w.off then '{OWN_COMMIT}' else '{SKIPPED}' end evidence,
       w.part, w.off, w.val, -1L op, w.proc, w.pos other
from passed w left join asked a on a.grp = w.grp and a.part = w.part and a.off = w.off
"""


def _queries(history: ConversionResult) -> Queries:
    if not history.holds:
        return []
    return [WitnessQuery(SQL, ("holds", "group_holds", "group_commits", "records", "processes", "partitions"))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
