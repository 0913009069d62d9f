"""WriteTxnMarkers: which request may end a transaction in a partition, when it is answered, and that a marker is
written once.
"""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis.describe_producers import describe_producers
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import decode_records
from squall.broker.protocol.schema.describe_producers import DescribeProducersRequest, TopicRequest
from tests.support.brokers.in_memory import MemoryBroker, answers, marked

PID = 7
UNVERIFIED = {"transaction_partition_verification_enable": "false"}
"""Settings without verification of transactions, because there is no coordinator here."""


def broker_with_transaction(*, epoch: int = 3, **given: Any) -> MemoryBroker:
    """Return a broker that leads topic t, in which producer 7 has an open transaction of two records."""
    broker = MemoryBroker(**UNVERIFIED)
    broker.give(**given)
    broker.produce(broker.client(), ("t", 0, broker.batch(2, pid=PID, epoch=epoch, seq=0, transactional=True)), acks=1)
    return broker


def replicate(broker: MemoryBroker, end: int) -> None:
    for replica in (2, 3):
        broker.follower_has(replica, end)


def in_the_log(broker: MemoryBroker) -> list[tuple[int, bool]]:
    """Return (producer epoch, whether it is a control batch) of every batch."""
    [h] = broker.replicas.hosted()
    return [(header.producer_epoch, header.is_control) for header, _ in h.log.read_batches(0, h.log.log_end_offset)]


def test_a_marker_is_answered_once_it_is_committed() -> None:
    broker = broker_with_transaction()
    conn = broker.client()
    broker.end(conn, PID, 3)
    broker.follower_has(2, 3)
    assert answers(conn) == []
    broker.follower_has(3, 3)
    assert marked(conn) == [ErrorCode.NONE]
    assert in_the_log(broker) == [(3, False), (3, True)]


def test_the_bytes_of_a_marker_are_kafkas() -> None:
    broker = broker_with_transaction()
    broker.end(broker.client(), PID, 3, commit=False, coordinator_epoch=0x0102)
    [h] = broker.replicas.hosted()
    header, data = list(h.log.read_batches(2, 3))[0]
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    [record] = decode_records(memoryview(data), with_control=True)
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\0\0\1\2")


def test_a_marker_that_is_sent_again_is_answered_and_not_written_again() -> None:
    broker = broker_with_transaction()
    for _ in range(3):
        conn = broker.client()
        broker.end(conn, PID, 3)
        assert answers(conn) == []
    replicate(broker, 3)
    again = broker.client()
    broker.end(again, PID, 3)
    assert marked(again) == [ErrorCode.NONE]
    assert in_the_log(broker) == [(3, False), (3, True)]


def test_a_repeated_marker_is_not_answered_before_the_first_one_is_committed() -> None:
    broker = broker_with_transaction()
    broker.end(broker.client(), PID, 4, transaction_version=2)
    again = broker.client()
    broker.end(again, PID, 4, transaction_version=2)
    assert answers(again) == []
    replicate(broker, 3)
    assert marked(again) == [ErrorCode.NONE]


def test_a_marker_of_an_older_producer_epoch_is_refused() -> None:
    broker = broker_with_transaction()
    conn = broker.client()
    broker.end(conn, PID, 2)
    assert marked(conn) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(in_the_log(broker)) == 1


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    broker = broker_with_transaction()
    broker.end(broker.client(), PID, 3, coordinator_epoch=5)
    broker.produce(broker.client(), ("t", 0, broker.batch(pid=PID, epoch=3, seq=2, transactional=True)), acks=1)
    conn = broker.client()
    broker.end(conn, PID, 3, coordinator_epoch=4)
    assert marked(conn) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def test_with_transactions_v2_a_marker_of_the_transactions_own_epoch_is_refused() -> None:
    """It belongs to the transaction before: KIP-1228, KAFKA-19446."""
    broker = broker_with_transaction()
    conn = broker.client()
    broker.end(conn, PID, 3, transaction_version=2)
    assert marked(conn) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    broker.end(broker.client(), PID, 4, transaction_version=2)
    assert in_the_log(broker) == [(3, False), (4, True)]


def test_a_marker_of_a_newer_coordinator_is_written_though_nothing_is_open_and_fences_the_older_one() -> None:
    broker = broker_with_transaction()
    broker.end(broker.client(), PID, 3, coordinator_epoch=1)
    broker.end(broker.client(), PID, 3, coordinator_epoch=2)
    conn = broker.client()
    broker.end(conn, PID, 3, coordinator_epoch=1)
    assert marked(conn) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert in_the_log(broker) == [(3, False), (3, True), (3, True)]


def test_a_marker_for_a_producer_that_has_written_nothing_fences_it() -> None:
    broker = MemoryBroker(**UNVERIFIED)
    broker.give()
    broker.end(broker.client(), PID, 4)
    conn = broker.client()
    broker.produce(conn, ("t", 0, broker.batch(pid=PID, epoch=3, seq=0, transactional=True)), acks=1)
    assert in_the_log(broker) == [(4, True)]


