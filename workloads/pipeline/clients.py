"""Provides the clients of an application's instance: a group member and a producer, Squall's own or a library's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import trio

from squall.broker.env import Env
from squall.broker.overriding import override
from squall.workloads import payload
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.consumer import FetchedRecords
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.offsets import CommitIdentity, CommitOutcome, commit, metadata_of
from squall.workloads.client.groups.txn_offsets import commit_in_transaction
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.client.transactions import TransactionManager, TransactionRequestFailed
from squall.workloads.counters import LoadCounters
from squall.workloads.group_notes import MemberIdentity
from squall.workloads.libraries import (
    ClientZone,
    InstanceConfig,
    LibraryClientFactory,
    LibraryConsumer,
    TransactionalMember,
    TransactionalSender,
)
from squall.workloads.library_subscriber import LibrarySubscriber
from squall.workloads.recorder import Recorder
from squall.workloads.subscriber import Moved, Subscriber, SubscriberSettings
from squall.workloads.transactions.own import OwnTransactionalProducer

COMMIT_LIMIT_S = 5.0
"""Limits in seconds how long a commit of offsets is tried."""


class PolledInputs(NamedTuple):
    """Holds the input records that a poll returned."""

    values: Sequence[tuple[Place, int]]
    """Lists the partition and the value of each input."""
    at: Mapping[Place, int]
    """Maps each partition to the position after its inputs."""
    who: CommitIdentity
    """Identifies the group member at the time of the poll. The inputs' offsets are committed under this identity: if
    the member has lost its partitions since, the coordinator recognises the old member id and generation, and fences
    the commit.
    """


class ClientDependencies(NamedTuple):
    """Holds the settings and services that one instance's process needs to make its consumer and its producer."""

    env: Env
    zone: ClientZone
    recorder: Recorder
    counters: LoadCounters
    subscriber: SubscriberSettings
    producer: ProducerSettings
    topics: Sequence[str]
    """Lists the topics to which the producer writes."""
    transaction_timeout_ms: int
    generation: int
    """Gives the newest transaction protocol that the producer speaks: 1 (V1) or 2 (V2, KIP-890); 0 if it has no
    transactions.
    """
    moved: Moved


class ProcessClients(Protocol):
    """Provides the group member and the producer of one process of the history. The producer has transactions if its
    settings have a transactional id.
    """

    @property
    def subscriber(self) -> Subscriber | LibrarySubscriber:
        """Returns the process's group member."""

    @property
    def retired(self) -> str:
        """Says why the producer accepts no more records; empty while it accepts records."""

    @property
    def transacting(self) -> TransactionalSender:
        """Returns the transactional producer of a process that has a transactional id."""

    def send(
        self, place: Place, key: bytes | None, value: bytes, timestamp_ms: int, on_outcome: Callable[[Outcome], None], /
    ) -> None:
        """Send a record. `on_outcome` is called once, with the outcome: OK, FAIL or INFO (unknown)."""

    async def flushed(self) -> None:
        """Wait until every record has its outcome."""

    async def run(self, live: Callable[[], Awaitable[None]]) -> None:
        """Start the clients, run `live`, which uses them, and then stop them."""

    async def poll(self) -> PolledInputs:
        """Poll once as the group member, and return the input records with the positions after them."""

    async def rewind(self) -> None:
        """Go back to the group's committed offsets, so that the next polls return the uncommitted inputs again."""

    async def commit(self, at: Mapping[Place, int], who: CommitIdentity) -> CommitOutcome:
        """Commit offsets as the member `who`, and record the commit."""

    async def commit_in(self, txn: int, at: Mapping[Place, int], who: CommitIdentity) -> CommitOutcome:
        """Commit offsets as the member `who` in the open transaction, which is `txn` in the history. Raises
        TransactionRequestFailed.
        """


