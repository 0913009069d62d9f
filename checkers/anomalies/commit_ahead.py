"""Finds commit-ahead: a group's committed position is beyond a record that none of its members got."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import (
    OWN,
    PROGRAM,
    AnomalyCheck,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.group_positions import GROUPS, GroupPartitionHistory, positions_of
from squall.checkers.findings import Witness
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


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
