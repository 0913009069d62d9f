"""Requests of one connection take effect in the order in which they came, whatever order a seed gives to tasks and
links.

Clients send many requests at once over one connection each. The result is compared with a sequential execution.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from squall.broker.env import Transport
from squall.broker.net.connection import Connection
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema import delete_records as deleting
from squall.broker.protocol.schema import describe_configs as describing
from squall.broker.protocol.schema import find_coordinator as finding
from squall.broker.protocol.schema import incremental_alter_configs as altering
from squall.broker.protocol.schema import init_producer_id as initializing
from squall.broker.protocol.schema import list_offsets as listing
from squall.broker.protocol.schema import offset_commit as committing
from squall.broker.protocol.schema import offset_fetch as fetching
from squall.broker.protocol.schema import produce as producing
from squall.broker.protocol.schema.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from squall.chaos.runtimes.sim.invariants.connections import ConnectionOrderWatch
from squall.chaos.runtimes.sim.runtime import SimRuntime

SEEDS = range(10)
TOPIC, PIPELINED, ROUNDS, RECORDS = 2, 4, 5, 6
VERSIONS = {0: 9, 2: 7, 8: 8, 9: 5, 10: 3, 19: 7, 21: 2, 22: 4, 32: 4, 44: 1}


class Raw:
    """A connection that sends requests without waiting for answers."""

    def __init__(self, link: Transport) -> None:
        self._link, self._got = link, bytearray()

    async def pipeline(self, *requests: Any) -> list[Any]:
        """Send all requests, and return the answers in the order in which they come."""
        from squall.broker.protocol.apis import response_class

        keys = [request.API_KEY for request in requests]
        frames = b"".join(
            encode_request(key, VERSIONS[key], number, "raw", request.encode(VERSIONS[key]))
            for number, (key, request) in enumerate(zip(keys, requests, strict=True))
        )
        while frames:
            await self._link.wait_writable()
            frames = frames[self._link.send([frames]) :]
        answers = []
        for number, key in enumerate(keys):
            frame = memoryview(await self._frame())
            correlation_id, at = decode_response_header(frame, key, VERSIONS[key])
            assert correlation_id == number
            answers.append(response_class(key).decode(frame, at, VERSIONS[key])[0])
        return answers

    async def _frame(self) -> bytes:
        while len(self._got) < 4 or len(self._got) < 4 + int.from_bytes(self._got[:4], "big"):
            await self._link.wait_readable()
            room = memoryview(bytearray(1 << 16))
            received = self._link.recv_into(room)
            assert received != 0, "the broker closed the connection"
            self._got += room[: received or 0]
        stop = 4 + int.from_bytes(self._got[:4], "big")
        frame = bytes(self._got[4:stop])
        del self._got[:stop]
        return frame


async def connected(runtime: SimRuntime) -> dict[int, Raw]:
    """Return a connection to each broker. They have topic "t" with one replica on each; the first one leads."""
    env = runtime.env("c0")
    links = {}
    for node, address in enumerate(runtime.bootstrap("CLIENT").split(","), 1):
        host, _, port = address.rpartition(":")
        links[node] = Raw(await env.connect(host, int(port)))
    place = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[place])
    [made] = await links[1].pipeline(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert [each.error_code for each in made.topics] == [0]
    return links


def alter(value: int) -> altering.IncrementalAlterConfigsRequest:
    config = altering.AlterableConfig(name="retention.ms", config_operation=0, value=str(value))
    resource = altering.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    return altering.IncrementalAlterConfigsRequest(resources=[resource])


@pytest.mark.parametrize("seed", SEEDS)
def test_of_pipelined_changes_of_a_setting_the_last_one_stays(simulated: Callable[..., Any], seed: int) -> None:
    async def body(runtime: SimRuntime) -> None:
        links = await connected(runtime)
        value = 1_000_000
        for _ in range(ROUNDS):
            for link in links.values():
                values = range(value, value + PIPELINED)
                value += PIPELINED
                for answer in await link.pipeline(*map(alter, values)):
                    assert answer.responses[0].error_code == 0
                # Every node has it when it has replayed what the controller has committed.
                await runtime.env("c0").sleep(2)
                for other in links.values():
                    assert await described(other) == str(values[-1])

    simulated(body, seed=seed)


async def described(link: Raw) -> str:
    resource = describing.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"]
    )
    [answer] = await link.pipeline(describing.DescribeConfigsRequest(resources=[resource]))
    [config] = answer.results[0].configs
    return str(config.value)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_look_at_the_logs_start_behind_delete_records_sees_the_new_start(
    simulated: Callable[..., Any], seed: int
) -> None:
    async def body(runtime: SimRuntime) -> None:
        link = (await connected(runtime))[1]
        batch = encode_batch([Record(n, -1, None, b"v") for n in range(RECORDS)])
        part = producing.PartitionProduceData(index=0, records=batch)
        data = producing.TopicProduceData(name="t", partition_data=[part])
        while True:
            sent = producing.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
            [produced] = await link.pipeline(sent)
            if produced.responses[0].partition_responses[0].error_code == 0:
                break
            await runtime.env("c0").sleep(0.1)
        for offset in range(1, RECORDS + 1):
            deleted, listed = await link.pipeline(delete_before(offset), log_start())
            assert deleted.topics[0].partitions[0].low_watermark == offset
            assert listed.topics[0].partitions[0].offset == offset

    simulated(body, seed=seed)


def delete_before(offset: int) -> deleting.DeleteRecordsRequest:
    part = deleting.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = deleting.DeleteRecordsTopic(name="t", partitions=[part])
    return deleting.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


def log_start() -> listing.ListOffsetsRequest:
    topic = listing.ListOffsetsTopic(
        name="t", partitions=[listing.ListOffsetsPartition(partition_index=0, timestamp=-2)]
    )
    return listing.ListOffsetsRequest(replica_id=-1, topics=[topic])


def commit(offset: int) -> committing.OffsetCommitRequest:
    place = committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = committing.OffsetCommitRequestTopic(name="t", partitions=[place])
    return committing.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


def position() -> fetching.OffsetFetchRequest:
    topic = fetching.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    return fetching.OffsetFetchRequest(group_id="g", topics=[topic])


def initialize() -> initializing.InitProducerIdRequest:
    return initializing.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000)


async def coordinator(runtime: SimRuntime, links: dict[int, Raw], name: str, kind: int) -> Raw:
    """Return the connection to the coordinator of a group (kind 0) or of a transactional id (kind 1)."""
    while True:
        [found] = await links[1].pipeline(finding.FindCoordinatorRequest(key=name, key_type=kind))
        if found.error_code == 0:
            return links[found.node_id]
        await runtime.env("c0").sleep(0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_groups_position_is_the_one_that_was_committed_just_before(simulated: Callable[..., Any], seed: int) -> None:
    async def body(runtime: SimRuntime) -> None:
        link = await coordinator(runtime, await connected(runtime), "g", 0)
        for offset in range(1, ROUNDS + 1):
            _, first, _, then = await link.pipeline(commit(offset), position(), commit(offset + 100), position())
            found = [answer.topics[0].partitions[0] for answer in (first, then)]
            assert [(place.error_code, place.committed_offset) for place in found] == [(0, offset), (0, offset + 100)]

    simulated(body, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_producer_of_a_transactional_id_fences_the_one_before(simulated: Callable[..., Any], seed: int) -> None:
    async def body(runtime: SimRuntime) -> None:
        link = await coordinator(runtime, await connected(runtime), "x", 1)
        answers = await link.pipeline(*[initialize()] * PIPELINED)
        assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, n) for n in range(PIPELINED)]

    simulated(body, seed=seed)


HEARD = {0, 2, 8, 9, 21, 22, 32, 44}
"""API keys of the requests that `mixed` sends."""


def mixed(simulated: Callable[..., Any], seed: int) -> tuple[ConnectionOrderWatch, list[str]]:
    """Send all kinds of a client's requests over one connection, in a random order. Returns the watch of their order,
    and what took effect out of order.
    """
    heard, wrong = ConnectionOrderWatch(), list[str]()
    heard.tell = lambda node, now, last: wrong.append(f"{now} after {last}")

    async def body(runtime: SimRuntime) -> None:
        rng = Random(seed)
        links = await connected(runtime)
        await coordinator(runtime, links, "g", 0)
        batch = encode_batch([Record(n, -1, None, b"v") for n in range(RECORDS)])
        part = producing.PartitionProduceData(index=0, records=batch)
        data = producing.TopicProduceData(name="t", partition_data=[part])
        fresh = initializing.InitProducerIdRequest()
        resource = describing.DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
        whatever = [
            *(producing.ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data]) for acks in (1, -1)),
            *(fresh, initialize(), commit(3), position(), log_start(), delete_before(1), alter(seed + 1_000_000)),
            describing.DescribeConfigsRequest(resources=[resource]),
        ]
        for _ in range(ROUNDS):
            for link in links.values():
                await link.pipeline(*rng.choices(whatever, k=8 * PIPELINED))

    with heard.observing():
        simulated(body, seed=seed)
    return heard, wrong


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_one_connection_asks_takes_effect_in_its_order(simulated: Callable[..., Any], seed: int) -> None:
    heard, wrong = mixed(simulated, seed)
    assert wrong == []
    assert heard.effects.keys() >= HEARD, "what is not heard is not judged"


def test_a_broker_that_holds_nothing_back_is_heard(
    simulated: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "hold", lambda _: None)
    told = [mixed(simulated, seed)[1] for seed in SEEDS]
    assert all(told), "a setting is altered behind what was sent later, under every seed"
