"""Implements a transactional producer with Squall's own client: a `Producer` sends the records, and a
`TransactionManager` sends requests to the transaction coordinator.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.broker.overriding import override
from squall.workloads.client.cluster import Place
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.transactions import EndTxnResult, ProducerIdAndEpoch, TransactionManager
from squall.workloads.libraries import TransactionalSender


class OwnTransactionalProducer(TransactionalSender):
    """Sends records in transactions with Squall's own client. The `Producer` gets its producer id and epoch when the
    transactional id is initialised, and again after each transaction, because transaction version 2 (KIP-890) changes
    the epoch.
    """

    def __init__(self, producer: Producer, coordinator: TransactionManager) -> None:
        self._producer, self._coordinator = producer, coordinator

    @property
    @override
    def id(self) -> str:
        return self._coordinator.id

    @property
    @override
    def timeout_ms(self) -> int:
        return self._coordinator.timeout_ms

    @property
    @override
    def identity(self) -> ProducerIdAndEpoch:
        return self._coordinator.identity

    @property
    @override
    def retired(self) -> str:
        return self._producer.retired

    @property
    @override
    def unanswered(self) -> int:
        return self._coordinator.unanswered

    @override
    async def init(self) -> ProducerIdAndEpoch:
        identity = await self._coordinator.begin_writing()
        self._identify()
        return identity

    @override
    async def begin(self) -> None:
        """Begin without a request: the first partition added begins the transaction."""

    @override
    async def enlist(self, place: Place) -> None:
        """Add the partition to the transaction. This sends a request only with transaction version 1."""
        await self._coordinator.add([place])

    @override
    def send(
        self, place: Place, key: bytes | None, value: bytes, timestamp_ms: int, on_outcome: Callable[[Outcome], None], /
    ) -> None:
        self._producer.send(*place, key, value, [], timestamp_ms, on_outcome)

    @override
    async def flushed(self) -> None:
        await self._producer.flushed()

    @override
    async def end(self, *, commit: bool) -> EndTxnResult:
        """End the transaction. With transaction version 2 the response carries the next epoch."""
        ended = await self._coordinator.end(commit=commit)
        if ended.status is OperationStatus.OK and not self._producer.retired:
            self._identify()
        return ended

    @override
    def close(self) -> None:
        self._producer.close()

    def _identify(self) -> None:
        self._producer.identify(*self._coordinator.identity, implicit=self._coordinator.v2)
