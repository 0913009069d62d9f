"""Transactions of protocols V1 (the broker verifies partitions) and V2 (the broker adds them) over whole nodes, read at
both isolation levels.
"""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from squall.broker.log.producers import ProducerStates
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import decode_records
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.workloads.client import admin
from tests.support.brokers.memory_cluster import SMALL, MemoryCluster, RetryingClient, surely
from tests.support.disks.batches import batch
from tests.support.disks.small_log import assert_producers, producers_of, stable_offset, stored_batches

V1, V2 = 11, 12
RETRIABLE = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class TransactionHarness:
    """Three nodes with topic t of two partitions, and a producer whose requests the test chooses."""

    def __init__(self, nursery: trio.Nursery, **settings: str) -> None:
        self._nursery = nursery
        self.cluster = MemoryCluster(nursery, 3, **SMALL, **settings)
        self.talk = RetryingClient(self.cluster)

    async def begin(self) -> TransactionHarness:
        await self.cluster.start()
        await self._nursery.start(self.talk.run)
        client = await self.cluster.client()
        new = admin.NewTopic("t", 2, 3, {"min.insync.replicas": "2"})
        assert await surely(admin.create_topics, client, [new]) == {"t": ""}
        await self.cluster.until(lambda: self.cluster.partition("t") is not None)
        return self

    def leader(self, index: int) -> int:
        """Return the partition's leader; -1 if there is none, or it is not known."""
        found = self.cluster.partition("t", index)
        return -1 if found is None else int(found.leader)

    async def send_once(self, producer: tuple[int, int], index: int, seq: int, *, version: int = V1) -> Any:
        """Send one record with acks=all to the partition's leader. Returns the partition's entry of the response."""
        sent = batch(pid=producer[0], epoch=producer[1], seq=seq, transactional=True, timestamp=self.talk.env.wall_ms())
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=index, records=sent)])
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=3000, topic_data=[topic])
        response = await self.talk.ask(self.leader(index), ApiKey.PRODUCE, version, request)
        return response.responses[0].partition_responses[0]

    async def send(self, producer: tuple[int, int], index: int, seq: int, *, version: int = V1) -> ErrorCode:
        """Send one record, again and again while the error is retriable. Returns the final error."""
        while True:
            try:
                error = (await self.send_once(producer, index, seq, version=version)).error_code
            except OSError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error not in RETRIABLE:
                return ErrorCode(error)
            await self.talk.env.sleep(0.02)

    async def read(self, index: int, *, isolation: int) -> Any:
        """Fetch a partition from its start. Returns its entry of the response."""
        part = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchTopic(topic="t", partitions=[part])],
        )
        response = await self.talk.ask(self.leader(index), ApiKey.FETCH, 12, request)
        found = response.responses[0].partitions[0]
        assert found.error_code == 0
        return found

    async def count(self, index: int, *, isolation: int) -> int:
        """Return how many records a reader gets, including those of aborted transactions."""
        found = await self.read(index, isolation=isolation)
        return len(decode_records(memoryview(bytes(found.records or b""))))

    def check_replicas(self) -> int:
        """Assert for every replica on a running node: its state of producers and transactions equals a replay of its
        batches, and the last stable offset is not above the high watermark. Returns how many replicas had a
        transaction.
        """
        with_transactions = 0
        for node in self.cluster.running().values():
            for h in node.replicas.hosted():
                stored = stored_batches(h.log)
                assert_producers(h.log.producers, producers_of(stored))
                states = ProducerStates()
                replayed = [states.replay(item.header, memoryview(item.data)) for item in stored]
                expected = [txn for txn in replayed if txn is not None]
                assert h.log.aborted_transactions(0, h.log.log_end_offset) == expected
                assert stable_offset(h.log.producers, h.state.high_watermark) == stable_offset(
                    states, h.state.high_watermark
                )
                with_transactions += h.log.topic == "t" and bool(h.log.producers.entries)
        return with_transactions

    async def until_stable(self, index: int) -> Any:
        """Wait until no open transaction limits what readers of a partition get."""
        with trio.fail_after(20):
            while True:
                found = await self.read(index, isolation=1)
                if found.last_stable_offset == found.high_watermark > 0:
                    return found
                await self.talk.env.sleep(0.01)


async def test_a_transaction_is_visible_in_all_of_its_partitions_once_it_is_committed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        harness = await TransactionHarness(nursery).begin()
        producer = await harness.talk.init("x")
        assert await harness.talk.add("x", producer, "t", 0, 1) == ErrorCode.NONE
        for index in (0, 1):
            assert [await harness.send(producer, index, seq) for seq in range(3)] == [ErrorCode.NONE] * 3
            assert await harness.count(index, isolation=0) == 3
            assert await harness.count(index, isolation=1) == 0
        assert (await harness.talk.end("x", producer, True)).error_code == 0
        for index in (0, 1):
            assert (await harness.until_stable(index)).aborted_transactions == []
            assert await harness.count(index, isolation=1) == 3
        assert harness.check_replicas() >= 2
        nursery.cancel_scope.cancel()


