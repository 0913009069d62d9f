"""Brokers serve fetches of the metadata log over the listener between brokers only."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.broker.cluster.names import METADATA_TOPIC, METADATA_TOPIC_ID
from squall.broker.net.frames import FrameReader, ReceiveMemoryLimit
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.hot import FetchResponsePartition, decode_fetch_response
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.support.brokers.memory_cluster import CLIENT_PORT, INTERNAL_PORT, MemoryCluster, NodeEnv, kraft
from tests.support.disks.memory_fs import MemoryFs

FIRST_WITH_REPLICA_STATE = 15


async def metadata_fetched(
    cluster: MemoryCluster, port: int, version: int, replica_id: int = 2
) -> FetchResponsePartition:
    """Fetch the metadata log from its beginning as a voter does, and return the answer's only partition. With -1 as its
    replica id the fetch is a client's.
    """
    epoch = kraft(cluster.running()[1]).quorum.epoch
    part = FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=0, last_fetched_epoch=0, partition_max_bytes=1 << 20
    )
    asked = FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[part])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[asked])
    if version < FIRST_WITH_REPLICA_STATE:
        request.replica_id = replica_id
    else:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=-1)
    env: Any = NodeEnv(cluster.network, "curious", 1, MemoryFs())
    link = await env.connect("n1", port)
    link.send((encode_request(ApiKey.FETCH, version, 7, "curious", request.encode(version)),))
    frames = FrameReader(env, link, ReceiveMemoryLimit(1 << 30), 1 << 20)
    with trio.fail_after(5):
        [view] = await frames.burst()
    _, at = decode_response_header(view, ApiKey.FETCH, version)
    [(_, [answer])] = decode_fetch_response(view, at, version).topics
    frames.close()
    link.close()
    return answer


@pytest.mark.parametrize(
    ("version", "error"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (17, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_to_a_client_the_metadata_log_is_a_topic_that_nobody_knows(
    version: int, error: ErrorCode, autojump_clock: Any
) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, 1)
        await cluster.start()
        for replica_id in (-1, 2):
            refused = await metadata_fetched(cluster, CLIENT_PORT + 1, version, replica_id)
            assert (refused.error, bytes(refused.records or b"")) == (error, b"")
        nursery.cancel_scope.cancel()


async def test_another_node_fetches_it(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, 1)
        await cluster.start()
        answer = await metadata_fetched(cluster, INTERNAL_PORT + 1, 17)
        assert (answer.error, answer.current_leader) == (ErrorCode.NONE, (1, 1))
        assert bytes(answer.records or b""), "the log's first batches"
        nursery.cancel_scope.cancel()
