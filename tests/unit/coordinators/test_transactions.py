"""InitProducerId, AddPartitionsToTxn, time-outs, expiry and records of the transaction coordinator's shard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.broker.coordinators.transactions import records
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    LEGAL,
    V1,
    V2,
    AbortTimedOutTransaction,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    ExpireTransactionalId,
    InitProducer,
    MarkersWritten,
    Request,
    TransactionLogRecord,
    TransactionMetadata,
    TransactionSettings,
    TxnCoordinatorResult,
    TxnResponse,
    TxnState,
    VerifyPartitions,
)
from squall.broker.protocol.errors import ErrorCode, MalformedFrame

PID, EPOCH, NOW, TIMEOUT = 7, 5, 1_000_000, 60_000
AT_REST = (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


class ShardHarness:
    """A shard with its log: what is decided is replayed."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.shard = TransactionCoordinatorShard(settings or TransactionSettings())
        self.log: list[TransactionLogRecord] = []

    def put(self, state: TxnState, *, epoch: int = EPOCH, **more: int) -> ShardHarness:
        at_rest = state in AT_REST
        transaction = TransactionMetadata(
            "x", PID, epoch, TIMEOUT, state, () if at_rest else (("t", 0),), NOW - 10, NOW - 10, PID, **more
        )
        self.write((TransactionLogRecord("x", transaction),))
        return self

    def write(self, written: tuple[TransactionLogRecord, ...]) -> None:
        for one in written:
            self.shard.replay(one, len(self.log))
            self.log.append(one)

    def decide(self, request: Request, *, fresh: int = -1, now: int = NOW) -> TxnCoordinatorResult:
        return self.shard.decide(request, now, fresh)

    def do(self, request: Request, *, fresh: int = -1, now: int = NOW) -> TxnResponse:
        decision = self.decide(request, fresh=fresh, now=now)
        assert not decision.needs_producer_id
        self.write(decision.records)
        return decision.answer

    @property
    def now(self) -> TransactionMetadata:
        return self.shard.transactions["x"]


def got(answer: TxnResponse) -> tuple[int, int, int]:
    return int(answer.error), answer.producer_id, answer.epoch


# ------------------------------------------------------------------------------------------------------ InitProducerId


def test_a_new_id_gets_a_fresh_producer_id_and_epoch_zero() -> None:
    harness = ShardHarness()
    assert harness.decide(InitProducer("x", TIMEOUT)).needs_producer_id
    assert got(harness.do(InitProducer("x", TIMEOUT), fresh=3)) == (0, 3, 0)
    assert (harness.now.state, harness.now.timeout_ms, harness.now.partitions) == (TxnState.EMPTY, TIMEOUT, ())


@pytest.mark.parametrize("state", AT_REST)
def test_the_next_producer_of_an_id_fences_the_one_before(state: TxnState) -> None:
    harness = ShardHarness().put(state)
    assert got(harness.do(InitProducer("x", 9))) == (0, PID, EPOCH + 1)
    assert (harness.now.state, harness.now.timeout_ms) == (TxnState.EMPTY, 9)
    assert harness.do(AddPartitions("x", PID, EPOCH, (("t", 0),))).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("level", [V1, V2])
def test_an_open_transaction_is_aborted_first_under_an_epoch_that_nobody_has(level: int) -> None:
    harness = ShardHarness(TransactionSettings(version=level)).put(TxnState.ONGOING)
    assert harness.do(InitProducer("x", TIMEOUT)).error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (harness.now.state, harness.now.epoch) == (TxnState.PREPARE_ABORT, EPOCH + 1)
    assert (harness.now.partitions, harness.now.client_version) == ((("t", 0),), level)


CLAIMS = [(PID, EPOCH - 2), (PID, EPOCH - 1), (PID, EPOCH), (PID, EPOCH + 1), (PID + 1, EPOCH)]


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
@pytest.mark.parametrize("claim", [(-1, -1), *CLAIMS])
def test_a_transaction_that_owes_markers_is_waited_for(state: TxnState, claim: tuple[int, int]) -> None:
    decision = ShardHarness().put(state).decide(InitProducer("x", TIMEOUT, *claim))
    assert decision == TxnCoordinatorResult(TxnResponse(ErrorCode.CONCURRENT_TRANSACTIONS))


