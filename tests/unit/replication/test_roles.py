"""Becoming leader, becoming follower, stopping."""

from __future__ import annotations

import pytest

from squall.broker.replication import (
    NO_EFFECTS,
    HighWatermarkMoved,
    LeadershipLost,
    StartFetching,
    StopFetching,
    WriteLeaderEpoch,
)
from tests.support.replication.partitions import fetched, follower, idle, leader, state


def test_new_leader_records_where_its_epoch_begins_even_if_it_writes_nothing() -> None:
    partition = idle(log_end=7, high_watermark=3)
    assert partition.become_leader(state(), 7, 0) == (WriteLeaderEpoch(5, 7),)
    assert partition.epoch_start_offset == 7
    assert partition.is_leader
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (1, 5, 10)


def test_follower_that_becomes_leader_stops_fetching_first() -> None:
    effects = follower(log_end=7).become_leader(state(epoch=6, partition_epoch=11), 7, 0)
    assert effects == (StopFetching(), WriteLeaderEpoch(6, 7))


def test_leader_that_stays_in_its_epoch_does_not_begin_it_again() -> None:
    partition = leader(log_end=7)
    partition.appended(9, 0)
    effects = partition.become_leader(state(partition_epoch=11), 9, 0)
    assert effects == NO_EFFECTS
    assert partition.epoch_start_offset == 7


def test_leader_that_is_elected_again_begins_a_new_epoch_where_its_log_ends() -> None:
    partition = leader(log_end=7)
    partition.appended(9, 0)
    assert partition.become_leader(state(epoch=7, partition_epoch=12), 9, 0) == (WriteLeaderEpoch(7, 9),)
    assert partition.epoch_start_offset == 9


def test_follower_fetches_from_its_leader() -> None:
    partition = idle(log_end=7)
    assert partition.become_follower(state(leader=2), 7, 0) == (StartFetching(2, 5),)
    assert partition.is_follower


def test_follower_begins_anew_in_every_epoch_even_if_the_leader_stays_the_same() -> None:
    partition = follower()
    assert partition.become_follower(state(leader=2, epoch=6, partition_epoch=11), 0, 0) == (StartFetching(2, 6),)


def test_follower_goes_on_when_only_the_isr_has_changed() -> None:
    partition = follower()
    assert partition.become_follower(state(leader=2, partition_epoch=11, isr=(2,)), 0, 0) == NO_EFFECTS
    assert partition.isr == (2,)


def test_follower_without_a_leader_stops_fetching() -> None:
    partition = follower()
    assert partition.become_follower(state(leader=-1, epoch=6, partition_epoch=11), 0, 0) == (StopFetching(),)


def test_deposed_leader_answers_those_who_wait_and_then_follows() -> None:
    partition = leader(log_end=4)
    effects = partition.become_follower(state(leader=3, epoch=6, partition_epoch=11), 4, 0)
    assert effects == (LeadershipLost(5), StartFetching(3, 6))
    assert not partition.is_leader
    assert partition.epoch_start_offset == -1
    assert partition.followers == {}


def test_stopped_leader_answers_those_who_wait() -> None:
    partition = leader()
    assert partition.stop() == (LeadershipLost(5),)
    assert not partition.is_leader
    assert partition.stop() == NO_EFFECTS


def test_stopped_follower_stops_fetching() -> None:
    assert follower().stop() == (StopFetching(),)


def test_replica_that_was_stopped_can_be_taken_up_again_by_a_newer_state() -> None:
    partition = leader(log_end=4)
    partition.stop()
    assert partition.become_leader(state(), 4, 0) == NO_EFFECTS
    effects = partition.become_follower(state(leader=2, epoch=6, partition_epoch=12), 4, 0)
    assert effects == (StartFetching(2, 6),)


def test_new_leader_of_one_replica_commits_its_log_after_it_has_begun_its_epoch() -> None:
    partition = idle(log_end=4, min_isr=1)
    effects = partition.become_leader(state(isr=(1,), replicas=(1,)), 4, 0)
    assert effects == (WriteLeaderEpoch(5, 4), HighWatermarkMoved(4))


def test_leader_must_be_in_the_isr_that_it_is_given() -> None:
    with pytest.raises(AssertionError):
        idle().become_leader(state(isr=(2, 3)), 0, 0)


def test_follower_cannot_be_told_of_fetches() -> None:
    with pytest.raises(AssertionError):
        fetched(follower(), 3, 0)


def test_log_that_shrinks_without_truncation_is_our_bug() -> None:
    partition = leader(log_end=4)
    with pytest.raises(AssertionError):
        partition.appended(3, 0)


def test_checkpointed_high_watermark_beyond_a_log_that_lost_its_tail_is_cut() -> None:
    assert idle(log_end=3, high_watermark=9).high_watermark == 3


def test_checkpointed_high_watermark_before_the_log_start_is_lifted() -> None:
    assert idle(log_start=5, log_end=8, high_watermark=2).high_watermark == 5
