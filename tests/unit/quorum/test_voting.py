"""Checks which candidate gets a vote, and what must be durable before the answer (KIP-595, KIP-996; Raft sections 5.2
and 5.4.1).
"""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.election import Role
from squall.broker.quorum.messages import BeginEpoch, EndEpoch, Fetch, FetchReply, Vote, VoteReply
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.state import MAX_EPOCH, QuorumState
from tests.unit.quorum.cores import OK, asked, core, lead, ready, records, said, stand, tell


def vote(epoch: int, last_epoch: int = 0, end_offset: int = 0, *, pre_vote: bool = False) -> Vote:
    return Vote(epoch, last_epoch, end_offset, pre_vote)


def test_vote_is_told_only_together_with_the_state_that_remembers_it() -> None:
    effects = tell(core(3), 1, vote(1))
    assert effects.state == QuorumState(epoch=1, voted_id=1)
    assert said(effects, VoteReply) == [VoteReply(OK, 1, NO_NODE, granted=True)]


def test_no_second_vote_in_an_epoch() -> None:
    voter = core(3)
    tell(voter, 1, vote(1))
    assert not said(tell(voter, 2, vote(1)), VoteReply)[0].granted


def test_no_second_vote_in_an_epoch_after_a_restart() -> None:
    state = tell(core(3), 1, vote(1)).state
    assert state is not None
    assert not said(tell(core(3, state=state), 2, vote(1)), VoteReply)[0].granted


def test_the_same_candidate_may_ask_again() -> None:
    voter = core(3)
    tell(voter, 1, vote(1))
    assert said(tell(voter, 1, vote(1)), VoteReply)[0].granted


def test_no_vote_in_an_epoch_whose_leader_is_known() -> None:
    voter = core(3, state=QuorumState(epoch=4, leader_id=2))
    assert not said(tell(voter, 1, vote(4, 9, 99)), VoteReply)[0].granted


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "granted"),
    [(2, 6, True), (2, 7, True), (3, 1, True), (2, 5, False), (1, 100, False), (0, 0, False)],
)
def test_vote_only_for_a_log_that_is_no_older_and_no_shorter(last_epoch: int, end_offset: int, granted: bool) -> None:
    voter = core(3, log=((1, 0), (2, 4)), end=6)
    assert said(tell(voter, 1, vote(5, last_epoch, end_offset)), VoteReply)[0].granted is granted


def test_request_of_an_older_epoch_is_fenced_and_learns_the_newer() -> None:
    voter = core(3, state=QuorumState(epoch=5, leader_id=2))
    assert said(tell(voter, 1, vote(4)), VoteReply) == [VoteReply(ErrorCode.FENCED_LEADER_EPOCH, 5, 2)]


def test_request_of_a_newer_epoch_ends_leadership_even_without_a_vote() -> None:
    leader = core(1)
    lead(leader)
    effects = tell(leader, 2, vote(9, 0, 0))
    assert leader.role is Role.UNATTACHED
    assert effects.state == QuorumState(epoch=9)
    assert not said(effects, VoteReply)[0].granted, "its own log is longer"


def test_node_that_is_no_voter_gets_no_vote_and_moves_no_epoch() -> None:
    voter = core(3)
    effects = tell(voter, 9, vote(7))
    assert said(effects, VoteReply)[0].error is ErrorCode.INCONSISTENT_VOTER_SET
    assert voter.epoch == 0


def test_observer_gives_no_vote() -> None:
    assert not said(tell(core(4), 1, vote(1)), VoteReply)[0].granted


def test_candidate_votes_for_itself_before_it_asks() -> None:
    candidate = core(1)
    effects = stand(candidate)
    assert effects.state == QuorumState(epoch=1, voted_id=1)
    assert said(effects, Vote) == [vote(1), vote(1)]


def test_candidate_votes_for_no_other_in_its_epoch() -> None:
    candidate = core(1)
    stand(candidate)
    assert not said(tell(candidate, 2, vote(1)), VoteReply)[0].granted


def test_pre_vote_binds_nobody() -> None:
    voter = core(3)
    effects = tell(voter, 1, vote(0, pre_vote=True))
    assert said(effects, VoteReply)[0].granted
    assert effects.state is None
    assert said(tell(voter, 2, vote(0, pre_vote=True)), VoteReply)[0].granted