def test_a_producer_that_says_who_it_was_bumps_its_own_epoch_and_may_ask_twice() -> None:
    harness = ShardHarness().put(TxnState.COMPLETE_ABORT)
    assert got(harness.do(InitProducer("x", TIMEOUT, PID, EPOCH))) == (0, PID, EPOCH + 1)
    assert got(harness.do(InitProducer("x", TIMEOUT, PID, EPOCH))) == (0, PID, EPOCH + 1), "its answer was lost"
    assert got(harness.do(InitProducer("x", TIMEOUT, PID, EPOCH + 1))) == (0, PID, EPOCH + 2)


@pytest.mark.parametrize(("producer_id", "epoch"), [(PID, EPOCH - 1), (PID, EPOCH + 1), (PID + 1, EPOCH)])
@pytest.mark.parametrize("state", [TxnState.ONGOING, *AT_REST])
def test_a_producer_that_was_replaced_gets_no_epoch_and_aborts_nothing(
    state: TxnState, producer_id: int, epoch: int
) -> None:
    decision = ShardHarness().put(state).decide(InitProducer("x", TIMEOUT, producer_id, epoch))
    assert decision.answer.error == ErrorCode.PRODUCER_FENCED
    assert not decision.records


FENCES = [AbortTimedOutTransaction("x"), InitProducer("x", TIMEOUT, PID, EPOCH), InitProducer("x", TIMEOUT)]


def fenced(fence: Request, level: int) -> ShardHarness:
    """An id whose open transaction was aborted under a fence, and is complete."""
    harness = ShardHarness(TransactionSettings(version=level)).put(TxnState.ONGOING)
    harness.do(fence, now=NOW + TIMEOUT)
    harness.do(MarkersWritten("x", PID, EPOCH + 1))
    assert (harness.now.state, harness.now.epoch) == (TxnState.COMPLETE_ABORT, EPOCH + 1)
    return harness


@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("fails_over", [False, True])
def test_a_fenced_producer_of_v2_may_claim_its_epoch_and_gets_the_one_of_the_fence(
    fence: Request, fails_over: bool
) -> None:
    """KIP-588, KIP-360: a transaction that timed out ends no producer."""
    harness = fenced(fence, V2)
    if fails_over:
        decoded = records.decode(*records.encode(harness.log[-1], V2))
        assert decoded is not None
        harness.write((decoded,))
    for _ in range(2):
        assert got(harness.do(InitProducer("x", TIMEOUT, PID, EPOCH))) == (0, PID, EPOCH + 1)
    assert harness.do(InitProducer("x", TIMEOUT, PID, EPOCH - 1)).error == ErrorCode.PRODUCER_FENCED
    assert got(harness.do(InitProducer("x", TIMEOUT))) == (0, PID, EPOCH + 2)
    assert harness.do(InitProducer("x", TIMEOUT, PID, EPOCH)).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("fence", FENCES)
def test_without_transaction_version_2_a_fence_is_for_good(fence: Request) -> None:
    harness = fenced(fence, V1)
    assert harness.do(InitProducer("x", TIMEOUT, PID, EPOCH)).error == ErrorCode.PRODUCER_FENCED


def test_a_fence_with_the_last_epoch_leaves_none_to_claim() -> None:
    harness = ShardHarness().put(TxnState.ONGOING, epoch=32_766)
    harness.do(InitProducer("x", TIMEOUT))
    harness.do(MarkersWritten("x", PID, 32_767))
    assert harness.do(InitProducer("x", TIMEOUT, PID, 32_766), fresh=99).error == ErrorCode.PRODUCER_FENCED


def test_after_somebody_elses_init_a_claim_of_the_epoch_before_is_no_retry() -> None:
    harness = ShardHarness().put(TxnState.EMPTY)
    harness.do(InitProducer("x", TIMEOUT))
    assert harness.do(InitProducer("x", TIMEOUT, PID, EPOCH)).error == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_where_the_epochs_are_used_up_the_next_producer_gets_another_id(epoch: int) -> None:
    harness = ShardHarness().put(TxnState.COMPLETE_COMMIT, epoch=epoch)
    assert harness.decide(InitProducer("x", TIMEOUT)).needs_producer_id
    assert got(harness.do(InitProducer("x", TIMEOUT), fresh=99)) == (0, 99, 0)
    assert harness.now.previous_producer_id == PID


