"""Decides how a client ends a transaction: EndTxn in every state, with transaction version 1 (V1) or 2 (V2), as a first
attempt or a retry.

| state | V1 commit | V1 abort | V2 commit: retry, current | V2 abort: retry, current |
|---|---|---|---|---|
| Empty | 48 | 48 | 90, 48 | 90, abort |
| Ongoing | commit | abort | 90, commit | 90, abort |
| PrepareCommit, PrepareAbort | 51 | 51 | 51, 51 | 51, 51 |
| CompleteCommit | 0 | 48 | 0, 48 | 48, abort |
| CompleteAbort | 48 | 0 | 48, 48 | 0, abort |

0: already done. 48: INVALID_TXN_STATE. 51: CONCURRENT_TRANSACTIONS. 90: PRODUCER_FENCED. commit, abort: the transaction
is prepared. A V2 cell gives the result of a retry, which has the epoch before the bump, and then that of a request in
the current epoch. V1 knows no retry: any epoch but the current epoch is fenced. V2 may abort without an open
transaction: the broker may not know yet of the records that the client wants to abort. While markers are being written,
V2 answers 51 to every epoch and producer id, as Apache Kafka 4.3.1 does: a producer that has begun its next transaction
is not fenced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from squall.broker.coordinators.transactions.values import (
    AT_REST,
    NO_PRODUCER_ID,
    PREPARED,
    V2,
    EndTransaction,
    TransactionLogRecord,
    TransactionMetadata,
    TxnCoordinatorResult,
    TxnResponse,
    TxnState,
)
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.coordinators.transactions.rules import TransactionRules

_ILLEGAL = TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_TXN_STATE))
_CONCURRENT = TxnCoordinatorResult(TxnResponse(ErrorCode.CONCURRENT_TRANSACTIONS))
_FENCED = TxnCoordinatorResult(TxnResponse(ErrorCode.PRODUCER_FENCED))
_NOT_FOUND = TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_PRODUCER_ID_MAPPING))

_DECIDED: Final = {
    TxnState.COMPLETE_COMMIT: True,
    TxnState.COMPLETE_ABORT: False,
}
"""Maps a complete state to True if the transaction was committed, or False if it was aborted."""


def decide(
    rules: TransactionRules, found: TransactionMetadata, request: EndTransaction, now_ms: int, fresh_id: int
) -> TxnCoordinatorResult:
    """Return the response to an EndTxn, and the records to append before it. `found` is the state of the transactional
    id. `fresh_id` is an unused producer id, which is needed if the epochs are used up, or -1 if there is none.
    """
    assert found.transactional_id == request.transactional_id
    return (_v2 if request.client_version >= V2 else _v1)(rules, found, request, now_ms, fresh_id)


def _v1(
    rules: TransactionRules, found: TransactionMetadata, request: EndTransaction, now_ms: int, fresh_id: int
) -> TxnCoordinatorResult:
    if found.producer_id != request.producer_id:
        return _NOT_FOUND
    if rules.is_fenced(found, request.epoch):
        return _FENCED
    if rules.awaits_markers(found):
        return _CONCURRENT
    if found.state == TxnState.ONGOING:
        return _prepared(rules, found, request, now_ms, fresh_id)
    return TxnCoordinatorResult(TxnResponse()) if _DECIDED.get(found.state) == request.commit else _ILLEGAL


def _v2(
    rules: TransactionRules, found: TransactionMetadata, request: EndTransaction, now_ms: int, fresh_id: int
) -> TxnCoordinatorResult:
    # First, other than in V1: see the end of the module's head.
    if rules.awaits_markers(found):
        return _CONCURRENT
    retry = rules.is_retry_of_end(found, request)
    if found.producer_id != request.producer_id and not rules.is_retry_of_overflow(found, request):
        return _NOT_FOUND
    if not rules.may_end(found, request):
        return _FENCED
    if found.state == TxnState.ONGOING:
        return _prepared(rules, found, request, now_ms, fresh_id)
    if found.state in AT_REST and not retry:
        return _ILLEGAL if request.commit else _prepared(rules, found, request, now_ms, fresh_id)
    if _DECIDED.get(found.state) != request.commit:
        return _ILLEGAL
    assert retry
    return TxnCoordinatorResult(TxnResponse(producer_id=found.producer_id, epoch=found.epoch))


def _prepared(
    rules: TransactionRules, found: TransactionMetadata, request: EndTransaction, now_ms: int, fresh_id: int
) -> TxnCoordinatorResult:
    """Return the decision to commit or abort. Once its record is committed, the outcome of the transaction is final. If
    the epochs are used up, the next transaction gets the producer id `fresh_id`.
    """
    assert found.state == TxnState.ONGOING or found.state in AT_REST
    v2 = request.client_version >= V2
    next_id = NO_PRODUCER_ID
    if v2 and rules.is_exhausted(found.epoch):
        if fresh_id < 0:
            return TxnCoordinatorResult(TxnResponse(), needs_producer_id=True)
        # This end takes the last epoch, which no client gets: the next transaction needs another producer id.
        next_id = fresh_id
    assert next_id != found.producer_id
    after = replace(
        found,
        epoch=rules.epoch_of_end(found, request.client_version),
        last_epoch=found.epoch if v2 else found.last_epoch,
        state=TxnState.PREPARE_COMMIT if request.commit else TxnState.PREPARE_ABORT,
        started_ms=found.started_ms if found.state == TxnState.ONGOING else now_ms,
        updated_ms=now_ms,
        previous_producer_id=found.producer_id,
        next_producer_id=next_id,
        client_version=request.client_version,
    )
    answer = TxnResponse()
    if v2:
        # The response already has the next transaction's id and epoch, before the completing record (KIP-890).
        goes_on = completed(after, now_ms)
        answer = TxnResponse(producer_id=goes_on.producer_id, epoch=goes_on.epoch)
    return TxnCoordinatorResult(
        answer, (TransactionLogRecord(found.transactional_id, after),), used_producer_id=next_id >= 0
    )


def completed(prepared: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the state after all markers are written, with the next producer id if one was allocated (V2)."""
    assert prepared.state in PREPARED
    goes_on = prepared.next_producer_id >= 0 and prepared.client_version >= V2
    return replace(
        prepared,
        producer_id=prepared.next_producer_id if goes_on else prepared.producer_id,
        epoch=0 if goes_on else prepared.epoch,
        state=TxnState.COMPLETE_COMMIT if prepared.state == TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT,
        partitions=(),
        updated_ms=now_ms,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
