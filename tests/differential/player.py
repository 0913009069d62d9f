"""Plays a row at one broker over plain sockets, and returns its answers as trees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import read_header
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.describe_transactions import DescribeTransactionsRequest
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.answers import Symbols, Tree
from tests.differential.steps import Ask, Next, Row, resolved
from tests.support.brokers.raw_client import RawClient, frame_of

WITHIN_S = 10.0
"""Time limit for an answer in seconds. "No answer" is compared, too."""
SETTLED_S = 120.0
EARLIEST = -2
MEMBER_ID_REQUIRED = 79
CHANGES = frozenset(
    {
        *(ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
        *(ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.UPDATE_FEATURES),
        *(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS),
    }
)
"""Requests to the controller. The next request is sent only once the broker has replayed the change."""
TRANSITIONS = frozenset({ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN})
"""Requests after which transaction markers may still be under way."""


class Broker:
    """One of the two brokers, with its port and the ids of the shared topics."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.shared: dict[str, Any] = {}
        self._barriers = 0

    def ask(self, request: Any, version: int) -> Any:
        """Send one request over a connection of its own, and return the answer."""
        with RawClient(self.port, WITHIN_S) as client:
            return client.ask(request, version)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Poll `holds` until it returns true. Raises AssertionError after a minute."""
        deadline = time.monotonic() + SETTLED_S
        while not holds():
            assert time.monotonic() < deadline, f"{self.name}: {what}"
            time.sleep(0.01)

    def get_ready(self) -> None:
        """Wait until the broker and both coordinators serve, and the next producer id is above 0."""
        self.until(self._serves, "no answer to Metadata")
        for kind in (0, 1):
            find = FindCoordinatorRequest(key_type=kind, coordinator_keys=["first"])
            self.until(lambda find=find: self.ask(find, 4).coordinators[0].error_code == 0, "no coordinator")  # type: ignore[misc]
        first = InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000)
        self.until(lambda: self.ask(first, 4).error_code == 0, "no producer id")

    def _serves(self) -> bool:
        try:
            answer = self.ask(MetadataRequest(topics=None), 12)
            return len(answer.brokers) == 1
        except OSError:
            return False

    def barrier(self) -> None:
        """Wait until the broker has replayed all decisions of the controller so far: create a topic, and wait for that.
        """
        self._barriers += 1
        name = f"barrier-{self._barriers}"
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        self.await_topic(name)

    def await_topic(self, name: str) -> None:
        """Wait until this broker leads every partition of the topic. Metadata names it as the leader too early."""
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)

        def led() -> bool:
            topic = self.ask(metadata, 12).topics[0]
            parts = [ListOffsetsPartition(part.partition_index, -1, EARLIEST) for part in topic.partitions]
            if topic.error_code or not parts:
                return False
            found = self.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, parts)]), 7).topics[0].partitions
            return all(part.error_code == 0 for part in found)

        self.until(led, f"topic {name} has no leaders")

    def settle(self, ask: Ask, request: Any, answer: Any) -> None:
        """Wait until everything that a request has started in the background is done."""
        if ask.api == ApiKey.CREATE_TOPICS:
            for topic in answer.topics:
                if topic.error_code == 0 and not request.validate_only:
                    self.await_topic(topic.name)
        elif ask.api in CHANGES and not ask.setup:
            self.barrier()
        elif ask.api == ApiKey.LEAVE_GROUP:
            self.settle_group(request.group_id)
        elif ask.api in TRANSITIONS and request.transactional_id:
            self.settle_transaction(request.transactional_id)

    def settle_group(self, group_id: str) -> None:
        """Wait until a classic group whose last member has left is Empty: its rebalance ends by a timer of 0 ms."""
        describe = DescribeGroupsRequest([group_id])

        def settled() -> bool:
            group = self.ask(describe, 5).groups[0]
            return group.group_state != "PreparingRebalance" or bool(group.members)

        self.until(settled, f"group {group_id} is not empty")

    def settle_transaction(self, transactional_id: str) -> None:
        """Wait until all markers of the transactional id are written."""
        describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        self.until(
            lambda: not self.ask(describe, 0).transaction_states[0].transaction_state.startswith("Prepare"),
            f"the markers of {transactional_id} are not written",
        )


class Player:
    """Plays one row at one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clients: dict[str, RawClient] = {}
        self._answers: dict[str, Any] = dict(broker.shared)
        self._symbols = Symbols()

    def play(self, row: Row) -> list[Tree]:
        """Send the row's requests, and return the answer to each in order."""
        trees: list[Tree] = []
        try:
            for burst in bursts(row.steps):
                trees += self._play(burst)
        finally:
            for client in self._clients.values():
                client.close()
        return trees

    def _play(self, burst: Sequence[Ask]) -> list[Tree]:
        """Send pipelined requests in one write. Returns their answers, once the background work of all is done."""
        requests = [resolved(ask.request, self._answers) for ask in burst]
        asked = list(zip(burst, requests, strict=True))
        frames = [frame_of(request, ask.version, number) for number, (ask, request) in enumerate(asked)]
        try:
            client = self._client(burst[0])
            client.send(b"".join(frames))
        except OSError:
            return ["<closed>"] * len(burst)
        answers = [self._take(client, ask, request, number) for number, (ask, request) in enumerate(asked)]
        trees = [tree for tree, _ in answers]
        for (ask, request), (_, answer) in zip(asked, answers, strict=True):
            try:
                if answer is not None:
                    self._broker.settle(ask, request, answer)
            except (AssertionError, OSError) as problem:
                trees[-1] = f"<what it left running does not end: {problem}>"
        return trees

    def _client(self, ask: Ask) -> RawClient:
        if ask.connection not in self._clients:
            self._clients[ask.connection] = RawClient(self._broker.port, WITHIN_S)
        return self._clients[ask.connection]

    def _take(self, client: RawClient, ask: Ask, request: Any, number: int) -> tuple[Tree, Any]:
        """Return an answer as a tree and as a message. If none comes, return a text that says what happened, and None.
        """
        if ask.api == ApiKey.PRODUCE and request.acks == 0:
            return "<no answer is due>", None
        try:
            answer = client.answer(request, ask.version, number)
        except TimeoutError:
            self._drop(ask)
            return f"<no answer within {WITHIN_S:g} s>", None
        except (AssertionError, OSError):
            self._drop(ask)
            return "<closed>", None
        except MalformedFrame as problem:
            self._drop(ask)
            return f"<malformed: {problem}>", None
        if ask.name and getattr(answer, "error_code", 0) in (0, MEMBER_ID_REQUIRED):
            self._answers[ask.name] = answer
        if ask.api == ApiKey.PRODUCE:
            self._count(request, answer)
        return self._symbols.tree(answer), answer

    def _count(self, request: Any, answer: Any) -> None:
        """Keep the sequence numbers of batches that the broker has appended."""
        for topic, its in zip(request.topic_data, answer.responses, strict=False):
            for part, taken in zip(topic.partition_data, its.partition_responses, strict=False):
                if taken.error_code == 0 and part.records:
                    header = read_header(memoryview(part.records), 0)
                    place = Next(topic.name, part.index).place(header.producer_id, header.producer_epoch)
                    self._answers[place] = header.last_sequence + 1

    def _drop(self, ask: Ask) -> None:
        """Close a connection: the next request on it opens a new one."""
        if ask.connection in self._clients:
            self._clients.pop(ask.connection).close()


def bursts(steps: Sequence[Ask]) -> Iterator[list[Ask]]:
    """Yield the requests of each write: a request, and those pipelined behind it."""
    burst: list[Ask] = []
    for ask in steps:
        if burst and not ask.pipelined:
            yield burst
            burst = []
        burst.append(ask)
    if burst:
        yield burst
