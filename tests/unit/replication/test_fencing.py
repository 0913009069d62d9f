"""Leader epochs, partition epochs and broker epochs: who is heard, and who is too late."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import (
    NO_EFFECTS,
    NO_EPOCH,
    FetchRefused,
    IsrChanged,
    LeaderAndIsr,
    Partition,
    ProposeIsr,
)
from tests.support.replication.partitions import LAG_MS, any_of, fetched, follower, idle, leader, only, state


def test_request_of_an_older_epoch_is_fenced() -> None:
    assert leader().check_leader_epoch(4) is ErrorCode.FENCED_LEADER_EPOCH


def test_request_of_a_newer_epoch_has_to_wait_for_this_broker_to_learn_of_it() -> None:
    assert leader().check_leader_epoch(6) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_request_of_the_same_epoch_is_served_by_the_leader_only() -> None:
    assert leader().check_leader_epoch(5) is ErrorCode.NONE
    assert follower().check_leader_epoch(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_request_without_an_epoch_is_served_by_the_leader_only() -> None:
    assert leader().check_leader_epoch(NO_EPOCH) is ErrorCode.NONE
    assert follower().check_leader_epoch(NO_EPOCH) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_epoch_is_compared_before_leadership_so_that_the_client_learns_which_of_both_is_behind() -> None:
    assert follower().check_leader_epoch(4) is ErrorCode.FENCED_LEADER_EPOCH
    assert follower().check_leader_epoch(6) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_replica_that_is_told_nothing_leads_nothing() -> None:
    assert idle().check_leader_epoch(NO_EPOCH) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    "old",
    [
        state(epoch=4, partition_epoch=9),
        state(epoch=5, partition_epoch=9, isr=(1,)),
        state(epoch=4, partition_epoch=11),
    ],
    ids=["both older", "older partition epoch", "older leader epoch"],
)
def test_old_state_changes_nothing(old: LeaderAndIsr) -> None:
    partition = leader()
    assert partition.become_leader(old, 0, 0) == NO_EFFECTS
    assert partition.isr == (1, 2, 3)
    assert (partition.leader_epoch, partition.partition_epoch) == (5, 10)


def test_old_order_to_follow_does_not_end_a_newer_leadership() -> None:
    partition = leader()
    assert partition.become_follower(state(leader=2, epoch=4, partition_epoch=9), 0, 0) == NO_EFFECTS
    assert partition.is_leader


def test_echo_of_the_state_in_force_does_not_forget_the_pending_proposal() -> None:
    partition = leader(isr=(1, 2))
    proposal = only(fetched(partition, 3, 0), ProposeIsr)
    assert partition.become_leader(state(isr=(1, 2)), 0, 0) == NO_EFFECTS
    assert partition.pending is proposal
    assert partition.maximal_isr == (1, 2, 3)


def test_old_order_to_stop_is_ignored_and_a_present_one_is_not() -> None:
    partition = leader()
    assert partition.is_stale_stop(4)
    assert not partition.is_stale_stop(5)
    partition.stop()
    assert not partition.is_leader


def test_fetch_of_an_earlier_incarnation_is_refused_and_leaves_no_trace() -> None:
    partition = leader(log_end=9)
    partition.follower_fetched(2, 3, 102, 0)
    assert partition.follower_fetched(2, 9, 101, 0) == (FetchRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER),)
    assert partition.followers[2].log_end_offset == 3
    assert partition.followers[2].broker_epoch == 102


def test_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    assert leader().follower_fetched(4, 0, 104, 0) == (FetchRefused(ErrorCode.UNKNOWN_LEADER_EPOCH),)


def test_fetch_without_a_broker_epoch_is_taken_on_trust() -> None:
    partition = leader(isr=(1, 2))
    proposal = only(partition.follower_fetched(3, 0, -1, 0), ProposeIsr)
    assert proposal.isr == ((1, 101), (2, -1), (3, -1))


def test_answer_of_another_epoch_or_from_another_place_is_not_appended() -> None:
    partition = follower(log_end=7)
    assert partition.accepts_fetched(5, 7)
    assert not partition.accepts_fetched(4, 7)
    assert not partition.accepts_fetched(6, 7)
    assert not partition.accepts_fetched(5, 6)
    assert not leader(log_end=7).accepts_fetched(5, 7)


def _zombie_with_proposal() -> tuple[Partition, ProposeIsr]:
    partition = leader(log_end=1)
    return partition, only(partition.tick(LAG_MS + 1), ProposeIsr)


def test_fenced_leader_never_advances_the_high_watermark() -> None:
    partition, proposal = _zombie_with_proposal()
    assert partition.isr_rejected(proposal, ErrorCode.FENCED_LEADER_EPOCH, 0) == NO_EFFECTS
    for now_ms in range(LAG_MS, 10 * LAG_MS, LAG_MS // 2):
        assert not any_of(partition.tick(now_ms), IsrChanged)
    assert partition.high_watermark == 0
    assert partition.maximal_isr == (1, 2, 3)
