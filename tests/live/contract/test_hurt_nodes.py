"""Faults of disks and power on our broker, in every world: each has an effect that a client sees, and a fault that is
switched off behind the nemesis's back has no evidence.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.broker.protocol.records import check_crc
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import CrashOp, DiskFault, FailWrites, NodeState, Quota, Runtime, SlowDisk
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.support.patience import LONG_S, scaled

RECORDS = 40
FULL_OR_BROKEN: tuple[DiskFault, ...] = (FailWrites("EIO"), FailWrites("ENOSPC"), Quota(0))


async def down(runtime: Runtime, within_s: float = LONG_S) -> None:
    """Wait until broker 1 has ended by itself."""
    with trio.fail_after(within_s):
        while runtime.state(1) is not NodeState.DOWN:
            await trio.sleep(0.02)


def test_a_power_loss_takes_what_was_not_synced_and_nothing_else(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("cached")
        await client.create("synced", flush_messages="1")
        for topic in ("cached", "synced"):
            await client.must_produce(topic, RECORDS)
        await runtime.kill(1)
        await runtime.start_node(1)
        assert (await client.end("cached"), await client.end("synced")) == (RECORDS, RECORDS), "SIGKILL loses nothing"
        await client.must_produce("cached")
        lost: Any = await runtime.power_loss([1])
        told = lost["nodes"]["1"]
        assert told["bytes_pending"] > 0
        assert told["bytes_lost"] > 0
        assert told["names_lost"] <= told["names_pending"]
        assert runtime.state(1) is NodeState.DOWN
        await runtime.start_node(1)
        assert await client.end("synced") == RECORDS
        assert await client.end("cached") <= RECORDS
        assert "synced-0" not in told["logs"]
        assert told["logs"]["cached-0"][0] == await client.end("cached"), "recovery finds all that is not lost"
        assert runtime.exits() == ()

    on_broker(body)


def test_a_broker_whose_writes_fail_ends_and_acknowledges_nothing(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t")
        for number, fault in enumerate(FULL_OR_BROKEN, start=1):
            await client.must_produce("t")
            await runtime.fault_disk("f", 1, fault)
            assert await client.refused("t"), fault
            await down(runtime)
            *_, gone = exits = runtime.exits()
            assert len(exits) == number
            assert ("Input/output error" if "EIO" in str(fault) else "No space left") in gone.last_words
            assert (await runtime.heal_disk("f", 1))["hits"], fault
            await runtime.start_node(1)
            assert await client.end("t") == number, fault

    on_broker(body)


def test_a_failed_fsync_ends_the_broker_before_it_acknowledges(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", flush_messages="1")
        await client.must_produce("t", 3)
        await runtime.fault_disk("f", 1, FailWrites(op="fsync", path_glob="data/t-0/*"))
        assert await client.refused("t")
        await down(runtime)
        assert (await runtime.heal())["started"] == [1]
        assert await client.end("t") >= 3

    on_broker(body)


def test_the_nth_write_fails_and_none_before_it(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t")
        await client.must_produce("t")
        await runtime.fault_disk("f", 1, FailWrites(nth=4, path_glob="*/t-0/*.log"))
        await client.must_produce("t", 3)
        assert await client.refused("t")
        assert (await runtime.heal_disk("f", 1))["hits"] == 1

    on_broker(body)


def test_a_slow_disk_makes_its_clients_wait(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client, env = OneClient(runtime), runtime.env("clock")
        await client.create("t", flush_messages="1")

        async def took_s() -> float:
            began = env.mono()
            await client.must_produce("t")
            return env.mono() - began

        slow_s = scaled(0.3, runtime.name)
        await runtime.fault_disk("f", 1, SlowDisk(1000 * slow_s))
        assert await took_s() >= slow_s
        hits = (await runtime.heal_disk("f", 1))["hits"]
        assert isinstance(hits, int)
        assert hits >= 1
        with trio.fail_after(LONG_S):  # Quicker than any that meets the fault, as soon as the machine lets it.
            while await took_s() >= slow_s:
                pass

    on_real_broker(body)


def test_a_fault_has_a_name_of_its_own_and_outlives_restarts(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t")
        await runtime.fault_disk("f", 1, FailWrites(path_glob="*/t-0/*.log"))
        with pytest.raises(HarnessError, match="'f'"):
            await runtime.fault_disk("f", 1, SlowDisk(1))
        await runtime.kill(1)
        await runtime.start_node(1)
        await client.end("t")
        assert await client.refused("t")
        assert (await runtime.heal_disk("f", 1))["hits"] == 1
        assert (await runtime.heal_disk("f", 1))["hits"] == 0

    on_broker(body)


CALLS: tuple[CrashOp, ...] = ("write", "fsync", "send")


def test_a_broker_dies_just_before_its_nth_call(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", flush_messages="1")

        async def load() -> None:
            while not await client.refused("t"):
                pass

        for number, op in enumerate(CALLS, start=2):
            await client.end("t")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load)
                told = await runtime.crash_at(1, op, 5, within_s=LONG_S)
            assert told["gone"] is True, op
            assert told["at"], op
            assert runtime.state(1) is NodeState.DOWN
            assert runtime.exits() == (), "nobody's own end"
            assert (await runtime.start_node(1))["incarnation"] == number

    on_real_broker(body)


def test_a_crash_that_does_not_come_is_told_and_does_not_come_later(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t")
        told = await runtime.crash_at(1, "write", 3, within_s=0.3)
        assert (told["gone"], told["at"]) == (False, None)
        await client.must_produce("t", 5)
        assert runtime.state(1) is NodeState.RUNNING

    on_real_broker(body)


def test_rotten_bits_are_what_a_client_gets_and_what_the_digests_say(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", segment_bytes="1000", flush_messages="1")
        assert (await runtime.rot(1, path_glob="data/t-0/*.log"))["path"] is None
        await client.must_produce("t", 10, size=400)
        await runtime.kill(1)
        await runtime.start_node(1)
        await client.end("t")
        with trio.fail_after(LONG_S):
            while (rotten := await runtime.rot(1, path_glob="data/t-0/*.log", bits=8))["path"] is None:
                await trio.sleep(0.05)
        assert rotten["before"] != rotten["after"]
        whole = 0
        for offset in range(10):
            error, data = await client.fetch("t", offset)
            whole += not error and bool(data) and bool(is_whole(data))
        assert whole < 10

    on_broker(body)


def is_whole(data: bytes) -> bool:
    """Return whether a batch's checksum is right. The batch's length is at byte 8."""
    length = 12 + int.from_bytes(data[8:12], "big")
    return length <= len(data) and check_crc(memoryview(data), 0, length)


def test_a_node_can_be_paused_again_as_soon_as_it_was_resumed(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for _ in range(30):
            assert (await runtime.pause(1))["state"] == "T"
            assert (await runtime.resume(1))["found"] == "T"
        await runtime.pause(1)
        assert (await runtime.kill(1))["gone"]

    on_real_broker(body)
