"""Defines the invariants of the metadata quorum: one leader an epoch, one vote, nothing committed is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from squall.broker.protocol.ids import NO_NODE
from squall.chaos.runtimes.sim.invariants.batches import CommittedBatches, LogCopy, are_alike
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant


class NodeQuorumView(NamedTuple):
    """Holds one node's state in the metadata quorum: epoch, vote, leader and log offsets. The invariants are checked
    only when the node reports that its epoch, vote and leader are durable.
    """

    node: int
    incarnation: int
    leads: bool
    epoch: int
    voted: int
    """Is the node that got this node's vote in this epoch, or NO_NODE."""
    leader: int
    """Is the leader of this epoch, as far as the node knows, or NO_NODE."""
    hw: int
    log_end: int
    durable: tuple[int, int, int] | None = None
    """Is (epoch, vote, leader) as a power loss would leave them; known only if they have just changed."""
    believed: tuple[tuple[int, int], ...] = ()
    """Lists, for a leader, (voter, end offset that the voter has reported as durable); -1 before the voter's first
    report.
    """
    deserted: float = 0.0
    """Is the time since a majority last fetched from this leader, as a multiple of the time after which it must resign.
    1.0: it must resign now. 0.0 on a node that does not lead.
    """


@dataclass(slots=True)
class QuorumModel:
    """Holds what the checks have seen of the metadata log over the whole simulation: its committed records, leaders and
    votes.
    """

    voters: tuple[int, ...] = ()
    ledger: CommittedBatches = field(default_factory=CommittedBatches)
    copies: dict[int, LogCopy] = field(default_factory=dict)
    durable: dict[int, int] = field(default_factory=dict)
    """Maps a node to the durable end of its metadata log. Nodes with damaged disks are left out. Updated when a
    leader's high watermark changes, or when a voter reports another end offset to the leader.
    """
    leaders: dict[int, int] = field(default_factory=dict)
    """Maps an epoch to the node that led it."""
    votes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Maps (node, epoch) to the node that got its vote."""
    epochs: dict[int, int] = field(default_factory=dict)
    """Maps a node to the highest epoch that it has been in, over all its incarnations."""

    def holds_durably(self, node: int, end: int) -> bool:
        """Return whether a node has all committed records before `end`, and no power loss can take them."""
        copy = self.copies.get(node)
        return copy is not None and copy.matched >= end and self.durable.get(node, end) >= end


@invariant("one-controller-per-epoch", CheckTrigger.QUORUM, "Raft: Election Safety; KRaft: NeverTwoLeadersInSameEpoch")
def one_controller_per_epoch(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """No two nodes ever lead the quorum in the same epoch."""
    if not now.leads:
        return None
    other = quorum.leaders.get(now.epoch, now.node)
    return None if other == now.node else f"node {other} led epoch {now.epoch}, too"


@invariant(
    "one-vote-per-epoch", CheckTrigger.QUORUM, "Raft, section 5.2; KIP-595: the vote is durable before it is told"
)
def one_vote_per_epoch(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """A node gives one vote in an epoch, and does not forget its vote: not by a kill, not by a power loss."""
    if now.voted == NO_NODE:
        return None
    told = quorum.votes.get((now.node, now.epoch), now.voted)
    return None if told == now.voted else f"voted for {told} and for {now.voted} in epoch {now.epoch}"


@invariant("vote-durable-before-told", CheckTrigger.QUORUM, "KIP-595; Raft, section 5.6: persisted before responding")
def vote_durable_before_told(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """Epoch, vote and leader are durable before any message carries them."""
    mine = (now.epoch, now.voted, now.leader)
    if now.durable is None or now.durable == mine:
        return None
    return f"(epoch, vote, leader) is {mine}, and durable {now.durable}"


@invariant("quorum-epoch-monotone", CheckTrigger.QUORUM, "Raft, section 5.1; KIP-595: quorum-state is durable")
def quorum_epoch_monotone(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """The epoch that a node is in never goes back, over all its incarnations."""
    known = quorum.epochs.get(now.node, now.epoch)
    return None if now.epoch >= known else f"in epoch {now.epoch}, after {known}"


@invariant("metadata-hw-monotone", CheckTrigger.QUORUM, "KIP-595: the high watermark never goes back")
def metadata_hw_monotone(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """A node's high watermark of the metadata log does not go back while it runs."""
    if before is None or before.incarnation != now.incarnation or now.hw >= before.hw:
        return None
    return f"from {before.hw} to {now.hw}"


