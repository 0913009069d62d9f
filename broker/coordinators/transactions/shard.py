"""Implements the transactional ids of one partition of __transaction_state as a state machine that decides and replays.

`decide` changes nothing. The caller appends the decided records to the partition's log, and then replays them: so the
shard always equals its log, and a record that could not be appended has no effect. A response must not be sent before
the records that it depends on are committed: `offset_of` returns the offset of the last of these records.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.broker.coordinators.transactions import ending
from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.values import (
    AT_REST,
    LEGAL,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    V1,
    V2,
    AbortTimedOutTransaction,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    ExpireTransactionalId,
    InitProducer,
    MarkersWritten,
    TransactionLogRecord,
    TransactionMetadata,
    TransactionSettings,
    TxnCoordinatorResult,
    TxnResponse,
    TxnState,
    VerifyPartitions,
)
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.coordinators.transactions.values import Request, TopicPartition

NOTHING_WRITTEN = -1
_NOT_FOUND = TxnResponse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCED = TxnResponse(ErrorCode.PRODUCER_FENCED)
_CONCURRENT = TxnResponse(ErrorCode.CONCURRENT_TRANSACTIONS)


class TransactionCoordinatorShard(TransactionRules):
    """Holds the transactional ids of one partition of __transaction_state, as of the last replayed record."""

    __slots__ = ("_forgotten", "_offsets")

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.transactions = {}
        self._offsets: dict[str, int] = {}
        self._forgotten = NOTHING_WRITTEN
        """Holds the offset of the newest tombstone of any id. A response about an unknown id waits until that tombstone
        is committed, because this tombstone or an older one may have removed the id.
        """

    # ---------------------------------------------------------------------------------------------------------- replay

    def replay(self, written: TransactionLogRecord, offset: int) -> None:
        """Apply a record of the log. Records must come in the log's order."""
        name = written.transactional_id
        assert offset > self._offsets.get(name, NOTHING_WRITTEN)
        assert offset > self._forgotten
        if written.transaction is None:
            self.transactions.pop(name, None)
            self._offsets.pop(name, None)
            self._forgotten = offset
            return
        assert written.transaction.transactional_id == name
        self.transactions[name] = written.transaction
        self._offsets[name] = offset
        assert len(self._offsets) == len(self.transactions)

    def offset_of(self, transactional_id: str) -> int:
        """Return the offset of the last record that responses about this id depend on; NOTHING_WRITTEN if there is
        none.
        """
        return self._offsets.get(transactional_id, self._forgotten)

    def inspect(self) -> dict[str, TransactionMetadata]:
        """Return a copy of all transactions by their id, for comparisons with the log."""
        return dict(self.transactions)

    # -------------------------------------------------------------------------------------------------- what is due

    def awaiting_markers(self) -> list[TransactionMetadata]:
        """Return the transactions that are decided but not complete, in the order of their ids' first records."""
        assert self._offsets.keys() == self.transactions.keys()
        assert all(t.transactional_id == name for name, t in self.transactions.items())
        return [t for t in self.transactions.values() if self.awaits_markers(t)]

    def timed_out(self, now_ms: int) -> list[AbortTimedOutTransaction]:
        """Return requests to abort the transactions that have exceeded their time-out."""
        return [
            AbortTimedOutTransaction(t.transactional_id)
            for t in self.transactions.values()
            if self.is_timed_out(t, now_ms)
        ]

    def expired(self, now_ms: int) -> list[ExpireTransactionalId]:
        """Return requests to remove the transactional ids that have expired."""
        return [
            ExpireTransactionalId(t.transactional_id) for t in self.transactions.values() if self.is_expired(t, now_ms)
        ]

    # ---------------------------------------------------------------------------------------------------------- decide

    def decide(self, request: Request, now_ms: int, fresh_producer_id: int = NO_PRODUCER_ID) -> TxnCoordinatorResult:
        """Return the response to a request and the record to append. `fresh_producer_id`: unused producer id or -1."""
        found = self.transactions.get(request.transactional_id)
        decision: TxnCoordinatorResult = self._DECIDERS[type(request)](self, found, request, now_ms, fresh_producer_id)
        # A single record per decision: the log may end after any record, and no decision may be there in part.
        assert len(decision.records) <= 1
        for written in decision.records:
            assert written.transactional_id == request.transactional_id
            self._check(found, written.transaction)
        # A refused request changes nothing. InitProducerId of an open transaction is refused until its abort is done.
        assert not decision.records or decision.answer.error in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
        assert not (decision.needs_producer_id and decision.records)
        assert not decision.used_producer_id or fresh_producer_id >= 0
        assert not decision.used_producer_id or decision.records
        return decision

    def _check(self, before: TransactionMetadata | None, after: TransactionMetadata | None) -> None:
        """Assert the invariants of a change of a transaction, from its state before a new record to the state after it.
        """
        if after is None:
            assert before is not None
            assert before.state in AT_REST
            return
        assert after.producer_id >= 0
        assert 0 <= after.epoch <= MAX_EPOCH
        assert bool(after.partitions) <= (after.state not in AT_REST)
        if before is None:
            assert after.state == TxnState.EMPTY
            return
        assert before.state in LEGAL[after.state], f"{before.state.name} -> {after.state.name}"
        assert after.previous_producer_id == before.producer_id
        if after.producer_id == before.producer_id:
            assert before.epoch <= after.epoch <= before.epoch + 1
        else:
            assert after.epoch == 0
        if after.state == TxnState.ONGOING:
            assert set(before.partitions) <= set(after.partitions)
            assert (after.producer_id, after.epoch) == (before.producer_id, before.epoch)
        if after.state in AT_REST:
            assert after.next_producer_id == NO_PRODUCER_ID
        if after.state in PREPARED:
            # Markers go to these partitions: one too few would leave a transaction open for ever.
            assert after.partitions == before.partitions
            assert after.producer_id == before.producer_id

    def _init_producer(
        self, found: TransactionMetadata | None, request: InitProducer, now_ms: int, fresh_id: int
    ) -> TxnCoordinatorResult:
        """Decide an InitProducerId: fence the previous producer of this id, abort its open transaction, and return the
        next epoch.
        """
        claims = request.producer_id >= 0
        if not request.transactional_id or claims != (request.epoch >= 0):
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_REQUEST))
        if not self.is_timeout_allowed(request.timeout_ms):
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        if found is None:
            if fresh_id < 0:
                return TxnCoordinatorResult(TxnResponse(), needs_producer_id=True)
            born = TransactionMetadata(
                request.transactional_id,
                fresh_id,
                self.first_epoch(),
                request.timeout_ms,
                updated_ms=now_ms,
                previous_producer_id=fresh_id,
            )
            return self._given(born, used=True)
        if self.awaits_markers(found):
            # Markers in flight carry the current epoch: it may rise only once all of them are written.
            return TxnCoordinatorResult(_CONCURRENT)
        if claims and not self.is_known_producer(found, request):
            return TxnCoordinatorResult(_FENCED)
        if found.state == TxnState.ONGOING:
            if claims and self.is_fenced(found, request.epoch):
                # Kafka differs: any claim with the right producer id aborts its successor's open transaction.
                return TxnCoordinatorResult(_FENCED)
            return TxnCoordinatorResult(_CONCURRENT, (self._fence(found, now_ms),))
        if self.is_exhausted(found.epoch) and (not claims or request.epoch == found.epoch):
            return self._rotate(found, request, now_ms, fresh_id)
        return self._bump(found, request, now_ms)

    def _given(self, transaction: TransactionMetadata, *, used: bool = False) -> TxnCoordinatorResult:
        assert transaction.state == TxnState.EMPTY
        answer = TxnResponse(producer_id=transaction.producer_id, epoch=transaction.epoch)
        return TxnCoordinatorResult(
            answer, (TransactionLogRecord(transaction.transactional_id, transaction),), used_producer_id=used
        )

    def _rotate(
        self, found: TransactionMetadata, request: InitProducer, now_ms: int, fresh_id: int
    ) -> TxnCoordinatorResult:
        """Give the transactional id the new producer id `fresh_id`, because the epochs of its old one are used up."""
        if fresh_id < 0:
            return TxnCoordinatorResult(TxnResponse(), needs_producer_id=True)
        assert fresh_id != found.producer_id
        # A producer that claimed its epoch may repeat the request if the response got lost: `bumped` knows it by this.
        last_epoch = found.epoch if request.producer_id >= 0 else NO_EPOCH
        rested = self._without_transaction(found, request, now_ms)
        return self._given(replace(rested, producer_id=fresh_id, epoch=0, last_epoch=last_epoch), used=True)

    def _bump(self, found: TransactionMetadata, request: InitProducer, now_ms: int) -> TxnCoordinatorResult:
        bumped = self.bumped(found, request)
        if bumped is None or bumped[0] >= MAX_EPOCH:
            return TxnCoordinatorResult(_FENCED)
        return self._given(
            replace(self._without_transaction(found, request, now_ms), epoch=bumped[0], last_epoch=bumped[1])
        )

    def _without_transaction(
        self, found: TransactionMetadata, request: InitProducer, now_ms: int
    ) -> TransactionMetadata:
        """Return `found` as EMPTY, without partitions, and with the transaction time-out of `request`."""
        assert found.transactional_id == request.transactional_id
        assert found.state != TxnState.ONGOING
        assert found.state not in PREPARED
        return replace(
            found,
            timeout_ms=request.timeout_ms,
            state=TxnState.EMPTY,
            partitions=(),
            started_ms=NO_TIME,
            updated_ms=now_ms,
            previous_producer_id=found.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def _fence(self, found: TransactionMetadata, now_ms: int) -> TransactionLogRecord:
        """Return a record that fences the producer of the open transaction: it raises the epoch and decides the abort.
        One record does both, so that the producer is never fenced while the abort is undecided.

        With transaction version 2 the record keeps the old epoch in `last_epoch`. After a time-out the producer may
        claim that epoch and continue (KIP-588, KIP-360), until another producer initializes.

        A transaction in MAX_EPOCH has no higher epoch, so it is aborted in that epoch. Its record then has the client
        version V1, because partitions refuse a marker of version 2 whose epoch is not higher.
        """
        assert found.state == TxnState.ONGOING
        version = V1 if self.is_last_epoch(found.epoch) else self.settings.version
        return TransactionLogRecord(
            found.transactional_id,
            replace(
                found,
                epoch=self.fenced_epoch(found),
                last_epoch=found.epoch if version >= V2 else NO_EPOCH,
                state=TxnState.PREPARE_ABORT,
                updated_ms=now_ms,
                previous_producer_id=found.producer_id,
                client_version=version,
            ),
        )

    def _add_partitions(
        self, found: TransactionMetadata | None, request: AddPartitions, now_ms: int, _: int
    ) -> TxnCoordinatorResult:
        """Decide an AddPartitionsToTxn. The first partitions begin the transaction."""
        if not request.transactional_id:
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_REQUEST))
        if found is None:
            return TxnCoordinatorResult(_NOT_FOUND)
        if not self.may_begin(found):
            return TxnCoordinatorResult(_CONCURRENT)
        if found.producer_id != request.producer_id:
            return TxnCoordinatorResult(_NOT_FOUND)
        if self.is_fenced(found, request.epoch) or self.is_last_epoch(request.epoch):
            return TxnCoordinatorResult(_FENCED)
        more = tuple(dict.fromkeys(p for p in request.partitions if p not in found.partitions))
        goes_on = found.state == TxnState.ONGOING
        assert not set(more) & set(found.partitions)
        # No record of its own, but the response still waits for the id's last one, which may have added them.
        if goes_on and not more:
            return TxnCoordinatorResult(TxnResponse())
        after = replace(
            found,
            state=TxnState.ONGOING,
            partitions=tuple(sorted(found.partitions + more)),
            started_ms=found.started_ms if goes_on else now_ms,
            updated_ms=now_ms,
            previous_producer_id=found.producer_id,
            client_version=request.client_version,
        )
        return TxnCoordinatorResult(TxnResponse(), (TransactionLogRecord(found.transactional_id, after),))

    def _verify(self, found: TransactionMetadata | None, request: VerifyPartitions, *_: int) -> TxnCoordinatorResult:
        """Return NONE for each partition of the request that is in the transaction, else TRANSACTION_ABORTABLE."""
        if not request.transactional_id:
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_REQUEST))
        if found is None or found.producer_id != request.producer_id:
            return TxnCoordinatorResult(_NOT_FOUND)
        if self.is_fenced(found, request.epoch):
            return TxnCoordinatorResult(_FENCED)
        if self.awaits_markers(found):
            return TxnCoordinatorResult(_CONCURRENT)
        return TxnCoordinatorResult(
            TxnResponse(partitions=tuple((p, self._verdict(found, p)) for p in request.partitions))
        )

    def _verdict(self, found: TransactionMetadata, partition: TopicPartition) -> ErrorCode:
        inside = self.is_in_transaction(found, partition)
        return ErrorCode.NONE if inside else ErrorCode.TRANSACTION_ABORTABLE

    def _describe(
        self, found: TransactionMetadata | None, request: DescribeTransaction, *_: int
    ) -> TxnCoordinatorResult:
        if not request.transactional_id:
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_REQUEST))
        if found is None:
            return TxnCoordinatorResult(TxnResponse(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
        return TxnCoordinatorResult(TxnResponse(transaction=found))

    def _end(
        self, found: TransactionMetadata | None, request: EndTransaction, now_ms: int, fresh_id: int
    ) -> TxnCoordinatorResult:
        """Decide an EndTxn of either transaction version. `fresh_id`: an unused producer id, or -1 if there is none."""
        if not request.transactional_id:
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_REQUEST))
        if found is None:
            return TxnCoordinatorResult(_NOT_FOUND)
        return ending.decide(self, found, request, now_ms, fresh_id)

    def _markers_written(
        self, found: TransactionMetadata | None, request: MarkersWritten, now_ms: int, _: int
    ) -> TxnCoordinatorResult:
        """Complete a transaction all of whose markers are written, and move to the next producer id if one was
        allocated.
        """
        same = found is not None and (found.producer_id, found.epoch) == (request.producer_id, request.epoch)
        # A report that was delayed until the id's next transaction must not complete that one.
        if found is None or not same or not self.awaits_markers(found):
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_TXN_STATE))
        record = TransactionLogRecord(found.transactional_id, ending.completed(found, now_ms))
        return TxnCoordinatorResult(TxnResponse(), (record,))

    def _time_out(
        self, found: TransactionMetadata | None, request: AbortTimedOutTransaction, now_ms: int, _: int
    ) -> TxnCoordinatorResult:
        # Checked again: the request was made from a list, and other requests have come while that was worked off.
        if found is None or not self.is_timed_out(found, now_ms):
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_TXN_STATE))
        return TxnCoordinatorResult(TxnResponse(), (self._fence(found, now_ms),))

    def _expire(
        self, found: TransactionMetadata | None, request: ExpireTransactionalId, now_ms: int, _: int
    ) -> TxnCoordinatorResult:
        if found is None or not self.is_expired(found, now_ms):
            return TxnCoordinatorResult(TxnResponse(ErrorCode.INVALID_TXN_STATE))
        return TxnCoordinatorResult(TxnResponse(), (TransactionLogRecord(found.transactional_id, None),))

    _DECIDERS: dict[type[Any], Callable[..., TxnCoordinatorResult]] = {
        InitProducer: _init_producer,
        AddPartitions: _add_partitions,
        VerifyPartitions: _verify,
        DescribeTransaction: _describe,
        EndTransaction: _end,
        MarkersWritten: _markers_written,
        AbortTimedOutTransaction: _time_out,
        ExpireTransactionalId: _expire,
    }
