"""Committed positions of groups: who may have set which one, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from squall.checkers.anomalies.transactions import ended_late, transactions_of
from squall.checkers.history.group_tables import ANY, DELETED, GroupCommit, PartitionOwnership, ReportedCommittedOffset
from squall.checkers.history.tables import ABORT, COMMIT, FAIL, INFO, OK, History, Txn

GROUPS = "Kafka documentation, consumer: a member resumes at the committed position of its group; KIP-848"


@dataclass(slots=True)
class GroupPartitionHistory:
    """The positions of one group in one partition."""

    group: int
    part: int
    commits: list[GroupCommit] = field(default_factory=list)
    """Wanted ones, and those that an administrator may have made."""
    fetches: list[ReportedCommittedOffset] = field(default_factory=list)
    holds: list[PartitionOwnership] = field(default_factory=list)
    carried: list[GroupCommit] = field(default_factory=list)
    """For the same partition of a topic of this name that was deleted. TxnOffsetCommit, and OffsetCommit before version
    10, name topics by their names: what was under way may take effect here (KIP-848).
    """

    @property
    def reset(self) -> bool:
        """An administrator asked for other positions, or for none."""
        return any(commit.off < 0 for commit in self.commits)

    def begins_at(self, t: int) -> int:
        """Return the offset at which the group's reading began, as seen at `t`: members left out records below it
        because they were to begin there. Some hold must have begun by `t`.
        """
        held = [hold for hold in self.holds if hold.t0 <= t]
        by_reset = [hold.pos for hold in held if not hold.begun]
        return max(by_reset) if by_reset else min(hold.pos for hold in held)


@dataclass(slots=True)
class GroupPositions:
    """Holds what decides the positions of all groups."""

    places: list[GroupPartitionHistory]
    txns: dict[int, Txn]
    late: dict[int, frozenset[int]]
    """As `ended_late`."""

    def late_commit(self, commit: GroupCommit) -> bool:
        """A late EndTxn may have committed its transaction, whatever its client asked for."""
        return commit.txn >= 0 and COMMIT in self.late[commit.txn]

    def late_abort(self, commit: GroupCommit) -> bool:
        """A late EndTxn may have aborted its transaction."""
        return commit.txn >= 0 and ABORT in self.late[commit.txn]

    def uncommitted(self, commit: GroupCommit, t: int) -> bool:
        """Nobody had asked for the commit of its transaction by `t`, or nobody ever did."""
        if commit.txn < 0:
            return False
        txn = self.txns[commit.txn]
        return txn.never_commits or txn.te < 0 or txn.te > t

    def known_at(self, commit: GroupCommit) -> int:
        """Return when the commit's success was acknowledged, ns: from then on it is the position, until there is
        another; -1 if never.
        """
        if commit.st != OK or commit.off < 0:
            return -1
        if commit.txn < 0:
            return commit.t1
        txn = self.txns[commit.txn]
        return txn.t1 if txn.committed else -1

    def done_by(self, commit: GroupCommit) -> int:
        """After that nothing of it can take effect any more; -1 if nobody knows."""
        if commit.st == INFO or commit.t1 < 0 or commit.late:
            return -1
        if commit.txn < 0:
            return commit.t1
        txn = self.txns[commit.txn]
        return txn.t1 if txn.st == OK else -1

    def may_explain(self, commit: GroupCommit, off: int, t: int) -> bool:
        """Return whether the commit may have made `off` the position reported at `t`; off -1: none was reported."""
        made = (off, ANY) if off >= 0 else (ANY, DELETED)
        if commit.st == FAIL or commit.t0 > t or commit.off not in made:
            return False
        return not self.uncommitted(commit, t) or self.late_commit(commit)


def _namesakes(history: History) -> Iterator[tuple[int, int]]:
    """A partition of a topic that was deleted, and each one that took its name later."""
    for gone in (each for each in history.partitions if each.deleted):
        for later in history.partitions:
            if later.name == gone.name and later.part > gone.part:
                yield gone.part, later.part


def positions_of(history: History) -> GroupPositions:
    """All places in which something was held, committed or reported. Of deleted topics nothing is kept."""
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
    for commit in everywhere:
        for each in places.values():
            if each.group == commit.group:
                each.commits.append(commit)
    kept = [each for key, each in sorted(places.items()) if each.part in parts]
    return GroupPositions(kept, transactions_of(history).by_op, ended_late(history))
