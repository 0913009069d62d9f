"""Truncation, unclean elections and deleted records: whole nodes in memory, real except for sockets and disks.

Nodes 1 to 3 are the controllers, so that the quorum outlives whatever happens to the replicas, on 4 to 6.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from squall.broker.apis.delete_records import DeleteRecordsApi
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.workloads.client import admin
from squall.workloads.client.client import Client
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ProducerSettings
from tests.support.brokers.memory_cluster import INTERNAL_PORT, Load, MemoryCluster, surely, values_of
from tests.support.brokers.memory_env import FakeEnv
from tests.support.disks.memory_fs import MemoryFs

PLACE = ("t", 0)
RULES = pytest.mark.parametrize("rule", ["epoch", "high-watermark"])


class ReplicaHarness:
    """A cluster with topic "t", whose only partition has replicas on the brokers that the test names; the first one
    leads.
    """

    def __init__(self, nursery: trio.Nursery, **settings: str) -> None:
        self.cluster = MemoryCluster(nursery, 6, voters=3, **settings)
        self.nursery = nursery
        self.client: Client

    async def begin(self, *replicas: int, **configs: str) -> ReplicaHarness:
        await self.cluster.start()
        self.client = await self.cluster.client()
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        new = admin.NewTopic("t", 1, 1, {"min.insync.replicas": "1", **settings})
        assert await admin.create_topics(self.client, [new]) == {"t": ""}
        await self.cluster.until(lambda: self.cluster.partition("t") is not None)
        assert await surely(admin.alter_partition_reassignments, self.client, {PLACE: list(replicas)}) == {PLACE: ""}
        await self.until_in_sync(*replicas)
        await self.cluster.until(lambda: self.partition.replicas == replicas)
        if self.partition.leader != replicas[0]:
            await surely(admin.elect_leaders, self.client, [PLACE])
        await self.until_led_by(replicas[0])
        self.client.track(["t"])
        return self

    @property
    def partition(self) -> Any:
        return self.cluster.partition("t")

    def hosted(self, broker_id: int) -> HostedPartition:
        [h] = self.cluster.running()[broker_id].replicas.hosted()
        return h

    def values(self, broker_id: int) -> list[bytes]:
        return list(values_of(self.hosted(broker_id).log).values())

    def events(self, broker_id: int, event: str) -> list[dict[str, Any]]:
        return self.cluster.nodes[broker_id].env.events(event)

    async def until_in_sync(self, *brokers: int) -> None:
        await self.cluster.until(lambda: self.partition is not None and set(self.partition.isr) == set(brokers))

    async def until_led_by(self, broker_id: int) -> None:
        """Wait until the controller and the broker itself know that this broker leads."""
        await self.cluster.until(lambda: self.partition is not None and self.partition.leader == broker_id, 120)
        if broker_id in self.cluster.running():
            await self.cluster.until(lambda: self.hosted(broker_id).state.is_leader)

    async def until_all_know(self, high_watermark: int, *brokers: int) -> None:
        await self.cluster.until(
            lambda: all(self.hosted(broker).state.high_watermark == high_watermark for broker in brokers)
        )

    async def write(self, *values: bytes) -> None:
        """Write with acks=all, and wait for the acknowledgements."""
        outcomes: list[Outcome] = []
        producer = Producer(self.client, ProducerSettings(linger_ms=0, delivery_timeout_ms=20_000))
        async with trio.open_nursery() as nursery:
            await nursery.start(producer.run)
            for value in values:
                producer.send("t", 0, None, value, [], self.client.env.wall_ms(), outcomes.append)
                await self.cluster.until(partial(lambda n: len(outcomes) == n, len(outcomes) + 1))
            producer.close()
            nursery.cancel_scope.cancel()
        assert [outcome.status for outcome in outcomes] == [OperationStatus.OK] * len(values)


def without_the_last_batch(fs: MemoryFs) -> MemoryFs:
    """Return the disk after a power loss that took the log's unsynced records."""
    path = "data/t-0/00000000000000000000.log"
    whole = fs.read(path)
    for seed in range(100):
        after = fs.after_crash(random.Random(seed))
        if after.exists(path) and len(after.read(path)) < len(whole):
            return after
    raise AssertionError("all of it was synced")


