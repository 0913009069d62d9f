"""One producer's decisions, one event at a time: order, retries, and what may be called failed."""

from __future__ import annotations

import random

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.workloads.client.accumulator import (
    MAX_SEQUENCE,
    BufferFull,
    PartitionQueue,
    ProducerBatch,
    ProducerRetired,
    QueuedRecord,
    RecordAccumulator,
    SettledBatch,
)
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.settings import ProducerSettings

ROUTE = 1


class Rig:
    """A producer's accumulator with a clock that the test moves."""

    def __init__(self, **settings: object) -> None:
        self.settings = ProducerSettings(**{"linger_ms": 5, "batch_size": 1000, **settings})  # type: ignore[arg-type]
        self.accumulator = RecordAccumulator(self.settings, random.Random(1))
        self.now_ms = 1000

    def add(self, count: int = 1, size: int = 10, topic: str = "t", index: int = 0) -> None:
        for _ in range(count):
            self.accumulator.add(topic, index, record(size), self.now_ms)

    def full_batches(self, count: int) -> None:
        for _ in range(count):
            self.add(size=1000)

    def take(self, route: int = ROUTE) -> list[ProducerBatch]:
        taken: list[ProducerBatch] = []
        while lanes := self.accumulator.sendable(self.now_ms):
            for lane in lanes:
                batch = self.accumulator.take(lane, route, self.now_ms)
                if batch is None:
                    return taken
                taken.append(batch)
        return taken

    def established(self) -> PartitionQueue:
        """A lane whose first batch was acknowledged."""
        self.full_batches(1)
        (batch,) = self.take()
        self.accumulator.acked(batch, 0, -1)
        return batch.lane

    def refuse(self, batch: ProducerBatch, code: ErrorCode) -> list[SettledBatch]:
        return self.accumulator.refused(batch, code, self.now_ms)

    def lose(self, batch: ProducerBatch, sent: bool = True) -> list[SettledBatch]:
        return self.accumulator.lost(batch, "CONNECTION_LOST", self.now_ms, sent=sent)


def record(size: int = 10) -> QueuedRecord:
    return QueuedRecord(None, b"v" * size, [], 42, lambda outcome: None)


def statuses(settled: list[SettledBatch]) -> list[tuple[int, OperationStatus]]:
    return [(one.batch.number, one.status) for one in settled]


def test_a_record_lingers_and_then_leaves_with_those_that_joined_it() -> None:
    rig = Rig()
    rig.add(2)
    assert rig.take() == []
    assert rig.accumulator.next_look_ms(rig.now_ms) == rig.now_ms + 5
    rig.now_ms += 5
    (batch,) = rig.take()
    assert len(batch.records) == 2


def test_a_full_batch_does_not_linger() -> None:
    rig = Rig()
    assert rig.accumulator.add("t", 0, record(600), rig.now_ms) == rig.now_ms + 5
    assert rig.accumulator.add("t", 0, record(600), rig.now_ms) == rig.now_ms
    assert [len(batch.records) for batch in rig.take()] == [1]


def test_a_record_that_joins_an_open_batch_needs_no_wake_up() -> None:
    rig = Rig()
    rig.add()
    assert rig.accumulator.add("t", 0, record(), rig.now_ms) is None


def test_until_the_first_batch_is_acknowledged_only_one_is_in_flight() -> None:
    rig = Rig()
    rig.full_batches(3)
    (first,) = rig.take()
    assert rig.take() == []
    rig.accumulator.acked(first, 0, -1)
    assert [batch.number for batch in rig.take()] == [1, 2]


def test_five_batches_of_a_lane_are_in_flight_at_most() -> None:
    rig = Rig()
    rig.established()
    rig.full_batches(7)
    assert len(rig.take()) == 5


