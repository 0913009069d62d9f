"""Checks what DeleteRecords may delete, and when it is deleted everywhere."""

from __future__ import annotations

from squall.broker.replication import BrokerStatuses
from tests.support.replication.partitions import VIEW, fetched, leader


def test_records_are_deleted_up_to_the_high_watermark_and_no_further() -> None:
    partition = leader(log_end=9, high_watermark=5)
    assert partition.deletion_offset(3) == 3
    assert partition.deletion_offset(5) == 5
    assert partition.deletion_offset(6) is None
    assert partition.deletion_offset(-1) == 5
    assert partition.deletion_offset(-2) is None


def test_the_low_watermark_is_unknown_until_every_replica_in_service_has_told_its_log_start() -> None:
    partition = leader(log_end=9, high_watermark=9)
    partition.log_start_moved(6)
    assert partition.low_watermark() == -1
    fetched(partition, 2, 9)
    partition.set_follower_log_start(2, 6)
    assert partition.low_watermark() == -1
    partition.set_follower_log_start(3, 2)
    assert partition.low_watermark() == 2
    partition.set_follower_log_start(3, 7)
    assert partition.low_watermark() == 6


def test_nobody_waits_for_a_fenced_broker_to_delete() -> None:
    partition = leader(log_end=9, high_watermark=9)
    partition.set_follower_log_start(2, 0)
    partition.brokers_changed(BrokerStatuses(VIEW.epochs, fenced=frozenset({3}), shutting_down=frozenset({2})), 0)
    assert partition.low_watermark() == 0


def test_the_low_watermark_of_a_lone_replica_is_its_log_start() -> None:
    partition = leader(log_end=9, high_watermark=9, isr=(1,), replicas=(1,))
    partition.log_start_moved(4)
    assert partition.low_watermark() == 4


def test_a_stranger_has_no_say() -> None:
    partition = leader(log_end=9, high_watermark=9, isr=(1,), replicas=(1,))
    partition.set_follower_log_start(8, 2)
    assert partition.low_watermark() == 0
