"""Faults that begin at a broker's n-th call of a kind, in every world: calls are counted, and a trigger that never
fires is no evidence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import trio

from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.capabilities import counts_calls
from squall.chaos.runtimes.contract import CrashOp, Runtime
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.live.contract.player import play

RECORDS = 20


def calls(runtime: Runtime, op: CrashOp) -> int:
    assert counts_calls(runtime)
    return runtime.calls(1, op)


def test_a_brokers_calls_are_counted_over_its_restarts(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client = OneClient(runtime)
        await client.create("t", flush_messages="1")
        before = {op: calls(runtime, op) for op in ("fsync", "write", "send")}
        assert min(before.values()) > 0
        await client.must_produce("t", RECORDS)
        after = {op: calls(runtime, op) for op in ("fsync", "write", "send")}
        assert all(after[op] >= before[op] + RECORDS for op in after), (before, after)
        await runtime.kill(1)
        assert calls(runtime, "write") >= after["write"]
        await runtime.start_node(1)
        assert calls(runtime, "write") > after["write"]

    on_broker(body)


async def waiting(runtime: Runtime, when: str, within_s: float, produced: int) -> dict[str, Any]:
    """Return the last line of a pause with this trigger, while `produced` records are sent to topic "t"."""
    client = OneClient(runtime)
    fault = replace(make_fault(0, 0.0, 0.3, "pause", "node:1", {}), when=when, within_s=within_s)

    async def load() -> None:
        with trio.move_on_after(10):
            await client.must_produce("t", produced)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        (told,) = await play(runtime, fault)
    return told


OPS: tuple[CrashOp, ...] = ("fsync", "write", "send")


def test_a_fault_begins_at_the_n_th_call(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await OneClient(runtime).create("t", flush_messages="1")
        for op in OPS:
            wanted = calls(runtime, op) + RECORDS
            told = await waiting(runtime, f"{op}:1 >= {wanted}", 20, 3 * RECORDS)
            assert told["evidence"], told
            assert told["trigger"]["seen"] >= wanted
            assert told["asked"] <= told["trigger"]["true_ns"] <= told["began"]

    on_real_broker(body)


def test_a_call_that_does_not_come_leaves_the_fault_without_evidence(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await OneClient(runtime).create("t", flush_messages="1")
        told = await waiting(runtime, f"fsync:1 >= {calls(runtime, 'fsync') + 1_000_000}", 0.5, 1)
        assert told["began"] is None
        assert not told["evidence"]
        assert "did not come true within 0.5 s" in told["error"]

    on_real_broker(body)
