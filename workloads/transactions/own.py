"""A transactional producer that is our own client: its records' producer, and its coordinator's client."""

from __future__ import annotations

from collections.abc import Callable

from squall.workloads.client.cluster import Place
from squall.workloads.client.outcomes import Outcome, Status
from squall.workloads.client.producer import Producer
from squall.workloads.client.transactions import Ended, Identity, Transactions


class OwnProducer:
    """`squall.workloads.libraries.Transacting`. The producer is told its identity here, and not before."""

    def __init__(self, producer: Producer, coordinator: Transactions) -> None:
        self._producer, self._coordinator = producer, coordinator

    @property
    def id(self) -> str:
        """As `Transacting.id`."""
        return self._coordinator.id

    @property
    def timeout_ms(self) -> int:
        """As `Transacting.timeout_ms`."""
        return self._coordinator.timeout_ms

    @property
    def identity(self) -> Identity:
        """As `Transacting.identity`."""
        return self._coordinator.identity

    @property
    def retired(self) -> str:
        """As `Transacting.retired`."""
        return self._producer.retired

    @property
    def unanswered(self) -> int:
        """As `Transacting.unanswered`."""
        return self._coordinator.unanswered

    async def init(self) -> Identity:
        """As `Transacting.init`."""
        identity = await self._coordinator.begin_writing()
        self._identify()
        return identity

    async def begin(self) -> None:
        """As `Transacting.begin`: nothing is asked, the first partition begins it."""

    async def enlist(self, place: Place) -> None:
        """As `Transacting.enlist`. Only generation V1 asks."""
        await self._coordinator.add([place])

    def send(
        self, place: Place, key: bytes | None, value: bytes, timestamp_ms: int, on_outcome: Callable[[Outcome], None], /
    ) -> None:
        """As `Transacting.send`."""
        self._producer.send(*place, key, value, [], timestamp_ms, on_outcome)

    async def flushed(self) -> None:
        """As `Transacting.flushed`."""
        await self._producer.flushed()

    async def end(self, *, commit: bool) -> Ended:
        """As `Transacting.end`. With V2 the end gives the next epoch."""
        ended = await self._coordinator.end(commit=commit)
        if ended.status is Status.OK and not self._producer.retired:
            self._identify()
        return ended

    def close(self) -> None:
        """As `Transacting.close`."""
        self._producer.close()

    def _identify(self) -> None:
        self._producer.identify(*self._coordinator.identity, implicit=self._coordinator.v2)
