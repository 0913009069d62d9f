"""Verifies transactions: asks a transaction's coordinator before its first batch is appended to a partition (mechanism
P3 in docs/mechanisms.md, KIP-890).

While the coordinator is asked, no further request is taken from the connection, so requests of one connection take
effect in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import HEADER_SIZE, read_header
from squall.broker.replicas.coordinators.add_partitions_client import ProduceTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from squall.broker.env import Env
    from squall.broker.log.producer_rules import VerificationStateEntry
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.hot import ProduceIn
    from squall.broker.replicas.coordinators.add_partitions_client import Place
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

GENERIC_ERROR_FROM = 11
"""Is the first version of Produce whose clients know TRANSACTION_ABORTABLE."""
ADDS_FROM = 12
"""Is the first version of Produce with which the leader itself adds the partition to the transaction (transaction
version 2, KIP-890).
"""

_UNREACHED = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    # Another partition of the request is unknown to the coordinator yet.
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)

Refused = dict[tuple[bytes, int], int]
"""Maps (topic id or name as in the request, partition) to the error of a batch that must not be appended."""


class TxnCoordinatorClient(Protocol):
    """Sends requests to the coordinators of transactions."""

    async def ask(
        self, transaction: ProduceTransaction, places: Sequence[Place], *, add: bool
    ) -> Mapping[Place, ErrorCode]:
        """Return the coordinator's error for each partition. With `add` the partitions are added, else only verified.
        """


class PartitionToVerify(NamedTuple):
    """Represents a partition in which a transaction would begin."""

    key: bytes
    partition: int
    hosted: HostedPartition
    verification: VerificationStateEntry

    @property
    def place(self) -> Place:
        """Returns topic name and partition, as the coordinator knows the partition."""
        return self.hosted.log.topic, self.partition


def error_for_producer(error: ErrorCode, version: int) -> ErrorCode:
    """Translate an error of the transaction coordinator for the client of a Produce request of this version. If the
    coordinator could not be asked, the error is NOT_ENOUGH_REPLICAS: clients of every version retry after it without a
    Metadata request.
    """
    if error in _UNREACHED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error == ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < GENERIC_ERROR_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


class TxnVerification:
    """Defers Produce requests whose transaction begins in a partition led here, until the coordinator has verified it.
    """

    def __init__(
        self,
        env: Env,
        replicas: ReplicaManager,
        coordinators: TxnCoordinatorClient,
        start_soon: Callable[..., None],
    ) -> None:
        self._env, self._replicas, self._coordinators, self._start_soon = env, replicas, coordinators, start_soon

    def defer(self, slot: PendingResponse, request: ProduceIn, by_ids: bool, append: Callable[[Refused], None]) -> bool:
        """Verify the request's transaction before its batches are appended, if verification is needed. Return False if
        the caller must append them. Return True if this method calls `append` instead, with the error of each batch
        that must not be appended. `by_ids` is true if the request names topics by id.

        `append` is called after the coordinator's answer, unless the connection has ended. It is called at once if the
        coordinator need not be asked, but the request has batches of a second transactional producer: these are
        refused.
        """
        to_verify, refused = self._partitions_to_verify(slot.version, request, by_ids)
        if not to_verify:
            if refused:
                append(refused)
            return bool(refused)
        transaction, asked = to_verify
        slot.conn.hold()
        self._start_soon(self._ask, slot, transaction, asked, refused, append)
        return True

    def _partitions_to_verify(
        self, version: int, request: ProduceIn, by_ids: bool
    ) -> tuple[tuple[ProduceTransaction, list[PartitionToVerify]] | None, Refused]:
        """Return ((transaction, partitions to verify), refused batches); the first is None if there is nothing to
        verify. A request may have only one transaction: the batches of all producers but the first are refused.
        `by_ids` is true if the request names topics by id.
        """
        adds, wall_ms = version >= ADDS_FROM, self._env.wall_ms()
        find = self._replicas.by_id.get if by_ids else self._replicas.by_name.get
        asked: list[PartitionToVerify] = []
        refused: Refused = {}
        transaction: ProduceTransaction | None = None
        for key, parts in request.topics:
            hosted = find(key)
            for index, records in parts:
                h = hosted.get(index) if hosted else None
                # Such a batch is refused without its coordinator.
                if h is None or not h.state.is_leader or records is None or len(records) < HEADER_SIZE:
                    continue
                header = read_header(records, 0)
                if not header.is_transactional or header.producer_id < 0 or not self._needs_verification(h, adds):
                    continue
                one = ProduceTransaction(request.transactional_id or "", header.producer_id, header.producer_epoch)
                transaction = transaction or one
                if one != transaction:
                    refused[key, index] = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                    continue
                found = h.log.producers.begin_verification(header, wall_ms, raises_epoch=adds)
                if found is not None:
                    asked.append(PartitionToVerify(key, index, h, found))
        return (transaction, asked) if transaction is not None and asked else None, refused

    def _needs_verification(self, h: HostedPartition, adds: bool) -> bool:
        """Return whether the coordinator must be asked before this partition's batch is appended. With transaction
        version 2 (`adds`) it always must, because asking is what adds the partition to the transaction. With version 1
        it must if transaction.partition.verification.enable is true.
        """
        return adds or h.log.config.transaction_partition_verification_enable

    async def _ask(
        self,
        slot: PendingResponse,
        transaction: ProduceTransaction,
        asked: list[PartitionToVerify],
        refused: Refused,
        append: Callable[[Refused], None],
    ) -> None:
        try:
            places = [question.place for question in asked]
            verdicts = await self._coordinators.ask(transaction, places, add=slot.version >= ADDS_FROM)
        finally:
            slot.conn.release()
        if slot.conn.closed:
            return
        for question in asked:
            error = verdicts[question.place]
            if error:
                refused[question.key, question.partition] = int(error_for_producer(error, slot.version))
            else:
                # Has no effect if a marker was written meanwhile: the next batch then needs a new verification.
                question.verification.agreed = True
        append(refused)  # may hold the connection again: nothing was taken from it in between
        self._replicas.settle()
