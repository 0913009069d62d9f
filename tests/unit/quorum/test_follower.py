"""Followers and observers: what they fetch, when they may say so, and how they find a leader."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.effects import AppendFetchedBatches, Truncate
from squall.broker.quorum.election import Role
from squall.broker.quorum.messages import (
    BatchSpan,
    BeginEpoch,
    Diverging,
    EndEpoch,
    Fetch,
    FetchReply,
    QuorumMessage,
    Vote,
)
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.state import QuorumState
from tests.unit.quorum.cores import OK, asked, core, ready, records, said, tell


def follower(
    node_id: int = 3, epochs: tuple[tuple[int, int], ...] = ((2, 0),), end: int = 6
) -> tuple[Raft, QuorumMessage]:
    """Follows node 1 in epoch 5 and has just asked for more."""
    raft = core(node_id, state=QuorumState(epoch=5, leader_id=1), log=epochs, end=end)
    if raft.wants_sync:
        raft.synced(end, 0, 0)
    return raft, asked(ready(raft), 1)


def test_follower_says_where_its_log_ends_and_what_it_knows() -> None:
    assert follower()[1].body == Fetch(epoch=5, offset=6, last_epoch=2, high_watermark=0, max_wait_ms=500)


def test_voter_fetches_on_only_when_what_it_got_is_durable() -> None:
    """The offset that it asks for counts as its acknowledgement."""
    raft, request = follower()
    effects = tell(raft, 1, records(raft, (6, 8, 5)), ticket=request.ticket)
    assert effects.log == (AppendFetchedBatches((BatchSpan(6, 8, 5),), "batches"),)
    assert not said(effects, Fetch)
    raft.synced(8, 0, 3)
    assert said(ready(raft), Fetch) == [Fetch(5, 8, 5, 0, 500)]


def test_voter_syncs_what_it_finds_at_its_start_before_it_fetches() -> None:
    raft = core(3, state=QuorumState(epoch=5, leader_id=1), log=((2, 0),), end=6)
    assert not said(ready(raft), Fetch)
    assert raft.wants_sync


def test_observer_fetches_on_at_once() -> None:
    raft = core(4, state=QuorumState(epoch=5, leader_id=1), log=((2, 0),), end=6)
    request = asked(ready(raft), 1)
    effects = tell(raft, 1, records(raft, (6, 8, 5)), ticket=request.ticket)
    assert said(effects, Fetch) == [Fetch(5, 8, 5, 0, 500)]


def test_high_watermark_of_a_follower_is_the_leaders_within_its_own_log() -> None:
    raft, request = follower()
    tell(raft, 1, records(raft, (6, 8, 5), hw=100), ticket=request.ticket)
    assert raft.high_watermark == 8


def test_high_watermark_never_goes_back() -> None:
    raft, request = follower()
    effects = tell(raft, 1, FetchReply(OK, 5, 1, high_watermark=6), ticket=request.ticket)
    tell(raft, 1, FetchReply(OK, 5, 1, high_watermark=2), ticket=asked(effects, 1).ticket)
    assert raft.high_watermark == 6


@pytest.mark.parametrize(
    ("diverging", "target"),
    [
        (Diverging(2, 3), 3),  # the same epoch ended earlier at the leader
        (Diverging(3, 8), 8),  # the leader never had epoch 4
        (Diverging(1, 1), 0),  # an epoch that this log lacks: back to the end of the one before
    ],
)
def test_follower_truncates_by_epoch_and_asks_again(diverging: Diverging, target: int) -> None:
    raft, request = follower(epochs=((2, 0), (3, 6), (4, 8)), end=10)
    effects = tell(raft, 1, FetchReply(OK, 5, 1, diverging=diverging), ticket=request.ticket)
    assert effects.log == (Truncate(target, 1),)
    assert said(effects, Fetch)[0].offset == target


def test_leader_that_would_cut_off_what_is_committed_stops_the_node() -> None:
    raft, request = follower()
    effects = tell(raft, 1, FetchReply(OK, 5, 1, high_watermark=6), ticket=request.ticket)
    with pytest.raises(AssertionError, match="below the high watermark"):
        tell(raft, 1, FetchReply(OK, 5, 1, diverging=Diverging(2, 5)), ticket=asked(effects, 1).ticket)


@pytest.mark.parametrize(
    "spans", [((7, 8, 5),), ((6, 6, 5),), ((6, 8, 1),), ((6, 8, 6),), ((6, 8, 5), (9, 10, 5)), ((6, 8, 5), (8, 9, 4))]
)
def test_batches_that_do_not_continue_the_log_are_not_taken(spans: tuple[tuple[int, int, int], ...]) -> None:
    raft, request = follower()
    effects = tell(raft, 1, records(raft, *spans), ticket=request.ticket)
    assert effects.log == ()
    assert raft.log.end_offset == 6
    assert raft.next_deadline_ms() == 50, "and it asks again after a pause"


def test_reply_to_an_older_request_is_not_taken() -> None:
    raft, request = follower()
    assert tell(raft, 1, records(raft, (6, 8, 5)), ticket=request.ticket + 1).log == ()


def test_follower_that_cannot_fetch_asks_for_pre_votes_and_keeps_its_epoch() -> None:
    raft, request = follower()
    raft.failed(1, request.ticket, 1)
    raft.tick(2500)
    assert (raft.role, raft.epoch) == (Role.PROSPECTIVE, 5)
    assert said(ready(raft), Vote)[0].pre_vote


def again_after(raft: Raft, request: QuorumMessage, now_ms: int) -> tuple[QuorumMessage, int]:
    """The request fails; the next one, and when it is made."""
    raft.failed(1, request.ticket, now_ms)
    assert raft.ready() is None
    now_ms = raft.next_deadline_ms()
    raft.tick(now_ms)
    return asked(ready(raft), 1), now_ms


def test_pauses_between_fetches_that_fail_double_up_to_a_quarter_of_the_fetch_time_out() -> None:
    raft, request = follower()
    pauses, now_ms = [], 0
    for _ in range(6):
        request, again_ms = again_after(raft, request, now_ms)
        pauses.append(again_ms - now_ms)
        now_ms = again_ms
    assert pauses == [50, 100, 200, 400, 500, 500]


def test_a_reply_makes_the_next_failure_the_first_one_again() -> None:
    raft, request = follower()
    request, now_ms = again_after(raft, request, 0)
    request, now_ms = again_after(raft, request, now_ms)
    request = asked(tell(raft, 1, records(raft), now_ms, request.ticket), 1)
    assert again_after(raft, request, now_ms)[1] - now_ms == 50


def test_follower_refused_by_its_own_leader_does_not_wait_for_the_time_out() -> None:
    """An epoch's leader that does not lead any more will not do so again."""
    raft, request = follower()
    tell(raft, 1, FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, NO_NODE), now_ms=10, ticket=request.ticket)
    raft.tick(10 + 150)
    assert raft.role is Role.PROSPECTIVE


