"""Checks which replica leaves the ISR, and which may join it."""

from __future__ import annotations

import pytest

from squall.broker.replication import NO_EFFECTS, BrokerStatuses, IsrChanged, Partition, ProposeIsr
from tests.support.replication.partitions import LAG_MS, VIEW, any_of, fetched, idle, leader, only, settings, state


def test_member_that_has_not_fetched_for_the_lag_time_leaves() -> None:
    partition = leader(log_end=1)
    fetched(partition, 2, 1, LAG_MS)
    assert not any_of(partition.tick(LAG_MS), ProposeIsr)
    assert only(partition.tick(LAG_MS + 1), ProposeIsr).members == (1, 2)


def test_member_that_fetches_but_never_catches_up_leaves() -> None:
    partition = leader()
    for now_ms in range(0, LAG_MS + 2000, 1000):
        partition.appended(partition.log_end_offset + 100, now_ms)
        fetched(partition, 2, partition.log_end_offset, now_ms)
        fetched(partition, 3, now_ms // 1000, now_ms)
    assert only(partition.tick(LAG_MS + 2000), ProposeIsr).members == (1, 2)


def test_member_that_reaches_at_each_fetch_what_was_the_end_at_its_previous_one_stays() -> None:
    partition = leader()
    ends = [0]
    for now_ms in range(0, 4 * LAG_MS, 1000):
        partition.appended(partition.log_end_offset + 100, now_ms)
        fetched(partition, 2, ends[-1], now_ms)
        fetched(partition, 3, ends[-1], now_ms)
        ends.append(partition.log_end_offset)
        assert not any_of(partition.tick(now_ms), ProposeIsr)


def test_idle_member_at_the_end_of_the_log_stays_for_ever() -> None:
    partition = leader(log_end=3)
    fetched(partition, 2, 3)
    fetched(partition, 3, 3)
    assert partition.tick(100 * LAG_MS) == NO_EFFECTS


def test_new_leader_gives_members_the_lag_time_to_show_up() -> None:
    partition = leader(log_end=3, now_ms=7 * LAG_MS)
    assert not any_of(partition.tick(8 * LAG_MS), ProposeIsr)
    assert only(partition.tick(8 * LAG_MS + 1), ProposeIsr).members == (1,)


def test_all_who_lag_leave_together_and_the_leader_never_does() -> None:
    partition = leader(log_end=3)
    assert only(partition.tick(LAG_MS + 1), ProposeIsr).members == (1,)


def test_lag_in_messages_counts_only_where_the_old_switch_is_set() -> None:
    partition = leader()
    fetched(partition, 2, 0)
    fetched(partition, 3, 0)
    partition.appended(5000, 0)
    assert partition.tick(1) == NO_EFFECTS
    partition.settings_changed(settings(lag_max_messages=4000), 1)
    assert only(partition.tick(1), ProposeIsr).members == (1,)


def test_a_proposal_says_who_lagged_by_how_much_and_who_has_caught_up() -> None:
    partition = leader(log_end=1, high_watermark=1)
    partition.settings_changed(settings(lag_max_messages=4), 0)
    fetched(partition, 2, 1)
    partition.appended(6, 0)
    assert only(partition.tick(LAG_MS + 1), ProposeIsr).reason == "2 is 5 messages behind, 3 has not caught up in time"
    partition = leader(log_end=1, high_watermark=1, isr=(1, 2))
    assert only(fetched(partition, 3, 1), ProposeIsr).reason == "3 has caught up"


def test_the_high_watermark_does_not_wait_for_a_follower_that_is_out_for_too_many_messages() -> None:
    """Its time is not over yet; but by the old measure it is not about to be let in either."""
    partition = leader(log_end=1, high_watermark=1, isr=(1, 2))
    partition.settings_changed(settings(lag_max_messages=4), 0)
    partition.brokers_changed(BrokerStatuses(VIEW.epochs, shutting_down=frozenset({3})), 0)
    fetched(partition, 3, 1)
    partition.brokers_changed(VIEW, 0)
    partition.appended(6, 1)
    fetched(partition, 2, 6, 2)
    assert partition.high_watermark == 6


def test_follower_at_the_high_watermark_and_the_epoch_start_is_proposed_with_broker_epochs() -> None:
    partition = leader(log_end=4, high_watermark=4, isr=(1, 2))
    effects = fetched(partition, 3, 4)
    proposal = only(effects, ProposeIsr)
    assert proposal.isr == ((1, 101), (2, -1), (3, 103))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)
    assert only(effects, IsrChanged) == IsrChanged(5, 10, (1, 2), (1, 2, 3))


