"""Requests of one connection take effect in the order in which they came, whatever a seed makes of tasks and links.

What many clients send at once over one connection each is compared with what a list of the same requests, carried out
one after the other, leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.env import Transport
from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.records import Record, encode_batch
from broker.protocol.schema import delete_records as deleting
from broker.protocol.schema import describe_configs as describing
from broker.protocol.schema import incremental_alter_configs as altering
from broker.protocol.schema import list_offsets as listing
from broker.protocol.schema import produce as producing
from broker.protocol.schema.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from chaos.runtimes.sim.runtime import SimRuntime

SEEDS = range(6)
TOPIC, PIPELINED, ROUNDS, RECORDS = 2, 4, 5, 6
VERSIONS = {0: 9, 2: 7, 19: 7, 21: 2, 32: 4, 44: 1}


class Raw:
    """A connection that sends requests without waiting for answers."""

    def __init__(self, link: Transport) -> None:
        self._link, self._got = link, bytearray()

    async def pipeline(self, *requests: Any) -> list[Any]:
        """The answers, in the order in which they came."""
        from broker.protocol.apis import response_class

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
    """A connection to each broker, which know topic "t": one replica on each, the first one leads."""
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
