"""Checks what producers and consumers are answered: min ISR before and after, the last stable offset, the latest
offset.
"""

from __future__ import annotations

import pytest

from squall.broker.replication import LeadershipLost, ProposeIsr
from tests.support.replication.partitions import LAG_MS, fetched, idle, leader, only, settings, state


def test_write_is_refused_while_the_committed_isr_is_too_small() -> None:
    partition = leader(isr=(1,), min_isr=2)
    assert partition.under_min_isr_before_append()
    fetched(partition, 2, 0)
    assert partition.maximal_isr == (1, 2)
    assert partition.under_min_isr_before_append()


def test_write_is_refused_once_the_shrink_is_confirmed_and_not_before() -> None:
    partition = leader(log_end=1, isr=(1, 2), min_isr=2)
    proposal = only(partition.tick(LAG_MS + 1), ProposeIsr)
    assert not partition.under_min_isr_before_append()
    partition.isr_accepted(proposal, 5, 11, (1,), LAG_MS + 1)
    assert partition.under_min_isr_before_append()


def test_write_waits_until_the_high_watermark_has_passed_all_of_it() -> None:
    partition = leader()
    partition.appended(5, 0)
    fetched(partition, 2, 5)
    assert partition.high_watermark == 0
    fetched(partition, 3, 4)
    assert partition.high_watermark == 4
    fetched(partition, 3, 5)
    assert partition.high_watermark == 5
    assert not partition.under_min_isr_after()


def test_write_that_was_committed_is_told_when_too_few_are_left_to_hold_it() -> None:
    partition = leader(isr=(1,), min_isr=1)
    partition.appended(5, 0)
    assert partition.high_watermark == 5
    assert not partition.under_min_isr_after()
    partition.settings_changed(settings(min_isr=2), 0)
    assert partition.under_min_isr_after()
    assert partition.high_watermark == 5, "it exists all the same"


def test_member_about_to_join_counts_after_the_append() -> None:
    partition = leader(log_end=2, high_watermark=2, isr=(1,), min_isr=2)
    assert partition.under_min_isr_after()
    fetched(partition, 2, 2)
    assert not partition.under_min_isr_after()


def test_write_on_a_broker_that_does_not_lead_any_more_has_an_unknown_fate() -> None:
    partition = leader()
    partition.appended(5, 0)
    effects = partition.become_follower(state(leader=2, epoch=6, partition_epoch=11), 5, 0)
    assert LeadershipLost(5) in effects, "whoever waits is answered NOT_LEADER_OR_FOLLOWER"
    assert partition.high_watermark == 0


def test_latest_offset_is_not_told_before_the_high_watermark_reaches_the_epoch_start() -> None:
    partition = leader(log_end=9, high_watermark=4)
    assert not partition.latest_offset_available()
    fetched(partition, 2, 9)
    fetched(partition, 3, 9)
    assert partition.latest_offset_available()


def test_last_stable_offset_is_the_high_watermark_where_no_transaction_is_open() -> None:
    assert idle(log_end=9, high_watermark=6).last_stable_offset(None) == 6


def test_last_stable_offset_is_where_the_oldest_open_transaction_began() -> None:
    assert idle(log_end=9, high_watermark=6).last_stable_offset(2) == 2


def test_last_stable_offset_never_passes_the_high_watermark() -> None:
    assert idle(log_end=9, high_watermark=6).last_stable_offset(8) == 6


@pytest.mark.parametrize(("isolation", "limit"), [(0, 6), (1, 2)])
def test_consumers_read_to_the_high_watermark_or_the_last_stable_offset(isolation: int, limit: int) -> None:
    assert idle(log_end=9, high_watermark=6).read_limit(isolation, 2) == limit
