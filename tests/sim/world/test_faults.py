"""Faults that only the simulation can inject: each changes what others see, and only that."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio

from squall.broker.env import LinkClosed
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.api_versions import ApiVersionsRequest
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import (
    FailWrites,
    FrameAct,
    Frames,
    Link,
    Loss,
    NodeState,
    Quota,
    Slicer,
    SlowDisk,
    StreamDirection,
)
from squall.chaos.runtimes.sim import inquiry
from squall.chaos.runtimes.sim.runtime import SimRuntime

Simulated = Callable[..., Any]
CLIENT_LINK = Link("CLIENT", 1)
PORT = 9100
VERSIONS = int(ApiKey.API_VERSIONS)
VERSIONS_0 = struct.pack(">ihhih", 10, VERSIONS, 0, 1, -1)
"""Is an ApiVersions request of version 0, without a client id."""


async def versions(runtime: SimRuntime) -> Any:
    """Send ApiVersions over the client's link to node 1."""
    return await inquiry.ask(runtime.env("asker"), "broker-1", PORT, ApiVersionsRequest(), 0)


async def answered_within(runtime: SimRuntime, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await versions(runtime)
        return True
    return False


# ------------------------------------------------------------------------------------------------ frames


def test_a_world_in_which_frames_are_not_followed_takes_no_fault_of_frames(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        runtime.world.frames_matter = False
        with pytest.raises(HarnessError, match="no protocol fault"):
            await runtime.fault_link("f", CLIENT_LINK, Frames(VERSIONS, FrameAct.DROP))
        assert await answered_within(runtime, 1)

    simulated(body)


@pytest.mark.parametrize("stream", [StreamDirection.THERE, StreamDirection.BACK])
def test_a_dropped_frame_never_arrives_and_only_the_nth_is_dropped(
    simulated: Simulated, stream: StreamDirection
) -> None:
    async def body(runtime: SimRuntime) -> None:
        await runtime.fault_link("f", CLIENT_LINK, Frames(VERSIONS, FrameAct.DROP, nth=2, stream=stream))
        assert await answered_within(runtime, 1)
        assert not await answered_within(runtime, 1)
        assert await answered_within(runtime, 1)
        assert (await runtime.heal_link("f", CLIENT_LINK))["hits"] == 1

    simulated(body)


def test_a_delayed_frame_arrives_late(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        await runtime.fault_link("f", CLIENT_LINK, Frames(VERSIONS, FrameAct.DELAY, count=0, delay_ms=700))
        assert not await answered_within(runtime, 0.6)
        assert await answered_within(runtime, 0.8)
        await runtime.heal_link("f", CLIENT_LINK)
        assert await answered_within(runtime, 0.1)

    simulated(body)


def test_a_doubled_request_is_answered_once(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        await runtime.fault_link("f", CLIENT_LINK, Frames(VERSIONS, FrameAct.DUPLICATE, count=0))
        link = await runtime.env("asker").connect("broker-1", PORT)
        frame = bytes.fromhex("0000000d 0012 0000 00000005 0003 616263".replace(" ", ""))
        assert link.send((frame,)) == len(frame)
        first = await received(link, 0.5)
        assert first[4:8] == (5).to_bytes(4, "big")
        assert int.from_bytes(first[:4], "big") + 4 == len(first)
        link.close()
        assert (await runtime.heal_link("f", CLIENT_LINK))["hits"] == 1

    simulated(body)


async def received(link: Any, seconds: float) -> bytes:
    """All that arrives within so many seconds."""
    data, buffer = bytearray(), bytearray(65536)
    with trio.move_on_after(seconds):
        while True:
            count = link.recv_into(memoryview(buffer))
            if count is None:
                await link.wait_readable()
            elif count == 0:
                break
            else:
                data += buffer[:count]
    return bytes(data)


def test_the_link_answers_in_the_brokers_stead(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        refused = Frames(int(ApiKey.PRODUCE), FrameAct.ERROR, error=error)
        await runtime.fault_link("f", CLIENT_LINK, refused)
        part = PartitionProduceData(index=3, records=b"")
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[part])]
        )
        response = await inquiry.ask(runtime.env("asker"), "broker-1", PORT, request, 9)
        (topic,) = response.responses
        (told,) = topic.partition_responses
        assert (topic.name, told.index, told.error_code) == ("t", 3, error)
        assert (await runtime.heal_link("f", CLIENT_LINK))["hits"] == 1

    simulated(body)


# ------------------------------------------------------------------------------------------------ packets, connections


def test_lost_packets_come_late_and_are_counted(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        await runtime.fault_link("f", CLIENT_LINK, Loss(0.5, rto_ms=300))
        before = runtime.world.kernel.now
        for _ in range(5):
            await answered_within(runtime, 5)
        assert runtime.world.kernel.now - before >= 0.3
        hits = (await runtime.heal_link("f", CLIENT_LINK))["hits"]
        assert isinstance(hits, int)
        assert hits >= 1

    simulated(body)


def test_no_retransmission_is_lost_after_the_fault_has_ended(simulated: Simulated) -> None:
    """Check that a connection needs at most as long again as the fault lasted, and one RTO."""

    async def body(runtime: SimRuntime) -> None:
        for _ in range(10):
            link = await runtime.env("asker").connect("broker-1", PORT)
            await runtime.fault_link("f", CLIENT_LINK, Loss(0.9, rto_ms=300))
            link.send([VERSIONS_0])
            await trio.sleep(2)
            await runtime.heal_link("f", CLIENT_LINK)
            healed = runtime.world.kernel.now
            await link.wait_readable()
            assert runtime.world.kernel.now - healed <= 2.4

    simulated(body)


def test_small_sends_in_a_row_are_pieces_with_a_pause_between_them(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        link = await runtime.env("asker").connect("broker-1", PORT)
        await runtime.fault_link("f", CLIENT_LINK, Slicer(1000, 0, 50_000, stream=StreamDirection.THERE))
        answered = []
        for _ in range(3):
            link.send([VERSIONS_0])
        while len(answered) < 3:
            await link.wait_readable()
            if link.recv_into(memoryview(bytearray(4096))) is not None:
                answered.append(runtime.world.kernel.now)
        assert [later - earlier >= 0.045 for earlier, later in pairwise(answered)] == [True, True]

    simulated(body)


def test_a_reset_ends_open_connections_and_counts_them(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        link = await runtime.env("asker").connect("broker-1", PORT)
        assert (await runtime.reset_links([CLIENT_LINK]))["reset"] >= 1  # type: ignore[operator]
        with pytest.raises(LinkClosed, match="was reset"):
            link.recv_into(memoryview(bytearray(8)))
        assert await answered_within(runtime, 1)
        assert (await runtime.reset_links([Link(1, 2)])).keys() >= {"reset", "t_ns"}

    simulated(body)


# ------------------------------------------------------------------------------------------------ ends of nodes


@pytest.mark.parametrize("op", ["fsync", "write", "send"])
def test_a_node_dies_at_the_nth_call_and_not_before(simulated: Simulated, op: Any) -> None:
    async def body(runtime: SimRuntime) -> None:
        async def traffic() -> None:
            while runtime.state(1) is NodeState.RUNNING:
                with trio.move_on_after(0.2):
                    try:
                        await inquiry.ask(runtime.env("asker"), "broker-1", PORT, MetadataRequest(topics=[]), 12)
                    except OSError:
                        pass
                await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic)
            told = await runtime.crash_at(1, op, 3, within_s=20)
            assert told["gone"] is True
            assert told["at"]
            assert runtime.state(1) is NodeState.DOWN
            nursery.cancel_scope.cancel()
        assert (await runtime.start_node(1))["incarnation"] == 2
        assert runtime.exits() == ()

    simulated(body)


def test_a_crash_that_does_not_come_is_told_and_does_not_come_later(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        told = await runtime.crash_at(1, "send", 1_000_000, within_s=0.5)
        assert (told["gone"], told["at"]) == (False, None)
        await trio.sleep(5)
        assert runtime.state(1) is NodeState.RUNNING

    simulated(body)


def test_power_fails_on_several_nodes_at_once_and_nobody_hears_of_it(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        link = await runtime.env("asker").connect("broker-2", PORT)
        lost = await runtime.power_loss([1, 2])
        assert lost["nodes"].keys() == {"1", "2"}  # type: ignore[union-attr]
        assert {runtime.state(1), runtime.state(2)} == {NodeState.DOWN}
        await trio.sleep(1)
        assert link.recv_into(memoryview(bytearray(8))) is None
        with pytest.raises(HarnessError, match="broker 1 is down"):
            await runtime.power_loss([1])
        await runtime.heal()
        with pytest.raises(LinkClosed):
            link.recv_into(memoryview(bytearray(8)))

    simulated(body)


# ------------------------------------------------------------------------------------------------ disks and clocks


def test_a_disk_that_fails_ends_its_broker_with_a_word(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        await runtime.fault_disk("f", 2, FailWrites("EIO", op="fsync"))
        with trio.move_on_after(30):
            while runtime.state(2) is NodeState.RUNNING:
                await trio.sleep(0.1)
        (gone,) = runtime.exits()
        assert gone.node == 2
        assert "Input/output error" in gone.last_words
        assert (await runtime.heal_disk("f", 2))["hits"]
        assert (await runtime.start_node(2))["incarnation"] == 2

    simulated(body)


def test_a_full_disk_is_full_until_it_is_healed(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        await runtime.fault_disk("f", 2, Quota(0))
        with trio.move_on_after(30):
            while runtime.state(2) is NodeState.RUNNING:
                await trio.sleep(0.1)
        assert "No space left" in runtime.exits()[0].last_words
        assert (await runtime.heal())["started"] == [2]

    simulated(body)


def test_a_slow_disk_takes_longer(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        node = runtime.world.nodes[1]
        assert node.env is not None
        began = runtime.world.kernel.now
        await node.env.cpu(lambda: None)
        assert runtime.world.kernel.now - began < 0.1
        await runtime.fault_disk("f", 1, SlowDisk(400))
        began = runtime.world.kernel.now
        await node.env.cpu(lambda: None)
        assert runtime.world.kernel.now - began >= 0.4

    simulated(body)


def test_a_bent_clock_bends_the_nodes_own_answers_only(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        one, other = runtime.world.nodes[1], runtime.world.nodes[2]
        assert (await runtime.set_clock(1, -86_400_000, rate=1.5))["moved_ms"] == pytest.approx(-86_400_000, abs=1)
        apart_ms = one.clock.wall_ms() - other.clock.wall_ms()
        assert -86_400_002 <= apart_ms <= -86_399_990
        before = one.clock.mono()
        await trio.sleep(2)
        assert one.clock.mono() - before == pytest.approx(3.0)
        await runtime.set_clock(1, 0)
        assert one.clock.mono() >= before + 3.0

    simulated(body)


def test_a_pause_holds_what_is_due_and_lets_it_strike_at_once_afterwards(simulated: Simulated) -> None:
    async def body(runtime: SimRuntime) -> None:
        node = runtime.world.nodes[3]
        assert node.env is not None
        env, seen = node.env, []

        async def sleeps() -> None:
            await env.sleep(1)
            seen.append(("slept", runtime.world.kernel.now))

        async def waits() -> None:
            with env.timeout(1):
                await trio.sleep_forever()
            seen.append(("timed out", runtime.world.kernel.now))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeps)
            nursery.start_soon(waits)
            await trio.sleep(0.1)
            await runtime.pause(3)
            await trio.sleep(5)
            assert seen == []
            resumed_at = runtime.world.kernel.now
            await runtime.resume(3)
        assert sorted(what for what, _ in seen) == ["slept", "timed out"]
        assert {at for _, at in seen} == {resumed_at}

    simulated(body)