def test_follower_below_the_high_watermark_is_not_proposed() -> None:
    partition = leader(log_end=4, high_watermark=4, isr=(1, 2))
    assert fetched(partition, 3, 3) == NO_EFFECTS


def test_follower_at_a_new_leaders_high_watermark_but_below_its_epoch_start_is_not_proposed() -> None:
    partition = leader(log_end=9, high_watermark=2, isr=(1, 2))
    assert fetched(partition, 3, 8) == NO_EFFECTS
    assert only(fetched(partition, 3, 9), ProposeIsr).members == (1, 2, 3)


@pytest.mark.parametrize(
    "view",
    [
        BrokerStatuses(VIEW.epochs, fenced=frozenset({3})),
        BrokerStatuses(VIEW.epochs, shutting_down=frozenset({3})),
        BrokerStatuses({1: 101, 2: 102, 3: 104}),
        BrokerStatuses({1: 101, 2: 102}),
    ],
    ids=["fenced", "shutting down", "registered anew", "not registered"],
)
def test_follower_that_the_controller_would_refuse_is_not_proposed(view: BrokerStatuses) -> None:
    partition = leader(isr=(1, 2))
    partition.brokers_changed(view, 0)
    assert fetched(partition, 3, 0) == NO_EFFECTS
    partition.brokers_changed(VIEW, 0)
    assert any_of(fetched(partition, 3, 0), ProposeIsr)


def test_member_of_the_isr_is_not_proposed_again() -> None:
    assert fetched(leader(), 2, 0) == NO_EFFECTS


def test_one_proposal_at_a_time() -> None:
    partition = leader(log_end=3, high_watermark=3, isr=(1,))
    first = only(fetched(partition, 2, 3), ProposeIsr)
    assert fetched(partition, 3, 3) == NO_EFFECTS
    assert not any_of(partition.tick(10 * LAG_MS), ProposeIsr)
    partition.isr_accepted(first, 5, 11, (1, 2), 0)
    second = only(fetched(partition, 3, 3), ProposeIsr)
    assert second.members == (1, 2, 3)
    assert second.partition_epoch == 11


def test_followers_do_not_propose() -> None:
    partition = idle()
    partition.become_follower(state(leader=2), 0, 0)
    assert partition.tick(10 * LAG_MS) == NO_EFFECTS
    assert partition.followers == {}


def test_replica_added_by_reassignment_may_join_once_it_has_caught_up() -> None:
    partition = leader(log_end=2, high_watermark=2, isr=(1, 2), replicas=(1, 2))
    partition.become_leader(state(partition_epoch=11, isr=(1, 2), replicas=(1, 2, 3)), 2, 0)
    assert fetched(partition, 3, 0) == NO_EFFECTS
    assert only(fetched(partition, 3, 2), ProposeIsr).members == (1, 2, 3)


def test_what_is_known_of_followers_survives_a_change_within_the_epoch() -> None:
    partition: Partition = leader(log_end=2)
    fetched(partition, 2, 2, 500)
    partition.become_leader(state(partition_epoch=11, isr=(1, 2)), 2, 600)
    assert partition.followers[2].log_end_offset == 2
    assert partition.followers[2].last_caught_up_ms == 500
