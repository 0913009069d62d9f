"""Replication without a quorum: whole brokers with their fetchers, and producers, under a scripted control plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from squall.broker.control.orders import become
from squall.broker.control.port import StopReplica
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.workloads.client.client import Client
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ProducerSettings
from tests.support.brokers.memory_cluster import MemoryCluster, NodeEnv, values_of
from tests.support.brokers.scripted_control import CONFIRM, TOPIC, TOPIC_ID, ScriptedControl, ScriptedPlane

LAG_MS = 2_000
"""The brokers' replica.lag.time.max.ms."""


class Stage:
    """Three brokers with a replica of the topic each, and one producer."""

    def __init__(self, nursery: trio.Nursery, **settings: str) -> None:
        self.control = ScriptedControl()
        self.cluster = MemoryCluster(nursery, 3, make_control=self.control.make, **settings)
        self.nursery = nursery
        self.outcomes: list[Outcome] = []

    async def begin(self, *replicas: int) -> Stage:
        await self.cluster.start()
        self.control.create(*replicas)
        self.client: Client = await self.cluster.client()
        self.client.track([TOPIC])
        settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=60_000)
        self.producer = Producer(self.client, settings)
        await self.nursery.start(self.producer.run)
        return self

    def send(self, *values: bytes) -> None:
        for value in values:
            self.producer.send(TOPIC, 0, None, value, [], self.client.env.wall_ms(), self.outcomes.append)

    async def write(self, *values: bytes) -> None:
        """Send these values, and wait until everything sent so far is acknowledged."""
        expected = len(self.outcomes) + len(values)
        self.send(*values)
        await self.until(lambda: len(self.outcomes) == expected)
        assert {outcome.status for outcome in self.outcomes} == {OperationStatus.OK}

    def hosted(self, broker_id: int) -> HostedPartition:
        [h] = self.cluster.running()[broker_id].replicas.hosted()
        return h

    def values(self, broker_id: int) -> list[bytes]:
        return list(values_of(self.hosted(broker_id).log).values())

    def env(self, broker_id: int) -> NodeEnv:
        return self.cluster.nodes[broker_id].env

    async def until(self, holds: Callable[[], bool]) -> None:
        await self.cluster.until(holds)

    async def until_all_have(self, *values: bytes) -> None:
        replicas = self.control.state.replicas
        await self.until(lambda: all(self.values(broker_id) == list(values) for broker_id in replicas))