def test_each_partition_has_an_error_of_its_own() -> None:
    broker = broker_with_transaction()
    broker.give("u", leader=2)
    conn = broker.client()
    broker.end(conn, PID, 3, ("t", 0), ("u", 0), ("nobody's", 0))
    replicate(broker, 3)
    assert marked(conn) == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_below_min_isr_no_marker_is_written() -> None:
    broker = MemoryBroker(min_insync_replicas="2", **UNVERIFIED)
    broker.give(isr=(1,))
    broker.produce(broker.client(), ("t", 0, broker.batch(pid=PID, epoch=3, seq=0, transactional=True)), acks=1)
    conn = broker.client()
    broker.end(conn, PID, 3)
    assert marked(conn) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert len(in_the_log(broker)) == 1


def test_a_marker_whose_leader_steps_down_is_answered_not_leader() -> None:
    broker = broker_with_transaction()
    conn = broker.client()
    broker.end(conn, PID, 3)
    broker.give(leader=2, epoch=6, partition_epoch=11)
    assert marked(conn) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_marker_that_is_not_committed_in_time_is_answered_timed_out() -> None:
    broker = broker_with_transaction()
    conn = broker.client()
    broker.end(conn, PID, 3)
    broker.pass_ms(29_000)
    assert answers(conn) == []
    broker.pass_ms(2_000)
    assert marked(conn) == [ErrorCode.REQUEST_TIMED_OUT]
    assert not len(broker.timers)


def test_a_coordinator_that_has_gone_is_not_waited_for() -> None:
    broker = broker_with_transaction()
    conn = broker.client()
    broker.end(conn, PID, 3)
    conn.close()
    assert not len(broker.timers)
    replicate(broker, 3)


@pytest.mark.parametrize("leader", [1, 2])
def test_describe_producers_shows_open_transactions_on_every_replica(leader: int) -> None:
    """`kafka-transactions find-hanging --broker-id` asks one broker for all of its replicas (KIP-664)."""
    broker = broker_with_transaction()
    broker.end(broker.client(), PID, 3, coordinator_epoch=9)
    broker.produce(broker.client(), ("t", 0, broker.batch(3, pid=PID, epoch=3, seq=2, transactional=True)), acks=1)
    if leader != 1:
        broker.give(leader=leader, epoch=6, partition_epoch=11)
    request = DescribeProducersRequest(topics=[TopicRequest("t", [0]), TopicRequest("gone", [4])])
    told, gone = (topic.partitions[0] for topic in describe_producers(broker.replicas, request).topics)
    impossible = DescribeProducersRequest(topics=[TopicRequest("no name", [0])])
    [refused] = describe_producers(broker.replicas, impossible).topics[0].partitions
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [one] = told.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (PID, 3, 4)
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (9, 3)


WIDE = 20
"""So many partitions that their first markers are appended in several pieces."""


def wide_broker() -> tuple[MemoryBroker, list[tuple[str, int]]]:
    broker = MemoryBroker(**UNVERIFIED)
    for index in range(WIDE):
        broker.give(index=index, isr=(1, 2), replicas=(1, 2))
    return broker, [("t", index) for index in range(WIDE)]


def ended(broker: MemoryBroker) -> int:
    return sum(h.log.log_end_offset > 0 for h in broker.replicas.hosted())


def replicate_all(broker: MemoryBroker) -> None:
    for h in broker.replicas.hosted():
        broker.replicas.apply_effects(h, h.state.follower_fetched(2, h.log.log_end_offset, 102, broker.env.now_ms))
    broker.server.settle()


def test_markers_of_many_partitions_are_appended_in_turns_and_answered_once_all_are_committed() -> None:
    """The markers of 3,900 partitions once blocked three brokers for seven seconds."""
    broker, places = wide_broker()
    conn = broker.client()
    broker.end(conn, PID, 3, *places)
    first = ended(broker)
    assert 0 < first < WIDE // 2
    assert conn.held is not None
    seen: list[int] = []

    def between() -> None:
        seen.append(ended(broker))
        replicate_all(broker)

    broker.run_turns(between)
    assert conn.held is None
    assert ended(broker) == WIDE
    assert len(set(seen)) > 1, "others were served while some were still to come"
    replicate_all(broker)
    assert marked(conn) == [ErrorCode.NONE] * WIDE
    assert not len(broker.timers)


def test_markers_that_were_appended_in_turns_are_not_answered_before_they_are_committed() -> None:
    broker, places = wide_broker()
    conn = broker.client()
    broker.end(conn, PID, 3, *places)
    broker.run_turns(lambda: None)
    assert ended(broker) == WIDE
    assert answers(conn) == []
    replicate_all(broker)
    assert marked(conn) == [ErrorCode.NONE] * WIDE


def test_the_turns_end_with_the_connection_and_with_the_time_out() -> None:
    for over in (lambda broker, conn: conn.close(), lambda broker, conn: broker.pass_ms(31_000)):
        broker, places = wide_broker()
        conn = broker.client()
        broker.end(conn, PID, 3, *places)
        before = ended(broker)
        over(broker, conn)
        broker.run_turns(lambda: None)
        assert ended(broker) == before
        assert conn.held is None
        assert not len(broker.timers)


def test_markers_after_the_first_of_an_epoch_cost_less() -> None:
    broker, places = wide_broker()
    broker.end(broker.client(), PID, 3, *places)
    broker.run_turns(lambda: None)
    broker.end(broker.client(), PID, 4, *places)
    assert not broker.started
    assert all(h.log.log_end_offset == 2 for h in broker.replicas.hosted())