def test_sequences_count_records_and_are_kept_for_life() -> None:
    rig = Rig(batch_size=100_000)
    rig.add(3)
    rig.now_ms += 5
    (first,) = rig.take()
    rig.lose(first)
    rig.add(2)
    rig.now_ms += 5000
    (again,) = rig.take()
    assert again is first and again.sequence == 0
    rig.accumulator.acked(again, 0, -1)
    (second,) = rig.take()
    assert second.sequence == 3


def test_sequences_go_round_after_the_largest_int32() -> None:
    rig = Rig()
    lane = rig.established()
    lane.next_sequence = MAX_SEQUENCE
    rig.add(3)
    rig.now_ms += 5
    (batch,) = rig.take()
    assert batch.sequence == MAX_SEQUENCE
    assert lane.next_sequence == 2


def test_after_a_failure_the_lane_waits_for_all_answers_and_then_sends_the_lowest_alone() -> None:
    rig = Rig()
    rig.established()
    rig.full_batches(3)
    one, two, three = rig.take()
    assert rig.refuse(one, ErrorCode.NOT_LEADER_OR_FOLLOWER) == []
    rig.now_ms += 5000
    assert rig.take() == []
    assert rig.refuse(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == []
    assert rig.refuse(three, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == []
    rig.now_ms += 5000
    assert rig.take() == [one]
    rig.accumulator.acked(one, 5, -1)
    assert rig.take() == [two, three]


def test_a_producer_that_keeps_five_in_flight_sends_all_again_at_once_and_in_order() -> None:
    rig = Rig(keep_in_flight=True)
    rig.full_batches(6)
    sent = rig.take()
    assert [batch.number for batch in sent] == [0, 1, 2, 3, 4]
    rig.refuse(sent[0], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.now_ms += 5000
    assert rig.take() == [], "what is under way behind it has no answer yet"
    for later in sent[1:]:
        assert rig.refuse(later, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == []
    rig.now_ms += 5000
    assert rig.take() == sent


def test_nothing_goes_to_another_broker_while_something_is_under_way_to_one() -> None:
    rig = Rig()
    rig.established()
    rig.full_batches(1)
    (batch,) = rig.take(route=1)
    rig.full_batches(1)
    assert rig.take(route=2) == []
    rig.accumulator.acked(batch, 1, -1)
    assert len(rig.take(route=2)) == 1


def test_an_answered_duplicate_settles_with_the_original_offset_and_says_that_it_was_sent_twice() -> None:
    rig = Rig()
    rig.full_batches(1)
    (batch,) = rig.take()
    rig.lose(batch)
    rig.now_ms += 5000
    assert rig.take() == [batch]
    (settled,) = rig.accumulator.acked(batch, 777, -1)
    (outcome,) = [outcome for _, outcome in settled.outcomes()]
    assert outcome == (OperationStatus.OK, 777, 42, "", 2)


def test_each_record_of_a_batch_gets_its_own_offset_and_the_log_append_time() -> None:
    rig = Rig()
    rig.add(3)
    rig.now_ms += 5
    (batch,) = rig.take()
    (settled,) = rig.accumulator.acked(batch, 10, 99)
    assert [outcome for _, outcome in settled.outcomes()] == [(OperationStatus.OK, 10 + n, 99, "", 1) for n in range(3)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, OperationStatus.FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, OperationStatus.FAIL),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, OperationStatus.INFO),
        (ErrorCode.UNKNOWN_SERVER_ERROR, OperationStatus.INFO),
    ],
)
def test_an_error_ends_a_batch_as_failed_only_if_it_proves_that_nothing_was_appended(
    code: ErrorCode, status: OperationStatus
) -> None:
    rig = Rig()
    rig.full_batches(1)
    (batch,) = rig.take()
    assert statuses(rig.refuse(batch, code)) == [(0, status)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_errors_6_7_20_and_their_like_after_the_last_retry_are_info(code: ErrorCode) -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.full_batches(1)
    (batch,) = rig.take()
    assert rig.refuse(batch, code) == []
    rig.now_ms += 1000
    (settled,) = rig.accumulator.expire(rig.now_ms)
    assert settled.status is OperationStatus.INFO and settled.error == code.name


def test_not_enough_replicas_until_the_end_is_a_failure() -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.full_batches(1)
    (batch,) = rig.take()
    assert rig.refuse(batch, ErrorCode.NOT_ENOUGH_REPLICAS) == []
    rig.now_ms += 1000
    assert statuses(rig.accumulator.expire(rig.now_ms)) == [(0, OperationStatus.FAIL)]


def test_one_attempt_in_doubt_outweighs_any_later_proof() -> None:
    rig = Rig()
    rig.full_batches(1)
    (batch,) = rig.take()
    rig.lose(batch)
    rig.now_ms += 5000
    assert rig.take() == [batch]
    assert statuses(rig.refuse(batch, ErrorCode.MESSAGE_TOO_LARGE)) == [(0, OperationStatus.INFO)]


def test_an_attempt_that_never_left_leaves_no_doubt() -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.full_batches(1)
    (batch,) = rig.take()
    assert rig.lose(batch, sent=False) == []
    rig.now_ms += 1000
    assert statuses(rig.accumulator.expire(rig.now_ms)) == [(0, OperationStatus.FAIL)]


def test_out_of_order_with_nothing_before_it_ends_the_producer() -> None:
    rig = Rig()
    rig.established()
    rig.full_batches(1)
    (batch,) = rig.take()
    assert statuses(rig.refuse(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)) == [(1, OperationStatus.FAIL)]
    with pytest.raises(ProducerRetired, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        rig.add()


def test_a_gap_stops_its_lane_and_fails_what_was_never_sent_there() -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.established()
    rig.full_batches(2)
    one, two = rig.take()
    rig.lose(one)
    rig.full_batches(1)
    rig.now_ms += 1000
    assert statuses(rig.accumulator.expire(rig.now_ms)) == [(1, OperationStatus.INFO), (3, OperationStatus.FAIL)]
    # What was in flight behind it gets its own answer, and is not sent again.
    assert statuses(rig.refuse(two, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)) == [(2, OperationStatus.FAIL)]
    assert rig.accumulator.idle


def test_in_a_stopped_lane_an_acknowledgement_still_counts_and_a_loss_is_in_doubt() -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.established()
    rig.full_batches(3)
    one, two, three = rig.take()
    rig.refuse(one, ErrorCode.MESSAGE_TOO_LARGE)
    assert statuses(rig.accumulator.acked(two, 9, -1)) == [(2, OperationStatus.OK)]
    assert statuses(rig.lose(three)) == [(3, OperationStatus.INFO)]


def test_other_lanes_finish_after_a_gap() -> None:
    rig = Rig()
    rig.add(size=1000, index=0)
    rig.add(size=1000, index=1)
    one, other = rig.take()
    rig.refuse(one, ErrorCode.MESSAGE_TOO_LARGE)
    assert rig.lose(other) == []
    rig.now_ms += 5000
    assert rig.take() == [other]


def test_what_is_in_flight_is_not_expired_but_gets_no_other_attempt() -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.full_batches(1)
    (batch,) = rig.take()
    rig.now_ms += 1500
    assert rig.accumulator.expire(rig.now_ms) == []
    assert statuses(rig.lose(batch)) == [(0, OperationStatus.INFO)]


def test_a_record_never_sent_within_its_time_fails_and_leaves_no_gap() -> None:
    rig = Rig(delivery_timeout_ms=1000)
    rig.full_batches(1)
    rig.now_ms += 1000
    assert statuses(rig.accumulator.expire(rig.now_ms)) == [(0, OperationStatus.FAIL)]
    rig.full_batches(1)
    (batch,) = rig.take()
    assert batch.sequence == 0


def test_without_idempotence_retries_may_overtake_and_a_failure_leaves_the_rest_alone() -> None:
    rig = Rig(idempotence=False)
    rig.full_batches(3)
    one, two, _ = rig.take()
    rig.lose(one)
    assert statuses(rig.refuse(two, ErrorCode.MESSAGE_TOO_LARGE)) == [(1, OperationStatus.FAIL)]
    rig.now_ms += 5000
    assert rig.take() == [one]
    assert rig.accumulator.retired == ""


def test_one_in_flight_without_idempotence_keeps_order_by_stopping_after_doubt() -> None:
    rig = Rig(idempotence=False, max_in_flight=1, delivery_timeout_ms=1000)
    rig.full_batches(2)
    (one,) = rig.take()
    rig.lose(one)
    rig.now_ms += 1000
    assert statuses(rig.accumulator.expire(rig.now_ms))[0] == (0, OperationStatus.INFO)
    assert rig.take() == []


def test_the_buffer_is_bounded_and_room_comes_back_with_outcomes() -> None:
    rig = Rig(buffer_bytes=3000)
    rig.full_batches(2)
    with pytest.raises(BufferFull):
        rig.full_batches(1)
    (batch,) = rig.take()
    rig.accumulator.acked(batch, 0, -1)
    rig.full_batches(1)
    assert len(rig.take()) == 2


def test_a_record_larger_than_the_whole_buffer_still_goes_alone() -> None:
    rig = Rig(buffer_bytes=100)
    rig.full_batches(1)
    assert len(rig.take()) == 1


def test_a_new_leader_ends_the_back_off() -> None:
    rig = Rig()
    rig.full_batches(1)
    (batch,) = rig.take()
    rig.refuse(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.take() == []
    rig.accumulator.leader_moved("t", 0)
    assert rig.take() == [batch]


def test_abandoning_calls_in_doubt_only_what_was_sent() -> None:
    rig = Rig()
    rig.established()
    rig.full_batches(2)
    rig.take()
    rig.full_batches(1)
    assert statuses(rig.accumulator.abandon("closed")) == [
        (1, OperationStatus.INFO),
        (2, OperationStatus.INFO),
        (3, OperationStatus.FAIL),
    ]
    assert rig.accumulator.idle and rig.accumulator.buffered_bytes == 0


def test_a_failed_batch_waits_for_later_ones_even_after_one_of_them_is_acknowledged() -> None:
    rig = Rig()
    rig.established()
    rig.full_batches(3)
    one, two, three = rig.take()
    rig.refuse(one, ErrorCode.REQUEST_TIMED_OUT)
    rig.accumulator.acked(two, 2, -1)
    rig.now_ms += 5000
    assert rig.take() == []
    rig.accumulator.acked(three, 3, -1)
    assert rig.take() == [one]


def idle_until_ms(rig: Rig) -> int:
    """Until then a producer need not look; what it would find now is nothing."""
    rests = rig.accumulator.idle_until_ms
    if rig.now_ms < rests:
        assert not rig.accumulator.sendable(rig.now_ms)
        assert rig.accumulator.next_look_ms(rig.now_ms) == rests
    return rests


def test_while_all_that_there_is_lingers_nothing_need_be_looked_for() -> None:
    rig = Rig()
    rig.add()
    assert idle_until_ms(rig) == 1005
    rig.now_ms = 1002
    rig.add(index=1)
    assert idle_until_ms(rig) == 1005, "the first record goes first"


@pytest.mark.parametrize("ends", ["a full batch", "a flush", "something in flight"])
def test_the_rest_is_over_once_anything_may_be_sent_or_answered(ends: str) -> None:
    rig = Rig()
    rig.add()
    if ends == "a full batch":
        rig.full_batches(1)
    elif ends == "a flush":
        rig.accumulator.flush()
    else:
        rig.now_ms = 1005
        rig.take()
        rig.add()
    assert idle_until_ms(rig) <= rig.now_ms
