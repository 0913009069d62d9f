"""Collects the committed positions of groups: which request may have set each position, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from squall.checkers.anomalies.transactions import ended_late, transactions_of
from squall.checkers.history.group_tables import ANY, DELETED, GroupCommit, PartitionOwnership, ReportedCommittedOffset
from squall.checkers.history.tables import ABORT, COMMIT, FAIL, INFO, OK, History, Txn

GROUPS = "Kafka documentation, consumer: a member resumes at the committed position of its group; KIP-848"


@dataclass(slots=True)
class GroupPartitionHistory:
    """Holds the commits, position fetches and ownerships of one group in one partition."""

    group: int
    part: int
    commits: list[GroupCommit] = field(default_factory=list)
    """Holds the commits that members requested, and the commits that an administrator's request may have made."""
    fetches: list[ReportedCommittedOffset] = field(default_factory=list)
    holds: list[PartitionOwnership] = field(default_factory=list)
    carried: list[GroupCommit] = field(default_factory=list)
    """Holds commits for the same partition of a deleted topic of the same name. TxnOffsetCommit, and OffsetCommit
    before version 10, name topics by name, so a request that was under way at the deletion may take effect in the new
    topic (KIP-848).
    """

    @property
    def reset(self) -> bool:
        """Return whether an administrator requested to change or delete the group's position in this partition."""
        return any(commit.off < 0 for commit in self.commits)

    def begins_at(self, t: int) -> int:
        """Return the offset at which the group began to read the partition. Members are not expected to read records
        below that.

        It is the highest offset at which a member began by its `auto.offset.reset`; or, if no member did, the lowest
        offset at which a member began. Only ownerships that began by `t` ns count; there must be at least one.
        """
        held = [hold for hold in self.holds if hold.t0 <= t]
        by_reset = [hold.pos for hold in held if not hold.begun]
        # The highest one: a member that found no committed position passed over all before it, as configured.
        return max(by_reset) if by_reset else min(hold.pos for hold in held)


@dataclass(slots=True)
class GroupPositions:
    """Holds the commits, position fetches and ownerships of all groups by partition, and the history's transactions."""

    places: list[GroupPartitionHistory]
    txns: dict[int, Txn]
    late: dict[int, frozenset[int]]
    """Maps each transaction to the results (COMMIT, ABORT) that a late EndTxn may have given it: a request that was
    sent for an earlier transaction of the same producer epoch.
    """

    def late_commit(self, commit: GroupCommit) -> bool:
        """Return whether a late EndTxn may have committed the commit's transaction, even if its client requested an
        abort. A late EndTxn was sent for an earlier transaction of the same producer epoch.
        """
        return commit.txn >= 0 and COMMIT in self.late[commit.txn]

    def late_abort(self, commit: GroupCommit) -> bool:
        """Return whether a late EndTxn, which was sent for an earlier transaction of the same producer epoch, may have
        aborted the commit's transaction.
        """
        return commit.txn >= 0 and ABORT in self.late[commit.txn]

    def uncommitted(self, commit: GroupCommit, t: int) -> bool:
        """Return whether the offset commit was part of a transaction that cannot have been committed by `t` ns: its
        client had not requested that it be committed by then, or the request failed. False for a commit outside of
        transactions.
        """
        if commit.txn < 0:
            return False
        txn = self.txns[commit.txn]
        return txn.never_commits or txn.te < 0 or txn.te > t

    def known_at(self, commit: GroupCommit) -> int:
        """Return when the commit's success was acknowledged, in ns; -1 if it never was. From then on its offset is the
        group's position, until another commit replaces it.
        """
        if commit.st != OK or commit.off < 0:
            return -1
        if commit.txn < 0:
            return commit.t1
        txn = self.txns[commit.txn]
        return txn.t1 if txn.committed else -1

    def done_by(self, commit: GroupCommit) -> int:
        """Return the time in ns after which the commit can no longer take effect; -1 if that is not known."""
        if commit.st == INFO or commit.t1 < 0 or commit.late:
            return -1
        if commit.txn < 0:
            return commit.t1
        txn = self.txns[commit.txn]
        return txn.t1 if txn.st == OK else -1

    def may_explain(self, commit: GroupCommit, off: int, t: int) -> bool:
        """Return whether the commit may have set the position `off` that was reported at `t` ns; -1 for `off` means
        that no position was reported.
        """
        made = (off, ANY) if off >= 0 else (ANY, DELETED)
        if commit.st == FAIL or commit.t0 > t or commit.off not in made:
            return False
        return not self.uncommitted(commit, t) or self.late_commit(commit)


def _namesakes(history: History) -> Iterator[tuple[int, int]]:
    """Yield each partition of a deleted topic with each partition that took its name later, as (deleted id, later id).
    """
    for gone in (each for each in history.partitions if each.deleted):
        for later in history.partitions:
            if later.name == gone.name and later.part > gone.part:
                yield gone.part, later.part


def positions_of(history: History) -> GroupPositions:
    """Return the history of each group and partition in which a position was owned, committed or reported. Partitions
    of deleted topics are left out.
    """
    places: dict[tuple[int, int], GroupPartitionHistory] = {}
    parts = {partition.part for partition in history.partitions if not partition.deleted}

    def place(group: int, part: int) -> GroupPartitionHistory:
        return places.setdefault((group, part), GroupPartitionHistory(group, part))

    for hold in history.holds.rows():
        place(hold.group, hold.part).holds.append(hold)
    for fetch in history.fetches.rows():
        place(fetch.group, fetch.part).fetches.append(fetch)
    everywhere = []
    for commit in history.commits.rows():
        if commit.part < 0:
            everywhere.append(commit)
        else:
            place(commit.group, commit.part).commits.append(commit)
    for earlier, later in _namesakes(history):
        for (group, part), gone in list(places.items()):
            if part == earlier and (group, later) in places:
                places[group, later].carried += gone.commits
    # A request without a partition, as the deletion of a group, concerns all partitions of the group.
    for commit in everywhere:
        for each in places.values():
            if each.group == commit.group:
                each.commits.append(commit)
    kept = [each for key, each in sorted(places.items()) if each.part in parts]
    return GroupPositions(kept, transactions_of(history).by_op, ended_late(history))