def test_a_retry_of_such_a_change_gets_the_new_id_again() -> None:
    harness = ShardHarness().put(TxnState.COMPLETE_COMMIT, epoch=32_766)
    assert got(harness.do(InitProducer("x", TIMEOUT, PID, 32_766), fresh=99)) == (0, 99, 0)
    assert got(harness.do(InitProducer("x", TIMEOUT, PID, 32_766))) == (0, 99, 0)


@pytest.mark.parametrize("level", [V1, V2])
def test_the_last_usable_epoch_can_still_be_fenced(level: int) -> None:
    harness = ShardHarness(TransactionSettings(version=level)).put(TxnState.ONGOING, epoch=32_766)
    harness.do(InitProducer("x", TIMEOUT))
    assert (harness.now.state, harness.now.epoch) == (TxnState.PREPARE_ABORT, 32_767)


@pytest.mark.parametrize("level", [V1, V2])
def test_nothing_begins_in_the_last_epoch(level: int) -> None:
    """It ended the broker when it was timed out, and then each that loaded the partition of the log."""
    harness = ShardHarness(TransactionSettings(version=level)).put(TxnState.ONGOING, epoch=32_766)
    harness.do(InitProducer("x", TIMEOUT))
    harness.do(MarkersWritten("x", PID, 32_767))
    assert (harness.now.state, harness.now.epoch) == (TxnState.COMPLETE_ABORT, 32_767)
    for version in (V1, V2):
        asked = AddPartitions("x", PID, 32_767, (("t", 0),), version)
        assert harness.do(asked).error == ErrorCode.PRODUCER_FENCED
    assert got(harness.do(InitProducer("x", TIMEOUT), fresh=99)) == (0, 99, 0)


@pytest.mark.parametrize("level", [V1, V2])
def test_what_a_log_has_open_in_the_last_epoch_is_aborted_in_it(level: int) -> None:
    harness = ShardHarness(TransactionSettings(version=level)).put(TxnState.ONGOING, epoch=32_767)
    for commit in (True, False):
        decision = harness.decide(EndTransaction("x", PID, 32_767, commit, V2), fresh=98)
        assert (decision.answer.error, decision.records) == (ErrorCode.PRODUCER_FENCED, ())
    assert harness.do(AbortTimedOutTransaction("x"), now=NOW + TIMEOUT + 1).error == ErrorCode.NONE
    assert (harness.now.state, harness.now.epoch, harness.now.client_version) == (TxnState.PREPARE_ABORT, 32_767, V1)
    harness.do(MarkersWritten("x", PID, 32_767))
    assert got(harness.do(InitProducer("x", TIMEOUT), fresh=99)) == (0, 99, 0)


