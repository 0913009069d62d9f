"""The leader's high watermark: over whom, when it moves, when it must not."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import NO_EFFECTS, BrokerStatuses, HighWatermarkMoved, ProposeIsr
from tests.support.replication.partitions import LAG_MS, VIEW, any_of, fetched, leader, only, settings, state


def test_high_watermark_is_the_smallest_log_end_of_the_isr() -> None:
    partition = leader()
    assert partition.appended(10, 0) == NO_EFFECTS
    assert fetched(partition, 2, 10) == NO_EFFECTS
    assert fetched(partition, 3, 7) == (HighWatermarkMoved(7),)
    assert fetched(partition, 3, 10) == (HighWatermarkMoved(10),)
    assert partition.high_watermark == 10


def test_a_follower_of_which_nothing_is_known_yet_holds_the_high_watermark_back() -> None:
    partition = leader(log_end=10, high_watermark=4)
    assert fetched(partition, 2, 10) == NO_EFFECTS
    assert partition.high_watermark == 4


def test_what_followers_told_in_an_earlier_epoch_does_not_count_in_a_new_one() -> None:
    partition = leader()
    partition.appended(5, 0)
    fetched(partition, 2, 5)
    partition.become_leader(state(epoch=6, partition_epoch=11), 5, 0)
    assert fetched(partition, 3, 5) == NO_EFFECTS
    assert fetched(partition, 2, 5) == (HighWatermarkMoved(5),)


def test_leader_alone_in_the_isr_commits_what_it_appends() -> None:
    partition = leader(isr=(1,), replicas=(1,), min_isr=1)
    assert partition.appended(3, 0) == (HighWatermarkMoved(3),)


def test_high_watermark_never_goes_back() -> None:
    partition = leader(log_end=5, high_watermark=5)
    fetched(partition, 2, 5)
    fetched(partition, 3, 5)
    partition.appended(9, 0)
    assert fetched(partition, 2, 3) == NO_EFFECTS
    assert partition.high_watermark == 5


def test_high_watermark_is_frozen_while_the_committed_isr_is_below_min_isr() -> None:
    partition = leader(isr=(1,), min_isr=2)
    assert partition.appended(3, 0) == NO_EFFECTS
    assert partition.high_watermark == 0


def test_pending_member_does_not_unfreeze_the_high_watermark() -> None:
    partition = leader(isr=(1,), min_isr=2)
    partition.appended(3, 0)
    proposal = only(fetched(partition, 2, 3), ProposeIsr)
    assert partition.maximal_isr == (1, 2)
    assert partition.high_watermark == 0
    effects = partition.isr_accepted(proposal, 5, 11, (1, 2), 0)
    assert only(effects, HighWatermarkMoved).high_watermark == 3


def test_min_isr_is_not_more_than_there_are_replicas() -> None:
    partition = leader(isr=(1,), replicas=(1,), min_isr=3)
    assert partition.appended(3, 0) == (HighWatermarkMoved(3),)


def test_a_smaller_min_isr_unfreezes_the_high_watermark() -> None:
    partition = leader(isr=(1,), min_isr=2)
    partition.appended(3, 0)
    assert partition.settings_changed(settings(min_isr=1), 0) == (HighWatermarkMoved(3),)


def test_member_to_be_removed_counts_until_the_controller_has_agreed() -> None:
    partition = leader(min_isr=1)
    partition.appended(3, 0)
    fetched(partition, 2, 3, LAG_MS + 1)
    proposal = only(partition.tick(LAG_MS + 1), ProposeIsr)
    assert proposal.members == (1, 2)
    assert partition.high_watermark == 0
    effects = partition.isr_accepted(proposal, 5, 11, (1, 2), LAG_MS + 1)
    assert only(effects, HighWatermarkMoved).high_watermark == 3


def test_member_to_be_added_counts_at_once() -> None:
    partition = leader(isr=(1,), min_isr=1)
    fetched(partition, 2, 0)
    assert partition.maximal_isr == (1, 2)
    assert partition.appended(3, 5 * LAG_MS) == NO_EFFECTS


def test_follower_outside_the_isr_that_has_caught_up_lately_is_waited_for() -> None:
    partition = leader(isr=(1,), min_isr=1)
    proposal = only(fetched(partition, 2, 0, 1000), ProposeIsr)
    partition.isr_rejected(proposal, ErrorCode.OPERATION_NOT_ATTEMPTED, 1000)
    assert partition.maximal_isr == (1,)
    assert partition.appended(3, 1000 + LAG_MS) == NO_EFFECTS
    assert partition.tick(1000 + LAG_MS + 1) == (HighWatermarkMoved(3),)


def test_follower_outside_the_isr_that_is_fenced_is_not_waited_for() -> None:
    partition = leader(isr=(1,), min_isr=1)
    proposal = only(fetched(partition, 2, 0), ProposeIsr)
    partition.isr_rejected(proposal, ErrorCode.INELIGIBLE_REPLICA, 0)
    assert partition.appended(3, 0) == NO_EFFECTS
    fenced = BrokerStatuses(VIEW.epochs, fenced=frozenset({2}))
    assert partition.brokers_changed(fenced, 0) == (HighWatermarkMoved(3),)


def test_follower_outside_the_isr_that_lags_is_not_waited_for() -> None:
    partition = leader(log_end=9, high_watermark=9, isr=(1,), min_isr=1)
    fetched(partition, 2, 2)
    assert partition.appended(12, 0) == (HighWatermarkMoved(12),)


def test_new_leader_alone_in_the_isr_commits_all_it_has() -> None:
    partition = leader(log_end=4, high_watermark=2, isr=(1,), min_isr=1)
    assert partition.high_watermark == 4


def test_refused_expansion_lets_the_high_watermark_go_on_without_the_member() -> None:
    partition = leader(isr=(1,), min_isr=1)
    proposal = only(fetched(partition, 2, 0), ProposeIsr)
    partition.brokers_changed(BrokerStatuses(VIEW.epochs, shutting_down=frozenset({2})), 0)
    assert partition.appended(3, 0) == NO_EFFECTS
    effects = partition.isr_rejected(proposal, ErrorCode.INELIGIBLE_REPLICA, 0)
    assert only(effects, HighWatermarkMoved).high_watermark == 3


def test_followers_that_are_no_replicas_any_more_are_not_waited_for() -> None:
    partition = leader(isr=(1, 2), replicas=(1, 2, 3), min_isr=1)
    partition.appended(3, 0)
    effects = partition.become_leader(state(partition_epoch=11, isr=(1,), replicas=(1, 3)), 3, 0)
    assert only(effects, HighWatermarkMoved).high_watermark == 3
    assert not any_of(effects, ProposeIsr)
