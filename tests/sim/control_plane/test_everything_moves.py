"""Random tests of the control plane under load: partitions move, leaders are elected, controllers lose their
leadership, brokers are killed, stopped and cut off, one after another. At the end every acknowledged record must be
there.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import trio

from squall.workloads.client import admin
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed
from tests.support.brokers.memory_cluster import Load, MemoryCluster, finish, surely, values_of

PARTITIONS = 3
TOPIC = "t"
ACTS = ("move", "call_off", "elect", "unseat", "kill", "lose_power", "stop", "cut", "make_topic")
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.max.retention.bytes": "0",
    "metadata.log.segment.bytes": "8000",
}


class Campaign:
    """A random sequence of such faults on four brokers, three of them voters. At most one broker is affected at a time.
    """

    def __init__(self, cluster: MemoryCluster, seed: int) -> None:
        self.cluster, self.rng = cluster, random.Random(repr((seed, "campaign")))
        self.story: list[str] = []

    async def play(self, client: Client, inside: Client, acts: int) -> None:
        for _ in range(acts):
            act = self.rng.choice(ACTS)
            self.story.append(f"{trio.current_time():.1f} {act}")
            with trio.move_on_after(60) as scope:
                try:
                    await getattr(self, act)(client, inside)
                except RequestFailed as failed:
                    self.story.append(f"   {failed}")
            assert not scope.cancelled_caught, f"{act} took more than a minute"
            await trio.sleep(self.rng.uniform(0.1, 3.0))

    def place(self) -> tuple[str, int]:
        return TOPIC, self.rng.randrange(PARTITIONS)

    async def move(self, client: Client, inside: Client) -> None:
        replicas = self.rng.sample(sorted(self.cluster.nodes), 3)
        await admin.alter_partition_reassignments(client, {self.place(): replicas})

    async def call_off(self, client: Client, inside: Client) -> None:
        moving = await admin.list_partition_reassignments(client)
        await admin.alter_partition_reassignments(client, dict.fromkeys(moving))

    async def elect(self, client: Client, inside: Client) -> None:
        await admin.elect_leaders(client, None)

    async def unseat(self, client: Client, inside: Client) -> None:
        await admin.unseat_controller(inside)

    def victim(self) -> int:
        return self.rng.choice(sorted(self.cluster.nodes))

    async def kill(self, client: Client, inside: Client, *, lose_power: bool = False) -> None:
        victim = self.victim()
        await self.cluster.kill(victim, lose_power=lose_power)
        await trio.sleep(self.rng.uniform(0.0, 6.0))
        await self.cluster.start(victim)
        await self.whole()

    async def lose_power(self, client: Client, inside: Client) -> None:
        await self.kill(client, inside, lose_power=True)

    async def stop(self, client: Client, inside: Client) -> None:
        victim = self.victim()
        await self.cluster.stop(victim)
        await trio.sleep(self.rng.uniform(0.0, 6.0))
        await self.cluster.start(victim)
        await self.whole()

    async def cut(self, client: Client, inside: Client) -> None:
        self.cluster.cut(self.victim())
        await trio.sleep(self.rng.uniform(0.5, 6.0))
        self.cluster.heal()
        await self.whole()

    async def make_topic(self, client: Client, inside: Client) -> None:
        await admin.create_topics(client, [admin.NewTopic(f"other-{self.rng.randrange(1000)}", 2, 3)])

    async def whole(self) -> None:
        """Wait until all replicas are in sync again, before the next fault."""
        await self.cluster.until(self.is_whole, 120)

    def is_whole(self) -> bool:
        if self.cluster.controller() is None or any(broker.fenced for broker in self.cluster.image().brokers.values()):
            return False
        found = [self.cluster.partition(TOPIC, index) for index in range(PARTITIONS)]
        return all(part.leader >= 0 and set(part.isr) == set(part.replicas) for part in found)

    def check(self, loads: list[Load]) -> None:
        for load in loads:
            leader = self.cluster.partition(TOPIC, load.index).leader
            held = values_of(self.cluster.running()[leader].logs.logs[TOPIC, load.index])
            lost = {value: offset for value, offset in load.acknowledged.items() if held.get(offset) != value}
            assert not lost, f"partition {load.index} of {leader} lost {lost}"
            assert len(set(held.values())) == len(held), "a record is there twice"


async def campaign(nursery: trio.Nursery, seed: int, acts: int) -> Campaign:
    features = random.Random(seed).choice(("eligible.leader.replicas.version=0", ""))
    cluster = MemoryCluster(nursery, 4, voters=3, squall_bootstrap_features=features)
    cluster.settings.update(OFTEN)
    await cluster.start()
    client, inside = await cluster.client(), await cluster.client(between_nodes=True)
    new = admin.NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    assert await surely(admin.create_topics, client, [new]) == {TOPIC: ""}
    loads = [Load(cluster, TOPIC, index, every_s=0.05) for index in range(PARTITIONS)]
    for load in loads:
        nursery.start_soon(load.run, client)
    play = Campaign(cluster, seed)
    try:
        await play.play(client, inside, acts)
        await play.whole()
        counts = [len(load.acknowledged) for load in loads]
        await cluster.until(partial(have_grown, loads, counts))
        play.check(loads)
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *play.story[-30:]]))
        raise
    await finish(nursery, *loads)
    return play


def have_grown(loads: list[Load], counts: list[int]) -> bool:
    return all(len(load.acknowledged) > count + 5 for load, count in zip(loads, counts, strict=True))


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_acknowledged_is_there_whatever_moved(autojump_clock: Any, seed: int) -> None:
    async with trio.open_nursery() as nursery:
        await campaign(nursery, seed, acts=12)