class OwnClients(ProcessClients):
    """Provides a group member and a producer of Squall's own client."""

    def __init__(self, tools: ClientDependencies, process: int) -> None:
        self._tools = tools
        env, zone = tools.env, tools.zone
        self._subscriber = Subscriber(env, zone, tools.recorder, tools.counters, tools.subscriber, tools.moved)
        self.subscriber.declare("producer", {}, process)
        self._client = Client(env, zone.bootstrap, tools.subscriber.client, cluster_id=zone.cluster_id)
        self._client.track(tools.topics)
        flush = tools.recorder.flush
        self._writer = Producer(self._client, tools.producer, before_send=flush, after_outcomes=flush)
        self.transactions = TransactionManager(
            self._client,
            tools.producer.transactional_id,
            tools.transaction_timeout_ms,
            tools.producer.delivery_timeout_ms / 1000,
            generation=tools.generation or 1,
        )
        self._transacting = OwnTransactionalProducer(self._writer, self.transactions)
        # Offsets in transactions are the producer's, as in Kafka's client: a broker that takes its time over them keeps
        # no heartbeat waiting, and no goodbye.
        self._offsets = GroupCoordinatorClient(self._client, tools.subscriber.member.group)

    @property
    @override
    def subscriber(self) -> Subscriber:
        return self._subscriber

    @property
    @override
    def transacting(self) -> OwnTransactionalProducer:
        return self._transacting

    @property
    @override
    def retired(self) -> str:
        return self._writer.retired

    @override
    def send(
        self, place: Place, key: bytes | None, value: bytes, timestamp_ms: int, on_outcome: Callable[[Outcome], None], /
    ) -> None:
        self._writer.send(*place, key, value, [], timestamp_ms, on_outcome)

    @override
    async def flushed(self) -> None:
        await self._writer.flushed()

    @override
    async def run(self, live: Callable[[], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.subscriber.run)
            await nursery.start(self._client.run)
            await nursery.start(self._writer.run)
            await live()
            nursery.cancel_scope.cancel()

    @override
    async def poll(self) -> PolledInputs:
        polled = await self.subscriber.poll()
        values = [(got.place, value) for got in polled.fetched for value in values_of(got)]
        at = {got.place: got.position for got in polled.fetched if got.records}
        return PolledInputs(values, at, self.subscriber.member.who)

    @override
    async def rewind(self) -> None:
        self.subscriber.rewind()

    @override
    async def commit(self, at: Mapping[Place, int], who: CommitIdentity) -> CommitOutcome:
        member, notes = self.subscriber.member, self.subscriber.notes
        identity, metadata = MemberIdentity(who.member_id, who.generation), metadata_of(at)
        op = notes.begin_commit(identity, at, "manual", metadata=metadata)
        self._tools.recorder.flush()
        # After that, the coordinator refuses each retry.
        gone = lambda: bool(member.out) or member.who != who  # noqa: E731
        end = await commit(member.coordination, who, at, COMMIT_LIMIT_S, gone=gone)
        notes.committed(op, end.status, end.error, end.errors, unanswered=end.unanswered)
        self._tools.recorder.flush()
        if member.who == who:
            member.heed(end.code)
        return end

    @override
    async def commit_in(self, txn: int, at: Mapping[Place, int], who: CommitIdentity) -> CommitOutcome:
        subscriber, identity = self.subscriber, self.transacting.identity
        member, metadata = MemberIdentity(who.member_id, who.generation), metadata_of(at)
        op = subscriber.notes.begin_commit(member, at, "manual", metadata=metadata, txn=txn, producer=identity)
        self._tools.recorder.flush()
        try:
            await self.transactions.add_offsets(subscriber.member.coordination.group)
        except TransactionRequestFailed as failure:
            subscriber.notes.committed(op, OperationStatus.FAIL, failure.name, {})
            raise
        end = await commit_in_transaction(
            self._offsets,
            self.transacting.id,
            identity,
            who,
            at,
            COMMIT_LIMIT_S,
            v2=self.transactions.v2,
        )
        subscriber.notes.committed(op, end.status, end.error, {})
        self._tools.recorder.flush()
        if subscriber.member.who == who:
            subscriber.member.heed(end.code)
        return end


class LibraryClients(ProcessClients):
    """Provides a library's consumer and producer, which run together in one OS process."""

    def __init__(self, tools: ClientDependencies, driver: LibraryClientFactory, process: int) -> None:
        self._tools, self._driver = tools, driver
        of = (tools.env, tools.zone, driver, tools.recorder, tools.counters, tools.subscriber, tools.moved)
        self._subscriber = LibrarySubscriber(*of, start=self._start)
        self.subscriber.declare("producer", {}, process)
        self._producer: TransactionalMember | None = None

    async def _start(self, nursery: trio.Nursery) -> LibraryConsumer:
        tools = self._tools
        task = InstanceConfig(
            tools.subscriber.member,
            tools.subscriber.consumer.isolation,
            tools.producer.transactional_id,
            tools.transaction_timeout_ms,
        )
        made = await self._driver.instance(nursery, task, self.subscriber, tools.recorder.flush)
        self._producer = made.producer
        return made.member

    @property
    @override
    def subscriber(self) -> LibrarySubscriber:
        return self._subscriber

    @property
    @override
    def transacting(self) -> TransactionalMember:
        assert self._producer is not None, "its process has not begun"
        return self._producer

    @property
    @override
    def retired(self) -> str:
        return self.transacting.retired

    @override
    def send(
        self, place: Place, key: bytes | None, value: bytes, timestamp_ms: int, on_outcome: Callable[[Outcome], None], /
    ) -> None:
        self.transacting.send(place, key, value, timestamp_ms, on_outcome)

    @override
    async def flushed(self) -> None:
        await self.transacting.flushed()

    @override
    async def run(self, live: Callable[[], Awaitable[None]]) -> None:
        """Start the library's OS process, run `live`, and then end the process."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.subscriber.run)
            await live()
            nursery.cancel_scope.cancel()

    @override
    async def poll(self) -> PolledInputs:
        """Poll once. Records of partitions that a rebalance callback took away during the poll are left out."""
        polled, own = await self.subscriber.poll(), self.subscriber.positions
        parts = [part for read in polled for part in read.parts if part.records and part.place in own]
        values = [(part.place, value) for part in parts for _, value in part.records if value >= 0]
        who = self.subscriber.who
        sender = CommitIdentity(who.member_id, who.generation, self._tools.subscriber.member.instance)
        return PolledInputs(values, {part.place: part.position for part in parts}, sender)

    @override
    async def rewind(self) -> None:
        await self.subscriber.rewind()

    @override
    async def commit(self, at: Mapping[Place, int], who: CommitIdentity) -> CommitOutcome:
        return await self.subscriber.commit_as(MemberIdentity(who.member_id, who.generation), at)

    @override
    async def commit_in(self, txn: int, at: Mapping[Place, int], who: CommitIdentity) -> CommitOutcome:
        """Commit the offsets in the transaction. The library itself adds the group to it (AddOffsetsToTxn)."""
        member, notes = MemberIdentity(who.member_id, who.generation), self.subscriber.notes
        op = notes.begin_commit(member, at, "manual", txn=txn, producer=self.transacting.identity)
        self._tools.recorder.flush()
        end = await self.transacting.offsets(member, at)
        notes.committed(op, end.status, end.error, {})
        self._tools.recorder.flush()
        return end


def values_of(fetched: FetchedRecords) -> list[int]:
    """Return the values (`payload.value_of`) of one partition's records, without records whose payload did not verify.
    """
    told = [payload.verify(value, key, headers, sent_ms) for _, sent_ms, key, value, headers in fetched.records]
    return [value for value, _ in told if value >= 0]
