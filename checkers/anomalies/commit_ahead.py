"""commit-ahead: a group's committed position is beyond a record that none of its members got."""

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
"""Evidence: a program under test committed that position itself, and had reported nothing at the record's offset or
beyond by then. No broker can have done that."""
SKIPPED = "skipped record"
"""Evidence: the same, but it had reported records beyond this one. A broker may have left this one out."""

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


class _GroupReadIndex:
    """Indexes which member got which records, by partition."""

    def __init__(self, history: History) -> None:
        self.isolation = {process.proc: process.isolation for process in history.processes}
        self.client = {process.proc: process.client for process in history.processes}
        group = {hold.proc: hold.group for hold in history.holds.rows()}
        self.standing: dict[tuple[int, int], dict[int, int]] = {}
        """(partition, isolation level) to what final reads at it showed: offset -> value."""
        self.got: dict[tuple[int, int], dict[int, int]] = {}
        """(group, partition) -> offset -> when a member first got a record there."""
        self.reported: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """(process, partition) -> (when, offset) of all that a program reported."""
        for record in history.records.rows():
            if record.kind == POLL and record.final:
                here = self.standing.setdefault((record.part, record.iso), {})
                here[record.off] = max(record.val, here.get(record.off, -1))
            elif record.kind == POLL and record.proc in group:
                got = self.got.setdefault((group[record.proc], record.part), {})
                got[record.off] = min(record.t1, got.get(record.off, record.t1))
                if self.client.get(record.proc) == PROGRAM:
                    self.reported.setdefault((record.proc, record.part), []).append((record.t1, record.off))

    def reported_by(self, commit: GroupCommit) -> int:
        """The highest offset of its partition that its process had reported when it sent it; -1 for none."""
        own = self.reported.get((commit.proc, commit.part), ())
        return max((off for t, off in own if t <= commit.t0), default=-1)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Every record is told of once, with the first member that passed it over.

    Not where an administrator moved positions. A client library that is killed takes with it what it got and did not
    report: of such a group and partition nothing is said.
    """
    places = seen.view(positions_of).places
    if not places:
        return
    reads = _GroupReadIndex(seen.history)
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
            for off, val in reads.standing.get((place.part, reads.isolation[hold.proc]), {}).items():
                if lowest <= off < hold.pos and not got.get(off, hold.t0 + 1) <= hold.t0:
                    found = (hold.t0, hold.proc, hold.pos, val)
                    passed[off] = min(found, passed.get(off, found))
        own = _own_commits(place, reads, {pos for _, _, pos, _ in passed.values()})
        for off, (t0, proc, pos, val) in passed.items():
            reported = [reported for sent, reported in own.get(pos, ()) if sent <= t0]
            evidence = "" if not reported else OWN_COMMIT if min(reported) < off else SKIPPED
            yield Witness("commit-ahead", evidence, place.part, off, val, -1, proc, pos)


def _own_commits(
    place: GroupPartitionHistory, reads: _GroupReadIndex, positions: set[int]
) -> dict[int, list[tuple[int, int]]]:
    """Position -> (when, up to where its process had reported) of each commit by a program outside of transactions."""
    found: dict[int, list[tuple[int, int]]] = {}
    for commit in place.commits:
        if commit.off in positions and commit.st != FAIL and commit.txn < 0 and reads.client[commit.proc] == PROGRAM:
            found.setdefault(commit.off, []).append((commit.t0, reads.reported_by(commit)))
    return found


def _may_hide_reads(place: GroupPartitionHistory, reads: _GroupReadIndex) -> bool:
    """Our own client and programs report a record before they commit what is behind it: their crash hides nothing."""
    return any(hold.how == CRASHED and reads.client[hold.proc] not in (OWN, PROGRAM) for hold in place.holds)


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