async def test_v2_adds_partitions_by_producing_and_each_transaction_has_an_epoch_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        harness = await TransactionHarness(nursery).begin()
        producer = await harness.talk.init("x")
        for commit in (False, True, False):
            assert await harness.send(producer, 0, 0, version=V2) == ErrorCode.NONE
            assert await harness.talk.state("x") == "Ongoing"
            ended = await harness.talk.end("x", producer, commit, version=5)
            assert (ended.error_code, ended.producer_epoch) == (0, producer[1] + 1)
            producer = ended.producer_id, ended.producer_epoch
        found = await harness.until_stable(0)
        assert [(txn.producer_id, txn.first_offset) for txn in found.aborted_transactions] == [
            (producer[0], 0),
            (producer[0], 4),
        ]
        assert found.last_stable_offset == 6, "three records and three markers"
        assert harness.check_replicas() >= 2
        nursery.cancel_scope.cancel()


async def test_requests_of_one_connection_are_appended_in_their_order_though_the_first_asks_a_coordinator(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        harness = await TransactionHarness(nursery).begin()
        producer = await harness.talk.init("x")
        assert await harness.talk.add("x", producer, "t", 0) == ErrorCode.NONE
        found: dict[int, Any] = {}

        async def send(seq: int) -> None:
            found[seq] = await harness.send_once(producer, 0, seq)

        await harness.send(producer, 0, 0)
        assert (await harness.talk.end("x", producer, True)).error_code == 0
        assert await harness.talk.add("x", producer, "t", 0) == ErrorCode.NONE
        async with trio.open_nursery() as sending:
            for seq in range(1, 6):
                sending.start_soon(send, seq)
                await trio.testing.wait_all_tasks_blocked(0)
        assert {seq: (part.error_code, part.base_offset) for seq, part in sorted(found.items())} == {
            seq: (0, seq + 1) for seq in range(1, 6)
        }
        assert harness.check_replicas() >= 2
        nursery.cancel_scope.cancel()


async def test_a_record_that_comes_behind_the_end_of_its_transaction_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        harness = await TransactionHarness(nursery).begin()
        producer = await harness.talk.init("x")
        assert await harness.talk.add("x", producer, "t", 0) == ErrorCode.NONE
        await harness.send(producer, 0, 0)
        assert (await harness.talk.end("x", producer, False)).error_code == 0
        await harness.until_stable(0)
        assert await harness.send(producer, 0, 1) == ErrorCode.TRANSACTION_ABORTABLE
        assert await harness.send(producer, 0, 1, version=10) == ErrorCode.INVALID_TXN_STATE
        await harness.until_stable(0)
        assert harness.check_replicas() >= 2
        nursery.cancel_scope.cancel()


async def test_with_verification_off_such_a_record_holds_the_last_stable_offset_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """KAFKA-14402."""
    async with trio.open_nursery() as nursery:
        harness = await TransactionHarness(nursery, transaction_partition_verification_enable="false").begin()
        producer = await harness.talk.init("x")
        assert await harness.talk.add("x", producer, "t", 0) == ErrorCode.NONE
        await harness.send(producer, 0, 0)
        assert (await harness.talk.end("x", producer, False)).error_code == 0
        await harness.until_stable(0)
        assert await harness.send(producer, 0, 1) == ErrorCode.NONE
        await harness.talk.env.sleep(120)
        found = await harness.read(0, isolation=1)
        assert (found.last_stable_offset, found.high_watermark) == (2, 3)
        assert harness.check_replicas() >= 2
        nursery.cancel_scope.cancel()


async def test_a_leader_that_dies_loses_no_marker_and_no_abort(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        harness = await TransactionHarness(nursery).begin()
        producer = await harness.talk.init("x")
        assert await harness.talk.add("x", producer, "t", 0) == ErrorCode.NONE
        await harness.send(producer, 0, 0)
        assert (await harness.talk.end("x", producer, False)).error_code == 0
        assert await harness.talk.add("x", producer, "t", 0) == ErrorCode.NONE
        await harness.send(producer, 0, 1)
        first = harness.leader(0)
        await harness.cluster.kill(first)
        await harness.cluster.until(lambda: harness.leader(0) not in (first, -1))
        assert (await harness.talk.end("x", producer, True)).error_code == 0
        found = await harness.until_stable(0)
        assert [(txn.producer_id, txn.first_offset) for txn in found.aborted_transactions] == [(producer[0], 0)]
        assert found.last_stable_offset == 4, "two records and two markers"
        assert harness.check_replicas() >= 2
        nursery.cancel_scope.cancel()
