"""EndTxn in every state, of both generations, first time and retry."""

from __future__ import annotations

import pytest

from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    V1,
    V2,
    AbortTimedOutTransaction,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    TransactionLogRecord,
    TransactionMetadata,
    TransactionSettings,
    TxnState,
)
from squall.broker.protocol.errors import ErrorCode

PID, EPOCH, NOW = 7, 5, 1_000
E, O, PC, PA, CC, CA = tuple(TxnState)[:6]  # noqa: E741
OK, ILLEGAL, CONCURRENT, FENCED = 0, 48, 51, 90


def shard_in(
    state: TxnState, *, epoch: int = EPOCH, producer_id: int = PID, **more: int
) -> TransactionCoordinatorShard:
    """A shard with transactional id "x" in a state."""
    open_ = state in (O, PC, PA)
    shard = TransactionCoordinatorShard(TransactionSettings())
    transaction = TransactionMetadata(
        "x", producer_id, epoch, 60_000, state, (("t", 0),) if open_ else (), 900 if state != E else -1, 950, **more
    )
    shard.replay(TransactionLogRecord("x", transaction), 0)
    return shard


def end(
    shard: TransactionCoordinatorShard,
    *,
    commit: bool,
    version: int,
    epoch: int = EPOCH,
    producer_id: int = PID,
    fresh: int = -1,
):
    return shard.decide(EndTransaction("x", producer_id, epoch, commit, version), NOW, fresh)


@pytest.mark.parametrize(
    ("state", "commit", "error", "becomes"),
    [
        (E, True, ILLEGAL, None), (E, False, ILLEGAL, None),
        (O, True, OK, PC), (O, False, OK, PA),
        (PC, True, CONCURRENT, None), (PC, False, CONCURRENT, None),
        (PA, True, CONCURRENT, None), (PA, False, CONCURRENT, None),
        (CC, True, OK, None), (CC, False, ILLEGAL, None),
        (CA, True, ILLEGAL, None), (CA, False, OK, None),
    ],
)  # fmt: skip
def test_v1_ends_an_open_transaction_and_knows_its_own_retry_by_the_state(
    state: TxnState, commit: bool, error: int, becomes: TxnState | None
) -> None:
    decision = end(shard_in(state), commit=commit, version=V1)
    assert decision.answer.error == error
    assert [w.transaction.state for w in decision.records if w.transaction] == ([] if becomes is None else [becomes])
    assert all(w.transaction is not None and w.transaction.epoch == EPOCH for w in decision.records)


@pytest.mark.parametrize("state", [E, O, PC, PA, CC, CA])
@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH + 1])
@pytest.mark.parametrize("commit", [True, False])
def test_v1_fences_every_other_epoch(state: TxnState, epoch: int, commit: bool) -> None:
    decision = end(shard_in(state), commit=commit, version=V1, epoch=epoch)
    assert decision.answer.error == FENCED
    assert not decision.records


RETRY, CURRENT = EPOCH - 1, EPOCH


@pytest.mark.parametrize(
    ("state", "commit", "epoch", "error", "becomes"),
    [
        (E, False, RETRY, FENCED, None), (E, False, CURRENT, OK, PA),
        (E, True, RETRY, FENCED, None), (E, True, CURRENT, ILLEGAL, None),
        (O, False, RETRY, FENCED, None), (O, False, CURRENT, OK, PA),
        (O, True, RETRY, FENCED, None), (O, True, CURRENT, OK, PC),
        (CC, False, RETRY, ILLEGAL, None), (CC, False, CURRENT, OK, PA),
        (CC, True, RETRY, OK, None), (CC, True, CURRENT, ILLEGAL, None),
        (CA, False, RETRY, OK, None), (CA, False, CURRENT, OK, PA),
        (CA, True, RETRY, ILLEGAL, None), (CA, True, CURRENT, ILLEGAL, None),
    ],
)  # fmt: skip
def test_v2_knows_a_retry_by_the_epoch_before_the_bump(
    state: TxnState, commit: bool, epoch: int, error: int, becomes: TxnState | None
) -> None:
    decision = end(shard_in(state), commit=commit, version=V2, epoch=epoch)
    assert decision.answer.error == error
    assert [w.transaction.state for w in decision.records if w.transaction] == ([] if becomes is None else [becomes])
    if becomes is not None:
        assert (decision.answer.producer_id, decision.answer.epoch) == (PID, EPOCH + 1)
        assert decision.records[0].transaction is not None
        assert decision.records[0].transaction.epoch == EPOCH + 1
    elif error == OK:
        assert (decision.answer.producer_id, decision.answer.epoch) == (PID, EPOCH), "of the next transaction"


