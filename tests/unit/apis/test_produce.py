"""Produce: what is appended, what the response waits for, and the meaning of each error."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from tests.support.brokers.in_memory import MemoryBroker, answers, produced


def test_acks_1_is_answered_without_the_followers() -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    broker.produce(conn, acks=1)
    [part] = produced(conn)
    assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 0)


def test_acks_0_is_appended_and_never_answered() -> None:
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    broker.produce(conn, acks=0)
    assert h.log.log_end_offset == 1
    assert answers(conn) == []
    assert not conn.closed
    assert not conn.slots


def test_an_error_of_acks_0_is_told_by_closing_the_connection() -> None:
    broker = MemoryBroker()
    broker.give(leader=2)
    conn = broker.client()
    broker.produce(conn, acks=0)
    assert conn.closed


def test_a_refused_batch_has_no_log_start_where_kafka_names_none() -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    damaged = bytearray(broker.batch())
    damaged[-1] ^= 1
    broker.produce(conn, ("t", 0, bytes(damaged)), acks=1)
    [part] = produced(conn)
    assert (part.error_code, part.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


@pytest.mark.parametrize("version", [11, 13])
def test_a_partition_that_is_named_twice_gets_its_last_batch(version: int) -> None:
    """As with Kafka, which keeps what is to be appended in a map."""
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    broker.produce(conn, ("t", 0, broker.batch(2)), ("t", 0, broker.batch()), acks=1, version=version)
    [part] = produced(conn, version)
    assert (part.error_code, part.base_offset, h.log.log_end_offset) == (ErrorCode.NONE, 0, 1)


def test_acks_all_waits_for_the_whole_isr() -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    broker.produce(conn)
    broker.follower_has(2, 1)
    assert answers(conn) == []
    broker.follower_has(3, 1)
    [part] = produced(conn)
    assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 0)
    assert not len(broker.timers)


def test_acks_all_is_refused_before_the_append_below_min_isr() -> None:
    broker = MemoryBroker(min_insync_replicas="2")
    h = broker.give(isr=(1,))
    conn = broker.client()
    broker.produce(conn)
    assert produced(conn)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert h.log.log_end_offset == 0


def test_acks_1_is_appended_below_min_isr() -> None:
    broker = MemoryBroker(min_insync_replicas="2")
    broker.give(isr=(1,))
    conn = broker.client()
    broker.produce(conn, acks=1)
    assert produced(conn)[0].error_code == ErrorCode.NONE


def test_what_is_committed_while_too_few_are_left_is_answered_not_enough_after_append() -> None:
    broker = MemoryBroker(min_insync_replicas="2")
    h = broker.give(isr=(1, 2))
    conn = broker.client()
    broker.produce(conn)
    h.state.high_watermark = 1
    h.state.maximal_isr = (1,)
    broker.replicas._high_watermark_moved(h)
    broker.server.settle()
    assert produced(conn)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_time_out_is_told_and_the_records_stay() -> None:
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    broker.produce(conn, timeout_ms=300)
    broker.pass_ms(250)
    assert answers(conn) == []
    broker.pass_ms(100)
    assert produced(conn)[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert h.log.log_end_offset == 1


def test_a_time_out_says_nothing_of_the_partitions_that_were_replicated() -> None:
    broker = MemoryBroker()
    broker.give("t")
    broker.give("u")
    conn = broker.client()
    broker.produce(conn, ("t", 0, broker.batch()), ("u", 0, broker.batch()), timeout_ms=300)
    for replica in (2, 3):
        broker.follower_has(replica, 1, name="t")
    broker.pass_ms(400)
    assert [part.error_code for part in produced(conn)] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


def test_requests_that_timed_out_do_not_pile_up_while_the_high_watermark_stands_still() -> None:
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    for _ in range(5):
        broker.produce(conn, timeout_ms=100)
        broker.pass_ms(200)
    assert len(answers(conn)) == 5
    assert not h.uncommitted


def test_who_hung_up_is_not_waited_for_whatever_time_out_was_asked_for() -> None:
    broker = MemoryBroker()
    h = broker.give()
    patient = broker.client()
    broker.produce(patient, timeout_ms=2**31 - 1)
    for _ in range(50):
        conn = broker.client()
        for _ in range(3):
            broker.produce(conn, timeout_ms=2**31 - 1)
        conn.close()
    assert len(h.uncommitted) <= 2
    assert len(broker.timers) == 1
    for replica in (2, 3):
        broker.follower_has(replica, h.log.log_end_offset)
    assert produced(patient)[0].error_code == ErrorCode.NONE
    assert not h.uncommitted


def test_what_was_settled_before_its_connection_ended_is_not_given_up_again() -> None:
    broker = MemoryBroker()
    h = broker.give()
    broker.give("u")
    conn = broker.client()
    broker.produce(conn, ("t", 0, broker.batch()), ("u", 0, broker.batch()))
    for replica in (2, 3):
        broker.follower_has(replica, 1)
    broker.produce(broker.client())
    conn.close()
    assert len(h.uncommitted) == 1


def test_a_late_acknowledgement_of_a_request_that_timed_out_changes_nothing() -> None:
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    broker.produce(conn, timeout_ms=5000)
    broker.produce(conn, timeout_ms=100)
    broker.pass_ms(200)
    assert len(h.uncommitted) == 2
    for replica in (2, 3):
        broker.follower_has(replica, 2)
    assert len(answers(conn)) == 2
    assert not h.uncommitted


def test_lost_leadership_is_told_to_who_waits_with_the_new_leader() -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    broker.produce(conn)
    broker.give(leader=2, epoch=6, partition_epoch=11)
    [part] = produced(conn)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 6)


def test_a_deleted_topics_producers_do_not_wait_in_vain() -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    broker.produce(conn)
    broker.remove("t")
    assert produced(conn)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_duplicate_is_acknowledged_with_its_first_offset_and_appended_once() -> None:
    broker = MemoryBroker()
    h = broker.give(isr=(1,), replicas=(1,))
    conn = broker.client()
    for sequence in (0, 1):
        broker.produce(conn, ("t", 0, broker.batch(pid=7, seq=sequence)))
        assert produced(conn)[0].base_offset == sequence
    broker.produce(conn, ("t", 0, broker.batch(pid=7, seq=0)))
    [part] = produced(conn)
    assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 0)
    assert h.log.log_end_offset == 2


def test_a_duplicate_of_what_is_not_replicated_yet_waits_too() -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    broker.produce(conn, ("t", 0, broker.batch(pid=7, seq=0)))
    broker.produce(conn, ("t", 0, broker.batch(pid=7, seq=0)))
    assert answers(conn) == []
    for replica in (2, 3):
        broker.follower_has(replica, 1)
    assert len(answers(conn)) == 2


@pytest.mark.parametrize("version", [9, 11, 13])
def test_a_partition_that_is_led_elsewhere_is_not_unknown(version: int) -> None:
    broker = MemoryBroker()
    broker.give(leader=2, isr=(2, 3), replicas=(2, 3))
    conn = broker.client()
    broker.produce(conn, version=version)
    [part] = produced(conn, version)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert part.current_leader.leader_id == 2


@pytest.mark.parametrize(
    ("version", "topic", "index", "error"),
    [
        (11, "nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, "nobody", 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (11, "t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, "t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_does_not_exist_is_named_so(version: int, topic: str, index: int, error: ErrorCode) -> None:
    broker = MemoryBroker()
    broker.give()
    conn = broker.client()
    broker.produce(conn, (topic, index, broker.batch()), version=version)
    assert produced(conn, version)[0].error_code == error


def test_acks_that_mean_nothing_are_refused_and_nothing_is_appended() -> None:
    broker = MemoryBroker()
    h = broker.give()
    conn = broker.client()
    broker.produce(conn, acks=2)
    assert produced(conn)[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert h.log.log_end_offset == 0


def test_replies_keep_the_order_of_the_requests() -> None:
    broker = MemoryBroker()
    broker.give("t")
    broker.give("u", isr=(1,), replicas=(1,))
    conn = broker.client()
    broker.produce(conn, ("t", 0, broker.batch()))
    broker.produce(conn, ("u", 0, broker.batch()))
    assert answers(conn) == []
    for replica in (2, 3):
        broker.follower_has(replica, 1)
    assert [correlation_id for correlation_id, _ in answers(conn)] == [1, 2]
