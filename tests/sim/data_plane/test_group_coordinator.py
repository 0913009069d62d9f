"""The group coordinator of whole nodes: its log, failover, and offsets in transactions of protocols V1 and V2."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import offset_commit, offset_fetch, txn_offset_commit
from squall.broker.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.heartbeat import HeartbeatRequest
from squall.broker.protocol.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from squall.broker.protocol.schema.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.brokers.memory_cluster import GROUP, SMALL, MemoryCluster, RetryingClient

pytestmark = pytest.mark.gate

Clock = trio.testing.MockClock
GROUPS = {"offsets_topic_num_partitions": "3", "group_initial_rebalance_delay_ms": "0"}


class RetryingGroupClient(RetryingClient):
    """Sends the requests of one group to its coordinator, and finds the new one after a failover."""

    async def group_coordinator(self) -> int:
        return await self.coordinator("g", GROUP)

    async def group(self, key: ApiKey, version: int, request: Any, error_of: Any) -> Any:
        return await self.settled("g", key, version, request, error_of, GROUP)

    async def commit(self, offset: int) -> ErrorCode:
        part = offset_commit.OffsetCommitRequestPartition(0, offset)
        topic = offset_commit.OffsetCommitRequestTopic("t", partitions=[part])
        request = offset_commit.OffsetCommitRequest("g", topics=[topic])
        found = await self.group(ApiKey.OFFSET_COMMIT, 8, request, lambda r: r.topics[0].partitions[0].error_code)
        return ErrorCode(found.topics[0].partitions[0].error_code)

    async def offset(self) -> int:
        """Return the committed offset, once no open transaction can change it."""
        topic = offset_fetch.OffsetFetchRequestTopic("t", [0])
        request = offset_fetch.OffsetFetchRequest("g", topics=[topic], require_stable=True)

        def error_of(response: Any) -> int:
            return int(response.error_code or response.topics[0].partitions[0].error_code)

        found = await self.group(ApiKey.OFFSET_FETCH, 7, request, error_of)
        assert not error_of(found)
        return int(found.topics[0].partitions[0].committed_offset)

    async def commit_in(self, name: str, producer: tuple[int, int], offset: int, version: int) -> ErrorCode:
        """Commit an offset in a transaction by TxnOffsetCommit; below version 5 AddOffsetsToTxn is sent first."""
        if version < 5:
            add = AddOffsetsToTxnRequest(name, *producer, "g")
            added = await self.settled(name, ApiKey.ADD_OFFSETS_TO_TXN, 3, add, lambda r: r.error_code)
            assert not added.error_code, ErrorCode(added.error_code)
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, offset)
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic("t", [part])
        request = txn_offset_commit.TxnOffsetCommitRequest(name, "g", *producer, topics=[topic])

        def error_of(response: Any) -> int:
            return int(response.topics[0].partitions[0].error_code)

        return ErrorCode(error_of(await self.group(ApiKey.TXN_OFFSET_COMMIT, version, request, error_of)))


async def started(nursery: trio.Nursery) -> tuple[MemoryCluster, RetryingGroupClient]:
    cluster = MemoryCluster(nursery, 3, **SMALL, **GROUPS)
    await cluster.start()
    talk = RetryingGroupClient(cluster)
    await nursery.start(talk.run)
    controller = cluster.controller()
    assert controller is not None
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    await controller.control.forward(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic]))
    await cluster.until(lambda: cluster.partition("t") is not None)
    return cluster, talk


async def test_a_group_goes_on_in_its_generation_when_its_coordinator_is_killed(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery)
        protocols = [JoinGroupRequestProtocol("range", b"")]
        request = JoinGroupRequest("g", 30_000, 60_000, "", "static", "consumer", protocols)
        joined = await talk.group(ApiKey.JOIN_GROUP, 5, request, lambda r: r.error_code)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        given = [SyncGroupRequestAssignment(joined.member_id, b"all")]
        sync = SyncGroupRequest("g", 1, joined.member_id, "static", assignments=given)
        synced = await talk.group(ApiKey.SYNC_GROUP, 3, sync, lambda r: r.error_code)
        assert synced.assignment == b"all"
        await cluster.kill(await talk.group_coordinator())
        beat = HeartbeatRequest("g", 1, joined.member_id, "static")
        beaten = await talk.group(ApiKey.HEARTBEAT, 3, beat, lambda r: r.error_code)
        assert beaten.error_code == ErrorCode.NONE
        sync = SyncGroupRequest("g", 1, joined.member_id, "static")
        assert (await talk.group(ApiKey.SYNC_GROUP, 3, sync, lambda r: r.error_code)).assignment == b"all"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_count_with_their_transaction_whoever_coordinates_the_group_by_then(
    version: int, autojump_clock: Clock
) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery)
        end_version = 5 if version >= 5 else 3
        assert await talk.commit(5) == ErrorCode.NONE
        producer = await talk.init("x")
        assert await talk.commit_in("x", producer, 9, version) == ErrorCode.NONE
        ended = await talk.end("x", producer, commit=False, version=end_version)
        assert not ended.error_code
        assert await talk.offset() == 5
        if version >= 5:
            producer = ended.producer_id, ended.producer_epoch
        assert await talk.commit_in("x", producer, 12, version) == ErrorCode.NONE
        await cluster.kill(await talk.group_coordinator())
        ended = await talk.end("x", producer, commit=True, version=end_version)
        assert not ended.error_code
        assert await talk.offset() == 12
        nursery.cancel_scope.cancel()