def test_pre_vote_is_refused_while_the_leader_is_heard() -> None:
    """KIP-996: a node that was cut off must not disturb a quorum that works."""
    voter = core(3, state=QuorumState(epoch=2, leader_id=1), log=((2, 0),), end=1)
    voter.synced(1, 0, 0)
    request = asked(ready(voter), 1)
    tell(voter, 1, records(voter, (1, 2, 2)), now_ms=10, ticket=request.ticket)
    assert not said(tell(voter, 2, vote(2, 2, 9, pre_vote=True), now_ms=1500), VoteReply)[0].granted
    assert said(tell(voter, 2, vote(2, 2, 9, pre_vote=True), now_ms=2010), VoteReply)[0].granted


def prospective(node_id: int, end: int = 9) -> Raft:
    """A follower of a dead leader 1, which asks for pre-votes."""
    voter = core(node_id, state=QuorumState(epoch=2, leader_id=1), log=((2, 0),), end=end)
    while voter.role is not Role.PROSPECTIVE:
        voter.tick(voter.next_deadline_ms())
    ready(voter)
    return voter


@pytest.mark.parametrize(("node_id", "grants"), [(2, False), (3, True)])
def test_of_two_that_ask_for_pre_votes_at_once_the_lower_id_comes_first(node_id: int, grants: bool) -> None:
    voter = prospective(node_id)
    asked_ms = voter.member.began_ms
    assert said(tell(voter, 5 - node_id, vote(2, 2, 9, pre_vote=True), asked_ms), VoteReply)[0].granted is grants
    later = tell(voter, 5 - node_id, vote(2, 2, 9, pre_vote=True), asked_ms + 150)
    assert said(later, VoteReply)[0].granted, "it had its time"


def test_who_was_refused_lets_the_other_come_first() -> None:
    voter = core(2, state=QuorumState(epoch=2, leader_id=1), log=((2, 0),), end=9)
    while voter.role is not Role.PROSPECTIVE:
        voter.tick(voter.next_deadline_ms())
    asked_3 = asked(ready(voter), 3)
    tell(voter, 3, VoteReply(OK, 2, 1, granted=False), voter.member.began_ms, ticket=asked_3.ticket)
    assert said(tell(voter, 3, vote(2, 2, 9, pre_vote=True), voter.member.began_ms), VoteReply)[0].granted


def test_a_longer_log_comes_before_a_lower_id() -> None:
    voter = prospective(2)
    assert said(tell(voter, 3, vote(2, 2, 10, pre_vote=True), voter.member.began_ms), VoteReply)[0].granted


def test_who_grants_a_pre_vote_does_not_stand_in_the_next_moment() -> None:
    voter = core(3, state=QuorumState(epoch=2, leader_id=1), log=((2, 0),), end=9)
    last_ms = voter.member.deadline_ms - 1
    tell(voter, 2, vote(2, 2, 9, pre_vote=True), now_ms=last_ms)
    voter.tick(last_ms + 149)
    assert voter.role is Role.FOLLOWER
    voter.tick(last_ms + 150)
    assert voter.role is Role.PROSPECTIVE


def test_a_leader_knows_whom_it_succeeds_and_when_that_one_last_answered() -> None:
    voter = core(3, state=QuorumState(epoch=2, leader_id=1))
    fetches = asked(ready(voter), 1)
    tell(voter, 1, records(voter, (0, 9, 2)), now_ms=1234, ticket=fetches.ticket)
    voter.synced(9, 0, 1234)
    ready(voter)
    lead(voter)
    assert voter.leadership is not None
    assert voter.leadership.predecessor == (1, 1234)


def test_a_leader_that_heard_none_before_it_succeeds_nobody() -> None:
    leader = core(1, state=QuorumState(epoch=2, leader_id=1))
    lead(leader)
    assert leader.leadership is not None
    assert leader.leadership.predecessor is None


def test_leader_refuses_pre_votes() -> None:
    leader = core(1)
    lead(leader)
    assert not said(tell(leader, 2, vote(1, 9, 9, pre_vote=True)), VoteReply)[0].granted


def test_lost_pre_vote_begins_no_epoch() -> None:
    node = core(1)
    node.tick(node.next_deadline_ms())
    for request in ready(node).messages:
        tell(node, request.receiver, VoteReply(OK, 0, NO_NODE, granted=False), ticket=request.ticket)
    assert (node.role, node.epoch) == (Role.UNATTACHED, 0)


