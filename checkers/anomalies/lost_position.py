"""Finds lost-position: a coordinator reports a wrong committed position of a group.

The position is lower than an earlier one, although no client committed a lower one; or it is back after the group was
deleted; or no client ever requested it; or its metadata is not that of its commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.group_positions import GROUPS, GroupPartitionHistory, GroupPositions, positions_of
from squall.checkers.findings import Witness
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


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
