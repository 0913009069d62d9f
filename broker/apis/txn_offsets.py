"""Handles AddOffsetsToTxn and TxnOffsetCommit: offsets of a group that count if their transaction commits (mechanism P4
in docs/mechanisms.md).

With transaction version 1 the client first adds the group's partition of __consumer_offsets to its transaction, and the
group's coordinator has the transaction verified. With transaction version 2 the group's coordinator adds the partition
(KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.apis.coordinator_requests import ask
from squall.broker.coordinators.groups.values import NO_TIME, GroupResponse, TxnOffsetCommit
from squall.broker.coordinators.transactions.values import V1, AddPartitions, TxnResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import txn_offset_commit as wire
from squall.broker.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnResponse
from squall.broker.replicas.coordinators.add_partitions_client import ProduceTransaction
from squall.broker.replicas.coordinators.group_coordinator import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.apis.committed_offsets import CommittedOffsetApis
    from squall.broker.apis.txn_verification import TxnCoordinatorClient
    from squall.broker.env import Env
    from squall.broker.log.producer_rules import VerificationStateEntry
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest
    from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
    from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator

FENCED_FROM = 2
"""Is the first version of AddOffsetsToTxn whose clients know PRODUCER_FENCED (KIP-588)."""
ABORTABLE_FROM = 4
"""Is the first version of TxnOffsetCommit whose clients know TRANSACTION_ABORTABLE."""
ADDS_FROM = 5
"""Is the first version of TxnOffsetCommit with which the broker itself adds the group's partition to the transaction
(transaction version 2, KIP-890).
"""

_TRY_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Lists temporary errors of the transaction's coordinator. For them the client of the group's coordinator gets
COORDINATOR_LOAD_IN_PROGRESS, and retries.
"""


class TxnOffsetApis:
    """Handles requests about offsets in transactions. While a request waits for another coordinator, no further request
    is taken from its connection.
    """

    def __init__(
        self,
        env: Env,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        coordinators: TxnCoordinatorClient,
        offsets: CommittedOffsetApis,
        create_log: Callable[[], bool],
        timeout_ms: int,
    ) -> None:
        """Create the handlers. `create_log` returns whether __consumer_offsets exists; if not, it begins to create the
        topic.
        """
        self._env, self._groups, self._transactions = env, groups, transactions
        self._coordinators, self._offsets, self._log_exists = coordinators, offsets, create_log
        self._timeout_s = timeout_ms / 1000

    def add_offsets(self, request: AddOffsetsToTxnRequest, slot: PendingResponse) -> Any:
        """Add the group's partition of __consumer_offsets to a transaction, so that the partition will get a marker.

        The partition cannot get a marker before it exists, so until then the request is refused.
        """
        if not self._log_exists():
            return AddOffsetsToTxnResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        place = TOPIC, self._groups.partition_of(request.group_id)
        asked = AddPartitions(request.transactional_id, request.producer_id, request.producer_epoch, (place,), V1)
        version = slot.version

        def respond(answers: list[TxnResponse]) -> AddOffsetsToTxnResponse:
            error = answers[0].error
            if error == ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            return AddOffsetsToTxnResponse(error_code=int(error))

        late = TxnResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return ask(self._env, self._transactions.submit, [asked], respond, late, self._timeout_s)

    def txn_offset_commit(self, request: wire.TxnOffsetCommitRequest, slot: PendingResponse) -> Any:
        """Commit offsets in a transaction. They are pending until the transaction's marker is written."""
        if not request.group_id:  # Before its transaction is asked about, as with Kafka 4.3.1.
            return self._refused(request, ErrorCode.INVALID_GROUP_ID)
        adds = slot.version >= ADDS_FROM
        producer = request.producer_id, request.producer_epoch
        question = self._groups.verification_needed(request.group_id, *producer, raises_epoch=adds)
        if question is None:
            return self._commit(request)
        slot.conn.hold()
        return DeferredResponse(lambda: self._ask_and_commit(request, slot, question))

    async def _ask_and_commit(
        self, request: wire.TxnOffsetCommitRequest, slot: PendingResponse, question: VerificationStateEntry
    ) -> wire.TxnOffsetCommitResponse:
        try:
            place = TOPIC, self._groups.partition_of(request.group_id)
            transaction = ProduceTransaction(request.transactional_id, request.producer_id, request.producer_epoch)
            verdicts = await self._coordinators.ask(transaction, [place], add=slot.version >= ADDS_FROM)
            error = error_for_client(verdicts[place], slot.version)
            if not error:
                # Has no effect if a marker was written meanwhile: the log then refuses the offsets.
                question.agreed = True
            answer = self._refused(request, error) if error else self._commit(request)
        finally:
            slot.conn.release()
        found: wire.TxnOffsetCommitResponse = await answer.wait() if isinstance(answer, DeferredResponse) else answer
        return found

    def _commit(self, request: wire.TxnOffsetCommitRequest) -> Any:
        plan, offsets = self._offsets.plan(request.topics, NO_TIME, by_id=False)

        def respond(answers: list[GroupResponse]) -> wire.TxnOffsetCommitResponse:
            failed = answers[0].error
            topics = [
                wire.TxnOffsetCommitResponseTopic(
                    topic.name,
                    [wire.TxnOffsetCommitResponsePartition(index, int(error or failed)) for index, error in parts],
                )
                for topic, parts in plan
            ]
            return wire.TxnOffsetCommitResponse(topics=topics)

        asked = TxnOffsetCommit(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            offsets,
            request.producer_id,
            request.producer_epoch,
        )
        late = GroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return ask(self._env, self._groups.submit, [asked], respond, late, self._timeout_s)

    def _refused(self, request: wire.TxnOffsetCommitRequest, error: ErrorCode) -> wire.TxnOffsetCommitResponse:
        topics = [
            wire.TxnOffsetCommitResponseTopic(
                topic.name,
                [wire.TxnOffsetCommitResponsePartition(part.partition_index, int(error)) for part in topic.partitions],
            )
            for topic in request.topics
        ]
        return wire.TxnOffsetCommitResponse(topics=topics)


def error_for_client(error: ErrorCode, version: int) -> ErrorCode:
    """Translate an error of the transaction coordinator for the client of a TxnOffsetCommit request of this version."""
    if error in _TRY_AGAIN:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error