@RULES
async def test_two_leaders_die_quickly_and_only_epochs_keep_what_was_acknowledged(
    autojump_clock: Any, rule: str
) -> None:
    """KIP-101, loss: a follower truncates its log to a high watermark that is out of date, and then the leader dies."""
    async with trio.open_nursery() as nursery:
        harness = await ReplicaHarness(nursery, squall_replication_truncation=rule).begin(4, 5, 6)
        await harness.write(b"m1")
        await harness.until_all_know(1, 4, 5, 6)
        await harness.write(b"m2")
        last = harness.hosted(6).state
        assert (last.log_end_offset, last.high_watermark) == (2, 1), "it has m2, and has not heard that it is committed"
        harness.cluster.network.refused.add(INTERNAL_PORT + 5)
        await harness.cluster.kill(4)
        await harness.until_led_by(5)
        await harness.cluster.until(lambda: last.leader_id == 5)
        await harness.cluster.kill(5)
        await harness.until_led_by(6)
        assert harness.values(6) == ([b"m1", b"m2"] if rule == "epoch" else [b"m1"])
        nursery.cancel_scope.cancel()


@RULES
async def test_both_lose_power_the_shorter_one_leads_and_only_epochs_make_them_agree(
    autojump_clock: Any, rule: str
) -> None:
    """KIP-101, divergence: both logs have the same high watermark, and different records below it. (It needs the
    behaviour before KIP-966: the last in-sync replica stays in the ISR when it dies, and leads again whatever it has
    lost.)
    """
    async with trio.open_nursery() as nursery:
        before_elr = {"squall_bootstrap_features": "eligible.leader.replicas.version=0"}
        harness = await ReplicaHarness(nursery, squall_replication_truncation=rule, **before_elr).begin(4, 5)
        await harness.write(b"m1")
        for broker in (4, 5):
            harness.hosted(broker).log.flush(0)
        await harness.write(b"m2")
        await harness.until_all_know(2, 4, 5)
        harness.hosted(4).log.flush(0)
        await trio.sleep(6)  # The high watermarks are written down.
        await harness.cluster.kill(4)
        await trio.sleep(1)
        await harness.cluster.kill(5)
        harness.cluster.nodes[5].fs = without_the_last_batch(harness.cluster.nodes[5].fs)
        await harness.cluster.until(lambda: harness.partition.leader == -1, 120)
        assert harness.partition.isr == (5,)
        await harness.cluster.start(5)
        await harness.until_led_by(5)
        await harness.write(b"m3")
        assert harness.values(5) == [b"m1", b"m3"]
        await harness.cluster.start(4)
        await harness.until_in_sync(4, 5)
        await harness.until_all_know(2, 4, 5)
        assert harness.values(4) == ([b"m1", b"m3"] if rule == "epoch" else [b"m1", b"m2"])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("level", ["topic", "cluster"])
async def test_after_an_unclean_election_the_former_leader_gives_up_what_only_it_had(
    autojump_clock: Any, level: str
) -> None:
    """R11 (unclean leader election)."""
    allowed = {"unclean_leader_election_enable": "true"}
    on_cluster, on_topic = (allowed, {}) if level == "cluster" else ({}, allowed)
    async with trio.open_nursery() as nursery:
        harness = await ReplicaHarness(nursery, **on_cluster).begin(4, 5, **on_topic)
        await harness.write(b"m1")
        await harness.cluster.kill(5)
        await harness.until_in_sync(4)
        await harness.write(b"m2", b"m3")
        await harness.cluster.kill(4)
        await harness.cluster.until(lambda: harness.partition.leader == -1, 120)
        await harness.cluster.start(5)
        await harness.until_led_by(5)
        assert harness.partition.isr == (5,)
        assert harness.partition.leader_recovery_state == 1
        assert harness.events(5, "became_leader")[-1]["recovering"]
        await harness.write(b"m4")
        await harness.cluster.start(4)
        await harness.until_in_sync(4, 5)
        await harness.until_all_know(2, 4, 5)
        assert harness.values(4) == harness.values(5) == [b"m1", b"m4"]
        [cut] = harness.events(4, "truncated")
        assert (cut["from_offset"], cut["to_offset"]) == (3, 1)
        assert harness.partition.leader_recovery_state == 0, "the first ISR that the new leader proposes says so"
        nursery.cancel_scope.cancel()