@invariant("metadata-committed-prefix", CheckTrigger.QUORUM, "Raft: State Machine Safety; KRaft: NoLogDivergence")
def metadata_committed_prefix(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """Below its high watermark a node's metadata log holds the records that the quorum has committed. (Records before
    its start are in a snapshot: `image-is-a-replay` checks them.)
    """
    copy = quorum.copies[now.node]
    # A follower may hear of a high watermark that its own log has not reached yet.
    if min(now.hw, now.log_end) <= copy.matched:
        return None
    mine, committed = copy.first_difference(quorum.ledger)
    return f"high watermark {now.hw}; has {mine}, committed is {committed}, up to {quorum.ledger.end}"


@invariant(
    "metadata-leader-completeness", CheckTrigger.QUORUM, "Raft: Leader Completeness; KRaft: LeaderHasAllAckedValues"
)
def metadata_leader_completeness(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """The quorum leader of the newest epoch holds every committed metadata record."""
    # A leader of an earlier epoch, which has not heard of its successor, may lack what that one has committed.
    if not now.leads or now.epoch < max(quorum.leaders, default=-1):
        return None
    if before is not None and before.leads and before.epoch == now.epoch and before.hw == now.hw:
        return None
    copy = quorum.copies[now.node]
    if copy.matched >= quorum.ledger.end:
        return None
    mine, committed = copy.first_difference(quorum.ledger)
    return f"leads epoch {now.epoch}; has {mine}, committed is {committed}, up to {quorum.ledger.end}"


@invariant(
    "metadata-held-by-majority", CheckTrigger.QUORUM, "Raft, section 5.3; KIP-595: committed is what a majority holds"
)
def metadata_held_by_majority(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """Records that a quorum leader considers committed are durable in the logs of a majority of the voters. (On a disk
    that was damaged, or that forgets synced data, they only have to be in the log.)
    """
    if not now.leads or (before is not None and before.hw == now.hw) or not quorum.voters:
        return None
    end = min(now.hw, quorum.ledger.end)
    holders = [node for node in quorum.voters if quorum.holds_durably(node, end)]
    if len(holders) > len(quorum.voters) // 2:
        return None
    durable = f"durable are {quorum.durable}"
    return f"high watermark {now.hw} is held by {holders} of {list(quorum.voters)}; {durable}"


@invariant("metadata-believed-end-is-shared", CheckTrigger.QUORUM, "KIP-595: fetch offsets; Raft, figure 2")
def metadata_believed_end_is_shared(
    before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel
) -> str | None:
    """The newest quorum leader believes each voter's log to be durable up to the end offset that the voter reported. Up
    to this offset the voter's records are durable, and the same as the leader's.
    """
    if not now.leads or now.epoch < max(quorum.leaders, default=-1):
        return None
    if before is not None and before.believed == now.believed:
        return None
    mine = quorum.copies[now.node]
    for voter, end in now.believed:
        its = quorum.copies.get(voter)
        # In a later epoch the voter may have truncated what it has reported to this leader.
        if end <= 0 or its is None or quorum.epochs.get(voter, 0) > now.epoch:
            continue
        if not are_alike(mine, its, end):
            return f"believes that node {voter} has all before {end}; its log ends at {its.end}"
        if quorum.durable.get(voter, end) < end:
            return f"believes that node {voter} has all before {end}; durable is what is before {quorum.durable[voter]}"
    return None


@invariant(
    "metadata-commits-own-epoch", CheckTrigger.QUORUM, "Raft, section 5.4.2 and figure 8; KIP-595: leader-change record"
)
def metadata_commits_own_epoch(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """A quorum leader moves its high watermark only when that commits a record of its own epoch: records of earlier
    epochs alone can still be overwritten, even if a majority holds them.
    """
    if before is None or not (before.leads and now.leads) or before.epoch != now.epoch or now.hw <= before.hw:
        return None
    last = next((batch for batch in reversed(quorum.copies[now.node].batches) if batch.base < now.hw), None)
    if last is None or last.epoch == now.epoch:
        return None
    return f"leads epoch {now.epoch}; the last record below the high watermark {now.hw} is of epoch {last.epoch}"


GIVES_UP = 1.2
"""Limits for how long a quorum leader may lead while no majority fetches from it: 1.2 times the time after which it
must resign. The excess of 0.2 is tolerance, because its timers are not exact.
"""


@invariant(
    "metadata-leader-is-followed", CheckTrigger.QUORUM, "KAFKA-15489: check-quorum; Raft dissertation, section 6.2"
)
def metadata_leader_is_followed(before: NodeQuorumView | None, now: NodeQuorumView, quorum: QuorumModel) -> str | None:
    """A quorum leader from which no majority fetches any more resigns in time, because there may be another leader. (A
    node that was paused may not know for how long. So a leader is reported only if it is overdue at two checks, at
    different times.)
    """
    if before is None or not (before.leads and now.leads) or before.epoch != now.epoch:
        return None
    if before.deserted <= GIVES_UP or now.deserted <= before.deserted:
        return None
    return f"leads epoch {now.epoch} although no majority has fetched for {now.deserted:.1f} times its patience"