def test_first_successor_stands_at_once_and_the_others_later() -> None:
    first, _ = follower(2)
    other, _ = follower(3)
    for raft in (first, other):
        tell(raft, 1, EndEpoch(5, (2, 3)), now_ms=10)
    first.tick(10)
    other.tick(10)
    assert (first.role, other.role) == (Role.PROSPECTIVE, Role.FOLLOWER)


def test_news_of_a_leader_makes_a_follower() -> None:
    raft = core(3)
    effects = tell(raft, 2, BeginEpoch(4))
    assert (raft.role, raft.leader_id) == (Role.FOLLOWER, 2)
    assert effects.state == QuorumState(epoch=4, leader_id=2)


def test_vote_given_in_an_epoch_stays_on_file_when_its_leader_is_known() -> None:
    raft = core(3, state=QuorumState(epoch=4, voted_id=1))
    assert tell(raft, 2, BeginEpoch(4)).state == QuorumState(epoch=4, voted_id=1, leader_id=2)


def test_refused_fetch_tells_who_leads_now() -> None:
    raft, request = follower()
    tell(raft, 1, FetchReply(ErrorCode.FENCED_LEADER_EPOCH, 7, 2), ticket=request.ticket)
    assert (raft.role, raft.epoch, raft.leader_id) == (Role.FOLLOWER, 7, 2)


def test_observer_asks_one_voter_after_another_who_leads() -> None:
    raft = core(4)
    asked_ids = []
    for now_ms in range(0, 400, 100):
        raft.tick(now_ms)
        (request,) = ready(raft).messages
        asked_ids.append(request.receiver)
        tell(raft, request.receiver, FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, NO_NODE), now_ms, request.ticket)
    assert sorted(asked_ids[:3]) == [1, 2, 3]


def test_observer_never_stands_for_election() -> None:
    raft = core(4, state=QuorumState(epoch=5, leader_id=1))
    for now_ms in range(0, 60_000, 500):
        raft.tick(now_ms)
        for message in ready(raft).messages:
            raft.failed(message.receiver, message.ticket, now_ms)
    assert raft.role in (Role.FOLLOWER, Role.UNATTACHED)


def test_observer_comes_back_to_a_leader_that_was_out_of_reach() -> None:
    raft = core(4, state=QuorumState(epoch=5, leader_id=1))
    now_ms = 0
    while now_ms < 5000:
        for message in ready(raft).messages:
            raft.failed(message.receiver, message.ticket, now_ms)
        now_ms = raft.next_deadline_ms()
        raft.tick(now_ms)
    request = ready(raft).messages[0]
    while request.receiver != 1:
        raft.failed(request.receiver, request.ticket, now_ms)
        now_ms = raft.next_deadline_ms()
        raft.tick(now_ms)
        (request,) = ready(raft).messages
    tell(raft, 1, records(raft, (0, 2, 5)), now_ms, request.ticket)
    assert raft.log.end_offset == 2