async def test_what_is_acknowledged_is_on_every_replica_and_no_broker_has_a_metadata_log(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        await stage.write(b"a", b"b")
        await stage.until_all_have(b"a", b"b")
        await stage.until(lambda: all(stage.hosted(n).state.high_watermark == 2 for n in (1, 2, 3)))
        for broker_id in (1, 2, 3):
            assert not [name for name in stage.cluster.folders(broker_id) if "metadata" in name and "cluster" in name]
            assert type(stage.cluster.running()[broker_id].control) is ScriptedPlane
        nursery.cancel_scope.cancel()


async def test_leadership_goes_round_by_a_list_and_nothing_acknowledged_is_lost(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        written = []
        for turn, leader in enumerate((2, 3, 1, 1, 2)):
            value = b"turn-%d" % turn
            written.append(value)
            await stage.write(value)
            stage.control.hand_out({"leader": leader})
            assert stage.hosted(leader).state.is_leader
            assert stage.hosted(leader).state.leader_epoch == turn + 1
        await stage.write(b"last")
        await stage.until_all_have(*written, b"last")
        ends = {tuple(stage.hosted(n).log.epochs.entries) for n in (1, 2, 3)}
        assert ends == {((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5))}, "each epoch begins where it began everywhere"
        nursery.cancel_scope.cancel()


async def test_an_isr_that_is_confirmed_smaller_lets_the_producer_go(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        await stage.write(b"a")
        stage.cluster.cut(3)
        began = trio.current_time()
        await stage.write(b"b")
        assert trio.current_time() - began > LAG_MS / 2000, "it was waited for as long as it may lag"
        [proposal] = stage.control.proposed
        epochs = {n: stage.control.image.brokers[n].epoch for n in (1, 2)}
        assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)
        assert dict(proposal.isr) == epochs, "each member with the broker epoch that it fetched with"
        assert stage.hosted(1).state.isr == stage.control.state.isr == (1, 2)
        stage.cluster.heal()
        await stage.until(lambda: stage.control.state.isr == (1, 2, 3))
        assert stage.values(3) == [b"a", b"b"], "it is let in once it has all that is committed"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("verdict", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, None])
async def test_an_isr_that_is_not_confirmed_smaller_holds_the_producer_up(
    autojump_clock: Any, verdict: ErrorCode | None
) -> None:
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        await stage.write(b"a")
        stage.control.verdict = verdict
        stage.cluster.cut(3)
        stage.send(b"b")
        await stage.until(lambda: len(stage.control.proposed) >= 2)
        await trio.sleep(2 * LAG_MS / 1000)
        assert len(stage.outcomes) == 1, "who was not let go may be elected, and lacks it"
        assert stage.hosted(1).state.high_watermark == 1
        assert stage.hosted(1).state.isr == (1, 2, 3)
        stage.control.verdict = CONFIRM
        await stage.until(lambda: len(stage.outcomes) == 2)
        assert stage.control.state.isr == (1, 2)
        nursery.cancel_scope.cancel()


async def test_a_replica_that_is_to_stop_is_gone_and_waited_for_no_more(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        await stage.write(b"a")
        await stage.until_all_have(b"a")
        stage.control.hand_out({"replicas": (1, 2), "isr": (1, 2)})
        assert stage.cluster.running()[3].replicas.hosted() == []
        assert "t-0" not in stage.cluster.folders(3)
        stage.cluster.cut(3)
        began = trio.current_time()
        await stage.write(b"b")
        assert trio.current_time() - began < LAG_MS / 1000
        assert not stage.control.proposed, "nobody had to be thrown out"
        nursery.cancel_scope.cancel()


async def test_an_order_to_stop_of_an_earlier_leader_epoch_stops_nothing(autojump_clock: Any) -> None:
    """KIP-570: ZooKeeper's controllers sent such orders late; KRaft's images cannot."""
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        await stage.write(b"a")
        stage.control.hand_out({"leader": 2})
        stage.control.tell(3, StopReplica(TOPIC, TOPIC_ID, 0, 0))
        assert stage.values(3) == [b"a"]
        await stage.write(b"b")
        await stage.until_all_have(b"a", b"b")
        stage.control.tell(3, StopReplica(TOPIC, TOPIC_ID, 0, 1))
        assert stage.cluster.running()[3].replicas.hosted() == []
        nursery.cancel_scope.cancel()


async def test_old_states_that_come_late_or_twice_change_nothing(autojump_clock: Any) -> None:
    """KAFKA-9539, KIP-570."""
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        states = [stage.control.state]
        for changes in ({"leader": 2}, {"leader": 1}, {"leader": 3}):
            stage.control.hand_out(changes)
            states.append(stage.control.state)
        for broker_id in (1, 2, 3):
            for state in reversed(states):
                stage.control.tell(broker_id, become(TOPIC, TOPIC_ID, 0, state, broker_id))
        roles = {n: (stage.hosted(n).state.is_leader, stage.hosted(n).state.leader_epoch) for n in (1, 2, 3)}
        assert roles == {1: (False, 3), 2: (False, 3), 3: (True, 3)}
        await stage.write(b"a")
        await stage.until_all_have(b"a")
        nursery.cancel_scope.cancel()


async def test_a_fenced_broker_is_not_proposed_though_it_has_caught_up(autojump_clock: Any) -> None:
    """KIP-841."""
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        stage.control.fence(3)
        stage.control.hand_out({"isr": (1, 2)})
        await stage.write(b"a")
        await stage.until_all_have(b"a")
        await trio.sleep(3 * LAG_MS / 1000)
        assert stage.control.proposed == []
        stage.control.fence(3, False)
        await stage.until(lambda: stage.control.state.isr == (1, 2, 3))
        nursery.cancel_scope.cancel()


async def test_a_leader_that_has_not_heard_of_its_end_acknowledges_nothing(autojump_clock: Any) -> None:
    """Followers of the new epoch no longer fetch from the old leader. So nothing that it appends is committed, and it
    truncates these records later.
    """
    async with trio.open_nursery() as nursery:
        stage = await Stage(nursery).begin(1, 2, 3)
        await stage.write(b"a")
        await stage.until_all_have(b"a")
        stage.control.deafen(1)
        stage.control.hand_out({"leader": 2, "isr": (1, 2, 3)})
        assert stage.hosted(1).state.is_leader, "for all it knows"
        stage.control.verdict = None
        stage.send(b"b")
        await stage.until(lambda: stage.hosted(1).log.log_end_offset == 2)
        await trio.sleep(3 * LAG_MS / 1000)
        assert len(stage.outcomes) == 1
        assert stage.hosted(1).state.high_watermark == 1
        stage.control.verdict = CONFIRM
        stage.control.hear(1)
        await stage.until(lambda: len(stage.outcomes) == 2)
        assert stage.outcomes[1].status is OperationStatus.OK, "the producer found the leader"
        await stage.until_all_have(b"a", b"b")
        [cut] = stage.env(1).events("truncated")
        assert (cut["from_offset"], cut["to_offset"]) == (2, 1)
        nursery.cancel_scope.cancel()