def test_round_in_which_nobody_can_be_reached_is_over_at_once() -> None:
    node = core(1)
    node.tick(node.next_deadline_ms())
    for request in ready(node).messages:
        node.failed(request.receiver, request.ticket, 5)
    assert node.role is Role.UNATTACHED
    assert node.next_deadline_ms() <= 5 + 150


def test_late_reply_of_an_earlier_round_counts_for_nothing() -> None:
    node = core(1, voters=(1, 2, 3, 4, 5))
    old = stand(node).messages
    stand(node)  # No node answered, so it is a candidate again.
    assert node.epoch == 2
    for request in old:
        tell(node, request.receiver, VoteReply(OK, 1, NO_NODE, granted=True), ticket=request.ticket)
    assert node.role is Role.CANDIDATE


def test_majority_elects_and_the_leader_is_remembered_before_it_speaks() -> None:
    node = core(1)
    effects = lead(node)
    assert effects.state == QuorumState(epoch=1, voted_id=1, leader_id=1)
    assert said(effects, BeginEpoch) == [BeginEpoch(1), BeginEpoch(1)]


def test_leader_that_restarts_never_leads_that_epoch_again() -> None:
    """Check that the epoch ends: what it had handed out unsynced may be gone, and the same offsets of the same epoch
    must not be written twice.
    """
    node = core(1, state=QuorumState(epoch=3, voted_id=1, leader_id=1), log=((3, 0),), end=4)
    assert node.role is Role.RESIGNED
    assert node.leader_id == NO_NODE
    assert said(ready(node), EndEpoch) == [EndEpoch(3, ()), EndEpoch(3, ())]
    refused = said(tell(node, 2, Fetch(3, 4, 3, 0, 500)), FetchReply)
    assert refused == [FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, NO_NODE)]


def test_second_leader_of_an_epoch_is_refused_and_noted() -> None:
    node = core(3, state=QuorumState(epoch=3, leader_id=1))
    ready(node)
    effects = tell(node, 2, BeginEpoch(3))
    assert asked(effects, 2).body.error is ErrorCode.INVALID_REQUEST  # type: ignore[union-attr]
    assert [note.event for note in effects.notes] == ["two_leaders"]


def test_sole_voter_elects_itself_at_once() -> None:
    node = core(1, voters=(1,))
    node.tick(0)
    assert node.role is Role.LEADER
    assert ready(node).state == QuorumState(epoch=1, voted_id=1, leader_id=1)


def test_lost_state_file_does_not_take_the_epoch_below_the_log() -> None:
    node = core(1, log=((7, 0),), end=3)
    assert node.epoch == 7
    assert ready(node).state == QuorumState(epoch=7)


def test_first_election_of_a_fresh_cluster_waits_less_than_its_jitter() -> None:
    assert core(1).next_deadline_ms() < 150
    assert core(1, log=((1, 0),), end=1).next_deadline_ms() >= 1000


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3)])
def test_nobody_stands_in_the_highest_epoch_and_the_node_lives_on(voters: tuple[int, ...]) -> None:
    """One Vote of a pretended voter brought it there; the epoch after it fits into no request and no batch."""
    node = core(voters=voters, state=QuorumState(MAX_EPOCH))
    for _ in range(20):
        node.tick(node.next_deadline_ms())
        effects = ready(node)
        assert effects.state is None
        assert not said(effects, Vote)
        assert node.role is Role.UNATTACHED


def test_the_epoch_before_the_highest_one_is_followed_by_it() -> None:
    node = core(state=QuorumState(MAX_EPOCH - 1))
    lead(node)
    assert node.epoch == MAX_EPOCH


def test_who_says_that_it_is_this_node_itself_gets_no_vote_and_moves_no_epoch() -> None:
    """A sole voter would be unseated by a Vote in its own name."""
    alone = core(voters=(1,))
    while alone.role is not Role.LEADER:
        alone.tick(alone.next_deadline_ms())
    before = alone.epoch
    assert said(tell(alone, 1, vote(MAX_EPOCH)), VoteReply)[0].error is ErrorCode.INCONSISTENT_VOTER_SET
    assert (alone.epoch, alone.role) == (before, Role.LEADER)
