"""Faults of whole nodes, injected by the nemesis on real brokers: a client gets no answer or loses its connection, and
there is evidence. A fault that is undone behind the nemesis's back has none. Two faults at once keep a node down.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest
import trio

from squall.chaos.faults.kind import Fault
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Evidence, NodeState, Runtime
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.live.contract.player import play, unproven
from tests.support.patience import LONG_S, scaled

FAULTS: list[tuple[str, dict[str, Any], float]] = [
    ("kill", {}, 1.0),
    ("stop", {}, 1.0),
    ("pause", {}, 1.0),
    ("rolling", {"how": "stop"}, 60.0),
    ("rolling", {"how": "kill"}, 60.0),
]
ANSWER_S = 0.4
"""A client without an answer for so long has noticed the fault. It is scaled, as the faults are."""


class Undone:
    """A runtime that undoes every fault of a node at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def kill(self, node: int) -> Evidence:
        told = await self._runtime.kill(node)
        await self._runtime.start_node(node)
        return told

    async def stop_node(self, node: int) -> Evidence:
        told = await self._runtime.stop_node(node)
        await self._runtime.start_node(node)
        return told

    async def pause(self, node: int) -> Evidence:
        told = await self._runtime.pause(node)
        await self._runtime.resume(node)
        return told

    async def damage(self, node: int, how: Any, *, size: int = 1000) -> Evidence:
        return {"path": None}

    async def rot(
        self, node: int, *, path_glob: str = "*.log", bits: int = 1, where: Literal["checked", "epoch"] = "checked"
    ) -> Evidence:
        return await self._runtime.rot(node, path_glob="no such file", bits=bits, where=where)


async def played(
    runtime: Any, real: Runtime, action: str, params: dict[str, Any], duration_s: float
) -> tuple[dict[str, Any], int]:
    """Inject a fault. Returns its last line, and how often meanwhile a client had no answer or lost an idle connection.
    """
    fault = make_fault(0, 0.0, scaled(duration_s, real.name), action, "node:1", params)
    (line,), felt = await all_played(runtime, real, [fault])
    return line, felt


async def all_played(runtime: Any, real: Runtime, faults: list[Fault]) -> tuple[list[dict[str, Any]], int]:
    """Inject these faults. Returns their last lines, and how often meanwhile a client had no answer or lost an idle
    connection.
    """
    client, felt, answer_s = OneClient(real), 0, scaled(ANSWER_S, real.name)

    async def ask() -> None:
        nonlocal felt
        while True:
            with trio.move_on_after(answer_s) as scope:
                felt += await client.refused("t")
            felt += scope.cancelled_caught
            await trio.sleep(0.005)

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        nonlocal felt
        await client.until_hung_up(task_status)
        felt += 1

    async with trio.open_nursery() as nursery:
        await nursery.start(listen)
        nursery.start_soon(ask)
        lines = await play(runtime, *faults)
        nursery.cancel_scope.cancel()
    return lines, felt


@pytest.mark.parametrize("off", [False, True], ids=["left_on", "undone"])
def test_only_what_is_left_on_has_evidence_and_is_felt_by_clients(on_real_broker: OnCluster, off: bool) -> None:
    async def body(runtime: Runtime) -> None:
        await OneClient(runtime).create("t")
        for action, params, duration_s in FAULTS:
            line, felt = await played(Undone(runtime) if off else runtime, runtime, action, params, duration_s)
            assert bool(line["evidence"]) is not off, line
            assert bool(unproven(line)) is off
            assert bool(line["error"]) is off
            assert felt or off, line
            await in_service(runtime)

    on_real_broker(body)


def test_a_node_that_two_faults_have_down_is_down_until_the_last_one_ends(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await OneClient(runtime).create("t")
        half_s, one_s = scaled(0.5, runtime.name), scaled(1.0, runtime.name)
        both = [make_fault(0, 0.0, one_s, "kill", "node:1", {}), make_fault(1, half_s, one_s, "stop", "node:1", {})]
        (first, second), felt = await all_played(runtime, runtime, both)
        assert (unproven(first), unproven(second)) == (None, None)
        assert first["evidence"]["up"] == [{"node": 1, "held_by": [1], "state": "down"}]
        (found,) = second["evidence"]["down"]
        assert (found["found"], found["by"], found["answered"]) == ("down", {"0": "kill"}, 0)
        assert second["evidence"]["up"][0]["asked_ns"] >= second["began"] + one_s * 1e9, "started by the last one"
        assert felt
        await in_service(runtime)
        longer = make_fault(1, half_s, 20 * one_s, "stop", "node:1", {})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_too_early, runtime)
            (_, second), _ = await all_played(runtime, runtime, [both[0], longer])
        assert "node 1, which was down already, was running" in str(unproven(second))
        assert second["ended"] - second["began"] < 20e9 * one_s, "seen at once, and told"

    on_real_broker(body)


async def start_too_early(runtime: Runtime) -> None:
    """Start the node behind the nemesis's back, once both faults are active."""
    with trio.fail_after(LONG_S):
        while runtime.state(1) is not NodeState.DOWN:
            await trio.sleep(0.02)
        await trio.sleep(scaled(0.7, runtime.name))
    await runtime.start_node(1)


async def in_service(runtime: Runtime) -> None:
    """Wait until the broker acknowledges records again."""
    with trio.fail_after(LONG_S):
        while await OneClient(runtime).refused("t"):
            await trio.sleep(0.05)


@pytest.mark.parametrize("off", [False, True], ids=["left_on", "undone"])
def test_bits_that_did_not_rot_are_no_evidence(on_real_broker: OnCluster, off: bool) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", segment_bytes="1000", flush_messages="1")
        await client.must_produce("t", 10, size=400)
        await runtime.kill(1)
        await runtime.start_node(1)
        await client.end("t")
        line, _ = await played(Undone(runtime) if off else runtime, runtime, "bit_rot", {"bits": 8}, 0.3)
        assert bool(line["evidence"]) is not off, line
        assert bool(unproven(line)) is off

    on_real_broker(body)


@pytest.mark.parametrize("off", [False, True], ids=["left_on", "undone"])
def test_a_segment_that_lost_its_end_is_shorter_for_clients_and_only_then_there_is_proof(
    on_real_broker: OnCluster, off: bool
) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", flush_messages="1")
        last = await client.must_produce("t", 10, size=400)
        assert last.base_offset == 9
        view = Undone(runtime) if off else runtime
        line = await unloaded(view, {"how": "tail", "bytes": 1000})
        assert bool(line["evidence"]) is not off, line
        assert bool(unproven(line)) is off
        assert (await client.end("t") < 10) is not off
        if not off:
            done = line["evidence"]["damaged"]
            assert done["path"].startswith("data/t-0/")
            assert done["bytes"] - done["bytes_left"] == 1000
            await client.must_produce("t", 3)

    on_real_broker(body)


def test_a_file_that_is_lost_is_gone_and_the_broker_comes_up_all_the_same(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", segment_bytes="1000", flush_messages="1")
        await client.must_produce("t", 10, size=400)
        done = (await unloaded(runtime, {"how": "file"}))["evidence"]["damaged"]
        assert done["path"].startswith("data/t-0/")
        assert (done["bytes_left"], done["after"]) == (None, None)
        await client.must_produce("t", 3)

    on_real_broker(body)


async def unloaded(runtime: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Inject a fault of a node's files while nothing is written, and return its last line."""
    (line,) = await play(runtime, make_fault(0, 0.0, 1.0, "damage", "node:1", params))
    return line