async def test_a_follower_that_was_away_while_its_records_were_deleted_begins_where_the_leaders_log_does(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        harness = await ReplicaHarness(nursery).begin(4, 5, segment_bytes="200")
        await harness.write(b"a", b"b")
        await harness.cluster.kill(5)
        await harness.until_in_sync(4)
        await harness.write(*[b"%d" % n for n in range(10)])
        leader = harness.cluster.running()[4]
        leader.replicas.delete_records(harness.hosted(4), 9)
        leader.replicas.log_starts_moved()
        list(leader.replicas.retain(leader.env.wall_ms()))
        assert harness.hosted(4).log.segments[0].base_offset > 2
        await harness.cluster.start(5)
        await harness.until_in_sync(4, 5)
        await harness.write(b"z")
        await harness.cluster.until(lambda: harness.hosted(5).log.log_end_offset == 13)
        log = harness.hosted(5).log
        assert (log.log_start_offset, harness.hosted(5).state.log_start_offset) == (9, 9)
        assert harness.values(5) == [b"7", b"8", b"9", b"z"]
        [cut] = harness.events(5, "truncated")
        assert (cut["to_offset"], cut["restarted"]) == (9, True)
        nursery.cancel_scope.cancel()


async def test_deleted_records_stay_deleted_though_every_replica_is_killed_at_once(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        harness = await ReplicaHarness(nursery).begin(4, 5)
        await harness.write(*[b"%d" % n for n in range(10)])
        topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 7)])
        leader = harness.cluster.running()[4]
        slot: Any = SimpleNamespace(parked=None)
        handler = DeleteRecordsApi(leader.env, leader.replicas)
        answer = handler.delete_records(DeleteRecordsRequest([topic], 10_000), slot)
        if isinstance(answer, DeferredResponse):
            answer = await answer.wait()
        assert answer.topics[0].partitions[0].low_watermark == 7
        for broker in (4, 5):
            await harness.cluster.kill(broker, lose_power=True)
        for broker in (4, 5):
            starts = MemoryFs.read(harness.cluster.nodes[broker].fs, "data/log-start-offset-checkpoint")
            assert b"t 0 7" in starts, f"{broker} has forgotten"
        nursery.cancel_scope.cancel()


async def test_retention_on_the_leader_moves_the_followers_log_start_too(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        harness = await ReplicaHarness(nursery).begin(4, 5, segment_bytes="200", retention_bytes="400")
        await harness.write(*[b"%d" % n for n in range(10)])
        leader = harness.cluster.running()[4]
        list(leader.replicas.retain(leader.env.wall_ms()))
        start = harness.hosted(4).log.log_start_offset
        assert 0 < start < 10
        await harness.cluster.until(lambda: harness.hosted(5).state.log_start_offset == start)
        assert harness.hosted(5).log.log_start_offset == start
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(6))
async def test_with_flush_messages_1_nothing_acknowledged_is_lost_when_every_replica_loses_power(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def slow(env: FakeEnv, fn: Callable[..., Any], *args: Any) -> Any:
        await trio.sleep(0.02)
        return fn(*args)

    monkeypatch.setattr(FakeEnv, "cpu", slow)
    async with trio.open_nursery() as nursery:
        harness = await ReplicaHarness(nursery, log_flush_interval_messages="1").begin(4, 5)
        loads = [Load(harness.cluster, "t", every_s=0.001 * (1 + seed)) for _ in range(3)]
        async with trio.open_nursery() as clients:
            for load in loads:
                clients.start_soon(load.run, await harness.cluster.client())
            await harness.cluster.until(lambda: sum(len(load.acknowledged) for load in loads) > 60 + 7 * seed)
            for broker in (4, 5):
                await harness.cluster.kill(broker, lose_power=True)
            clients.cancel_scope.cancel()
        await harness.cluster.until(lambda: harness.partition.leader == -1, 120)
        await harness.cluster.start(4, 5)
        await harness.cluster.until(lambda: harness.partition.leader in (4, 5))
        await harness.until_led_by(harness.partition.leader)
        await harness.until_in_sync(4, 5)
        held = values_of(harness.hosted(harness.partition.leader).log)
        for load in loads:
            acknowledged = {offset: value for value, offset in load.acknowledged.items()}
            assert acknowledged.items() <= held.items()
        nursery.cancel_scope.cancel()
