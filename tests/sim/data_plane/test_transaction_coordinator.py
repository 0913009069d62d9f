"""The transaction coordinator of whole nodes: its log, its answers, its failovers."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from squall.broker.coordinators.transactions import records
from squall.broker.coordinators.transactions.values import TransactionMetadata
from squall.broker.log.markers import read_marker
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import decode_batch
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.replicas.coordinators.transaction_coordinator import HostedTransactionShard
from tests.support.brokers.memory_cluster import LOG, SMALL, MemoryCluster, RetryingClient

pytestmark = pytest.mark.gate


async def started(nursery: trio.Nursery, count: int = 3, **settings: str) -> tuple[MemoryCluster, RetryingClient]:
    cluster = MemoryCluster(nursery, count, **SMALL, **settings)
    await cluster.start()
    talk = RetryingClient(cluster)
    await nursery.start(talk.run)
    return cluster, talk


async def test_the_log_is_created_when_first_asked_for_and_keeps_who_had_which_epoch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery)
        producer_id, epoch = await talk.init("a")
        assert epoch == 0
        assert await talk.init("a") == (producer_id, 1)
        assert len(cluster.image().topic(LOG).partitions) == 3
        first = await talk.coordinator("a")
        await cluster.kill(first)
        assert await talk.init("a") == (producer_id, 2)
        assert await talk.coordinator("a") != first
        assert await talk.state("a") == "Empty"
        nursery.cancel_scope.cancel()


async def test_an_abort_of_v2_that_added_nothing_completes_and_bumps_the_epoch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        _, talk = await started(nursery)
        producer = await talk.init("a")
        response = await talk.end("a", producer, commit=False, version=5)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer[0], 1)
        with trio.fail_after(10):
            while await talk.state("a") != "CompleteAbort":
                await trio.sleep(0.01)
        again = await talk.end("a", producer, commit=False, version=5)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, producer[0], 1)
        nursery.cancel_scope.cancel()


async def topic_of(cluster: MemoryCluster, name: str, partitions: int) -> None:
    controller = cluster.controller()
    assert controller is not None
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
    await controller.control.forward(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted]))
    await cluster.until(lambda: cluster.partition(name) is not None)


def markers(cluster: MemoryCluster, name: str, index: int) -> list[tuple[int, bool, int]]:
    """Return (producer epoch, commit, coordinator epoch) of each marker in the log of the partition's leader."""
    log = cluster.running()[cluster.partition(name, index).leader].logs.logs[name, index]
    found = []
    for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
        if header.is_control:
            marker = read_marker(header, memoryview(batch))
            assert marker is not None
            found.append((header.producer_epoch, marker.commit, marker.coordinator_epoch))
    return found


async def until_state(talk: RetryingClient, name: str, state: str) -> None:
    with trio.fail_after(60):
        while await talk.state(name) != state:
            await trio.sleep(0.05)


async def test_every_partition_of_a_transaction_gets_one_marker(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery)
        await topic_of(cluster, "t", 4)
        producer = await talk.init("a")
        for commit in (True, False):
            assert await talk.add("a", producer, "t", 0, 1, 2, 3) == ErrorCode.NONE
            ended = await talk.end("a", producer, commit, version=5)
            assert ended.error_code == ErrorCode.NONE
            producer = ended.producer_id, ended.producer_epoch
            await until_state(talk, "a", "CompleteCommit" if commit else "CompleteAbort")
        for index in range(4):
            assert markers(cluster, "t", index) == [(1, True, 0), (2, False, 0)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("commit", [True, False])
async def test_a_decision_outlives_its_coordinator_and_reaches_partitions_that_were_away(
    autojump_clock: trio.testing.MockClock, commit: bool
) -> None:
    async with trio.open_nursery() as nursery:
        # Who is away leaves the ISR, so that the decision is committed, before its session ends and others lead.
        longer = {"broker_session_timeout_ms": "5000"}
        cluster, talk = await started(nursery, 5, transaction_state_log_replication_factor="5", **longer)
        await topic_of(cluster, "t", 5)
        producer = await talk.init("a")
        coordinator = await talk.coordinator("a")
        assert await talk.add("a", producer, "t", *range(5)) == ErrorCode.NONE
        away = next(i for i in range(5) if cluster.partition("t", i).leader not in (coordinator, 0))
        cluster.cut(cluster.partition("t", away).leader)
        assert (await talk.end("a", producer, commit)).error_code == ErrorCode.NONE
        await trio.sleep(0.2)
        assert await talk.state("a") == ("PrepareCommit" if commit else "PrepareAbort")
        await cluster.kill(coordinator)
        await until_state(talk, "a", "CompleteCommit" if commit else "CompleteAbort")
        cluster.heal()
        await cluster.start(coordinator)
        for index in range(5):
            found = markers(cluster, "t", index)
            assert {(epoch, committed) for epoch, committed, _ in found} == {(0, commit)}
            epochs = [coordinator_epoch for _, _, coordinator_epoch in found]
            assert epochs == sorted(set(epochs)), "one of each coordinator, no older one after a newer"
        assert await talk.add("a", producer, "t", 0) == ErrorCode.NONE
        nursery.cancel_scope.cancel()


async def test_a_transaction_that_outlives_its_time_out_is_aborted_and_its_producer_fenced(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery, transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
        await topic_of(cluster, "t", 2)
        producer = await talk.init("a", timeout_ms=1000)
        assert await talk.add("a", producer, "t", 0, 1) == ErrorCode.NONE
        await trio.sleep(2)
        await until_state(talk, "a", "CompleteAbort")
        assert (await talk.end("a", producer, True)).error_code == ErrorCode.PRODUCER_FENCED
        assert markers(cluster, "t", 0) == markers(cluster, "t", 1) == [(1, False, 0)]
        nursery.cancel_scope.cancel()


async def test_ids_and_their_epochs_survive_while_coordinators_come_and_go(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery)
        await topic_of(cluster, "t", 3)
        names = [f"id-{n}" for n in range(6)]
        producers = {name: await talk.init(name) for name in names}
        assert len({producer_id for producer_id, _ in producers.values()}) == 6
        for round_ in range(3):
            victim = round_ % 3 + 1
            await cluster.kill(victim)
            for name in names:
                assert await talk.add(name, producers[name], "t", 0, 1, 2) == ErrorCode.NONE
                assert (await talk.end(name, producers[name], round_ % 2 == 0)).error_code == ErrorCode.NONE
            await cluster.start(victim)
            for name in names:
                await until_state(talk, name, "CompleteAbort" if round_ % 2 else "CompleteCommit")
        for node in cluster.running().values():
            for shard in node.transactions.inspect().values():
                assert shard.machine.inspect() == as_the_log_has_it(shard)
        nursery.cancel_scope.cancel()


def as_the_log_has_it(shard: HostedTransactionShard) -> dict[str, TransactionMetadata | None]:
    log = shard.log.hosted.log
    found: dict[str, TransactionMetadata | None] = {}
    for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
        for record in decode_batch(header, memoryview(batch)):
            assert record.key is not None
            written = records.decode(record.key, record.value)
            assert written is not None
            found[written.transactional_id] = written.transaction
    return found