def test_a_fence_that_could_not_be_written_is_the_same_fence_when_tried_again() -> None:
    harness = ShardHarness().put(TxnState.ONGOING)
    first = harness.decide(InitProducer("x", TIMEOUT))
    assert harness.decide(InitProducer("x", TIMEOUT)) == first
    [written] = first.records
    assert written.transaction is not None
    assert written.transaction.epoch == EPOCH + 1


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducer("", 1), ErrorCode.INVALID_REQUEST),
        (InitProducer("x", 1, PID), ErrorCode.INVALID_REQUEST),
        (InitProducer("x", 1, -1, 0), ErrorCode.INVALID_REQUEST),
        (InitProducer("x", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducer("x", 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_impossible_requests_are_refused(request_: InitProducer, error: ErrorCode) -> None:
    assert ShardHarness().decide(request_, fresh=1) == TxnCoordinatorResult(TxnResponse(error))


# ------------------------------------------------------------------------------------------------- AddPartitionsToTxn


@pytest.mark.parametrize("state", AT_REST)
def test_the_first_partitions_begin_a_transaction(state: TxnState) -> None:
    harness = ShardHarness().put(state)
    assert harness.do(AddPartitions("x", PID, EPOCH, (("t", 0), ("u", 1)), V2)).error == ErrorCode.NONE
    assert (harness.now.state, harness.now.started_ms, harness.now.client_version) == (TxnState.ONGOING, NOW, V2)
    assert harness.now.partitions == (("t", 0), ("u", 1))


def test_more_partitions_leave_the_beginning_as_it_is_and_known_ones_write_nothing() -> None:
    harness = ShardHarness().put(TxnState.ONGOING)
    assert harness.do(AddPartitions("x", PID, EPOCH, (("t", 0), ("t", 1)))).error == ErrorCode.NONE
    assert (harness.now.partitions, harness.now.started_ms) == ((("t", 0), ("t", 1)), NOW - 10)
    assert harness.decide(AddPartitions("x", PID, EPOCH, (("t", 1),))) == TxnCoordinatorResult(TxnResponse())


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_next_transaction_waits_for_the_markers_of_the_one_before(state: TxnState, claim: tuple[int, int]) -> None:
    decision = ShardHarness().put(state).decide(AddPartitions("x", *claim, (("t", 0),)))
    assert decision == TxnCoordinatorResult(TxnResponse(ErrorCode.CONCURRENT_TRANSACTIONS))


@pytest.mark.parametrize("make", [AddPartitions, VerifyPartitions])
@pytest.mark.parametrize(
    ("name", "producer_id", "epoch", "error"),
    [
        ("", PID, EPOCH, ErrorCode.INVALID_REQUEST),
        ("y", PID, EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("x", PID + 1, EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("x", PID, EPOCH - 1, ErrorCode.PRODUCER_FENCED),
        ("x", PID, EPOCH + 1, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_others_neither_add_nor_verify(
    make: type[AddPartitions | VerifyPartitions], name: str, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    decision = ShardHarness().put(TxnState.ONGOING).decide(make(name, producer_id, epoch, (("t", 9),)))
    assert decision == TxnCoordinatorResult(TxnResponse(error))


def test_verification_tells_of_each_partition_whether_it_is_in_the_transaction() -> None:
    harness = ShardHarness().put(TxnState.ONGOING)
    decision = harness.decide(VerifyPartitions("x", PID, EPOCH, (("t", 0), ("t", 1))))
    assert not decision.records
    assert decision.answer.partitions == (
        (("t", 0), ErrorCode.NONE),
        (("t", 1), ErrorCode.TRANSACTION_ABORTABLE),
    )


@pytest.mark.parametrize("state", AT_REST)
def test_at_rest_no_partition_is_in_the_transaction(state: TxnState) -> None:
    decision = ShardHarness().put(state).decide(VerifyPartitions("x", PID, EPOCH, (("t", 0),)))
    assert [error for _, error in decision.answer.partitions] == [ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
def test_while_markers_are_written_nothing_is_verified(state: TxnState) -> None:
    decision = ShardHarness().put(state).decide(VerifyPartitions("x", PID, EPOCH, (("t", 0),)))
    assert decision.answer.error == ErrorCode.CONCURRENT_TRANSACTIONS


# -------------------------------------------------------------------------------------------------------------- time


@pytest.mark.parametrize("level", [V1, V2])
def test_what_is_open_for_longer_than_its_time_out_is_aborted_under_a_fenced_epoch(level: int) -> None:
    harness = ShardHarness(TransactionSettings(version=level)).put(TxnState.ONGOING)
    on_time, late = NOW - 10 + TIMEOUT, NOW - 10 + TIMEOUT + 1
    assert harness.shard.timed_out(on_time) == []
    assert harness.shard.timed_out(late) == [AbortTimedOutTransaction("x")]
    assert harness.decide(AbortTimedOutTransaction("x"), now=on_time).records == ()
    harness.do(AbortTimedOutTransaction("x"), now=late)
    assert (harness.now.state, harness.now.epoch) == (TxnState.PREPARE_ABORT, EPOCH + 1)
    assert harness.shard.timed_out(late) == []


def test_ids_at_rest_are_forgotten_after_a_week_and_open_ones_never() -> None:
    week = TransactionSettings().expiration_ms
    for state in AT_REST:
        harness = ShardHarness().put(state)
        assert harness.shard.expired(NOW - 10 + week - 1) == []
        assert harness.shard.expired(NOW - 10 + week) == [ExpireTransactionalId("x")]
        harness.do(ExpireTransactionalId("x"), now=NOW - 10 + week)
        assert harness.log[-1] == TransactionLogRecord("x", None)
        assert harness.shard.inspect() == {}
        assert harness.shard.offset_of("x") == 1, "what is said of it now rests on the tombstone"
    for state in (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT):
        assert ShardHarness().put(state).shard.expired(NOW + 2 * week) == []


# ------------------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize("state", list(LEGAL))
def test_the_records_of_the_log_hold_all_that_a_new_coordinator_needs(state: TxnState) -> None:
    partitions = () if state in AT_REST else (("t", 0), ("t", 2), ("u", 1))
    whole = TransactionMetadata("x", 1 << 40, 9, TIMEOUT, state, partitions, NOW, NOW + 1, 6, 8, V2)
    again = records.decode(*records.encode(TransactionLogRecord("x", whole), 2))
    assert again == TransactionLogRecord("x", whole)


@pytest.mark.parametrize(
    ("state", "version", "previous", "epoch", "last"),
    [
        (TxnState.PREPARE_COMMIT, V2, PID, 9, 8), (TxnState.PREPARE_ABORT, V2, PID, 9, 8),
        (TxnState.COMPLETE_COMMIT, V2, PID, 9, 8), (TxnState.COMPLETE_ABORT, V2, PID, 9, 8),
        (TxnState.COMPLETE_ABORT, V2, PID - 1, 0, 32_766),
        (TxnState.COMPLETE_ABORT, V1, PID, 9, -1), (TxnState.EMPTY, V2, PID, 9, -1), (TxnState.ONGOING, V2, PID, 9, -1),
    ],
)  # fmt: skip
def test_a_record_of_an_end_of_v2_implies_the_epoch_before_it(
    state: TxnState, version: int, previous: int, epoch: int, last: int
) -> None:
    whole = TransactionMetadata("x", PID, epoch, TIMEOUT, state, (), NOW, NOW, previous, client_version=version)
    again = records.decode(*records.encode(TransactionLogRecord("x", whole), 2))
    assert again is not None
    assert again.transaction is not None
    assert again.transaction.last_epoch == last


def test_below_level_one_records_know_of_no_other_producer_id() -> None:
    whole = TransactionMetadata("x", 1, 9, TIMEOUT, TxnState.EMPTY, (), -1, NOW, 6, -1, V1)
    key, value = records.encode(TransactionLogRecord("x", whole), 0)
    assert (key, value[:2] if value else b"") == (b"\0\0\0\1x", b"\0\0")
    again = records.decode(key, value)
    assert again is not None
    assert again.transaction == replace(whole, previous_producer_id=-1)


def test_a_tombstone_has_no_value_and_records_of_other_types_are_passed_over() -> None:
    key, value = records.encode(TransactionLogRecord("x", None), 2)
    assert value is None
    assert records.decode(key, None) == TransactionLogRecord("x", None)
    assert records.decode(b"\0\x05abc", b"") is None


def test_a_state_that_does_not_exist_is_malformed() -> None:
    key, value = records.encode(TransactionLogRecord("x", TransactionMetadata("x", 1, 0, 1)), 2)
    assert value is not None
    with pytest.raises(MalformedFrame):
        records.decode(key, value[:16] + b"\x63" + value[17:])


def test_describe_changes_nothing() -> None:
    harness = ShardHarness().put(TxnState.ONGOING)
    assert harness.decide(DescribeTransaction("x")) == TxnCoordinatorResult(TxnResponse(transaction=harness.now))
    assert harness.decide(DescribeTransaction("y")).answer.error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert harness.decide(DescribeTransaction("")).answer.error == ErrorCode.INVALID_REQUEST


def test_replaying_the_log_gives_the_same_shard() -> None:
    harness = ShardHarness()
    harness.do(InitProducer("x", TIMEOUT), fresh=3)
    harness.do(InitProducer("y", TIMEOUT), fresh=4)
    harness.do(AddPartitions("x", 3, 0, (("t", 0),)))
    harness.do(InitProducer("x", TIMEOUT))
    again = TransactionCoordinatorShard(TransactionSettings())
    for offset, written in enumerate(harness.log):
        decoded = records.decode(*records.encode(written, 2))
        assert decoded is not None
        again.replay(decoded, offset)
    assert again.inspect() == harness.shard.inspect()