@pytest.mark.parametrize("state", [E, O, CC, CA])
@pytest.mark.parametrize("epoch", [EPOCH - 2, EPOCH + 1])
@pytest.mark.parametrize("commit", [True, False])
def test_v2_fences_every_epoch_that_is_neither_current_nor_the_one_before(
    state: TxnState, epoch: int, commit: bool
) -> None:
    decision = end(shard_in(state), commit=commit, version=V2, epoch=epoch)
    assert decision.answer.error == FENCED
    assert not decision.records


@pytest.mark.parametrize("state", [PC, PA])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [EPOCH - 2, RETRY, CURRENT, EPOCH + 1])
@pytest.mark.parametrize("producer_id", [PID, PID + 1])
def test_v2_fences_nobody_while_markers_are_written(
    state: TxnState, commit: bool, epoch: int, producer_id: int
) -> None:
    """It was fatal where a producer was on to the end of its next transaction, which has the current epoch."""
    decision = end(shard_in(state), commit=commit, version=V2, epoch=epoch, producer_id=producer_id)
    assert (decision.answer.error, decision.records) == (CONCURRENT, ())


@pytest.mark.parametrize("version", [V1, V2])
def test_an_unknown_id_and_another_producer_have_no_transaction_to_end(version: int) -> None:
    assert (
        end(TransactionCoordinatorShard(TransactionSettings()), commit=True, version=version).answer.error
        == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    other = end(shard_in(O), commit=True, version=version, producer_id=8)
    assert other.answer.error == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_abort_at_rest_owes_no_markers_and_completes_with_the_bumped_epoch() -> None:
    shard = shard_in(CC)
    [prepared] = end(shard, commit=False, version=V2).records
    shard.replay(prepared, 1)
    [owing] = shard.awaiting_markers()
    assert (owing.partitions, owing.started_ms) == ((), NOW)
    [done] = shard.decide(MarkersWritten("x", PID, EPOCH + 1), NOW).records
    assert done.transaction is not None
    assert (done.transaction.state, done.transaction.epoch) == (CA, EPOCH + 1)


def test_v2_goes_on_with_another_producer_id_where_the_epochs_are_used_up() -> None:
    shard = shard_in(O, epoch=32_766)
    without = end(shard, commit=True, version=V2, epoch=32_766)
    assert without.needs_producer_id
    assert not without.records
    decision = end(shard, commit=True, version=V2, epoch=32_766, fresh=99)
    assert decision.used_producer_id
    assert (decision.answer.producer_id, decision.answer.epoch) == (99, 0)
    shard.replay(decision.records[0], 1)
    [owing] = shard.awaiting_markers()
    assert (owing.producer_id, owing.epoch) == (PID, 32_767), "the markers end what the old producer id wrote"
    assert end(shard, commit=True, version=V2, epoch=32_766).answer.error == CONCURRENT
    shard.replay(shard.decide(MarkersWritten("x", PID, 32_767), NOW).records[0], 2)
    assert (shard.transactions["x"].producer_id, shard.transactions["x"].epoch) == (99, 0)
    retry = end(shard, commit=True, version=V2, epoch=32_766)
    assert (retry.answer.error, retry.answer.producer_id, retry.answer.epoch) == (OK, 99, 0)
    assert end(shard, commit=False, version=V2, epoch=32_766).answer.error == ILLEGAL
    assert end(shard, commit=True, version=V2, epoch=32_765).answer.error == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_v2_gives_nobody_the_last_epoch_where_a_time_out_used_it_up(epoch: int, commit: bool) -> None:
    """KAFKA-20090: what a client then opens could be neither ended nor fenced."""
    shard = shard_in(O, epoch=32_766)
    shard.replay(shard.decide(AbortTimedOutTransaction("x"), 900 + 60_001).records[0], 1)
    shard.replay(shard.decide(MarkersWritten("x", PID, 32_767), NOW).records[0], 2)
    assert (shard.transactions["x"].state, shard.transactions["x"].epoch) == (CA, 32_767)
    assert end(shard, commit=commit, version=V2, epoch=epoch, fresh=99).answer.error == FENCED
    again = shard.decide(InitProducer("x", 60_000), NOW, 99).answer
    assert (again.producer_id, again.epoch) == (99, 0)


def test_v1_ends_a_transaction_of_the_last_epoch_without_another_producer_id() -> None:
    decision = end(shard_in(O, epoch=32_766), commit=True, version=V1, epoch=32_766)
    assert [w.transaction.epoch for w in decision.records if w.transaction] == [32_766]


def test_markers_of_another_epoch_complete_nothing() -> None:
    shard = shard_in(PC)
    assert not shard.decide(MarkersWritten("x", PID, EPOCH - 1), NOW).records
    assert not shard.decide(MarkersWritten("x", PID + 1, EPOCH), NOW).records
    [done] = shard.decide(MarkersWritten("x", PID, EPOCH), NOW).records
    shard.replay(done, 1)
    assert shard.decide(MarkersWritten("x", PID, EPOCH), NOW).answer.error == ILLEGAL, "complete already"
