"""What is done to disks and power of real brokers: through `broker.faulted` in the brokers' own processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Protocol

import trio

from chaos.errors import HarnessError, Refused
from chaos.runtimes.contract import CrashOp, DiskFault, Evidence, NodeState
from chaos.runtimes.damage import How, damage
from chaos.runtimes.real.bit_rot import rot
from chaos.runtimes.real.orders import NodeFaults

TAKEN_OVER_S = 2.0
POLL_S = 0.005


class HurtNode(Protocol):
    """What is needed of a runtime's node."""

    id: int
    faults: NodeFaults | None
    crash_number: int
    """The crash that was ordered last: it is no exit of the broker's own."""

    @property
    def state(self) -> NodeState:
        """As it was found last."""

    @property
    def incarnation(self) -> int:
        """How often it was started."""

    @property
    def data(self) -> Path:
        """Its log directory."""

    def poll(self) -> None:
        """Notice an end on its own."""

    def must_be(self, *states: NodeState) -> None:
        """HarnessError where it is in none of these states."""

    async def strike(self) -> None:
        """Send the signal that ends it."""

    async def gone(self, asked_ns: int) -> Evidence:
        """Until it has ended of that signal."""


class Hurting:
    """Part of `chaos.runtimes.contract.Runtime`. Refused where the brokers were not started with `--faults`."""

    seed: int
    _nodes: Mapping[int, HurtNode]

    def _node(self, node: int) -> HurtNode:
        raise NotImplementedError

    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        """As `Runtime.power_loss`, but that peers hear of the end: connections are closed. What was not synced goes
        once the processes have ended. Evidence also: through_bytes, what had to be written back because there was
        too much of it.
        """
        found = [self._node(node) for node in nodes]
        hurt = {node.id: _hurt(node, "power loss") for node in found}
        asked_ns = time.monotonic_ns()
        async with trio.open_nursery() as nursery:
            for node in found:
                nursery.start_soon(node.strike)
        for node in found:
            await node.gone(asked_ns)
        ended_ns = time.monotonic_ns()
        lost: dict[str, Evidence] = {}
        for node in found:
            faults, rng = hurt[node.id], Random(repr((self.seed, "power loss", node.id, node.incarnation)))
            if not faults.ran(node.incarnation):
                raise HarnessError(f"broker {node.id} did not run on files that can lose power")
            lost[str(node.id)] = await trio.to_thread.run_sync(faults.lose_power, [node.data], rng)
        return {"nodes": lost, "asked_ns": asked_ns, "ended_ns": ended_ns}

    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        """As `Runtime.crash_at`."""
        found = self._node(node)
        faults = _hurt(found, "crash points")
        found.must_be(NodeState.RUNNING)
        asked_ns, incarnation = time.monotonic_ns(), found.incarnation
        number = found.crash_number = faults.arm(op, nth)

        def is_down() -> bool:
            found.poll()
            return found.state is NodeState.DOWN

        try:
            await _until(is_down, within_s)
        finally:
            faults.disarm()
        if not is_down():
            await self._taken_over(found, faults)
            found.poll()
        at = faults.crashed(number)
        told: Evidence = {"op": op, "nth": nth, "gone": at is not None, "at": at}
        return {**told, "incarnation": incarnation, "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}

    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """As `Runtime.fault_disk`. Evidence also: taken_over, whether the broker has it already."""
        found = self._node(node)
        faults = _hurt(found, "disk faults")
        faults.add(name, fault)
        taken_over = await self._taken_over(found, faults)
        told: Evidence = {"kind": type(fault).__name__, **asdict(fault)}
        return {"fault": told, "taken_over": taken_over, "began_ns": time.monotonic_ns()}

    async def heal_disk(self, name: str, node: int) -> Evidence:
        """As `Runtime.heal_disk`."""
        found = self._node(node)
        faults = _hurt(found, "disk faults")
        number = faults.remove(name)
        await self._taken_over(found, faults)
        return {"hits": 0 if number is None else faults.hits(number), "ended_ns": time.monotonic_ns()}

    async def rot(self, node: int, *, path_glob: str = "*.log", bits: int = 1) -> Evidence:
        """As `Runtime.rot`."""
        found = self._node(node)
        rng = Random(repr((self.seed, "rot", node, found.incarnation)))
        rotten = await trio.to_thread.run_sync(rot, found.data, path_glob, bits, rng)
        return {**rotten, "t_ns": time.monotonic_ns()}

    async def damage(self, node: int, how: How, *, size: int = 1000) -> Evidence:
        """As `Runtime.damage`. What was pending of that file is neither any more."""
        found = self._node(node)
        found.must_be(NodeState.DOWN)
        rng = Random(repr((self.seed, "damage", node, found.incarnation)))
        told, inode = await trio.to_thread.run_sync(damage, found.data, how, size, rng)
        if inode is not None and found.faults is not None:
            found.faults.forget(inode)
        return {**told, "t_ns": time.monotonic_ns()}

    def calls(self, node: int, op: CrashOp) -> int:
        """As `Counting.calls`."""
        return _hurt(self._node(node), f"count of its {op}s").calls(op)

    async def _heal_disks(self) -> None:
        for node in self._nodes.values():
            if node.faults is not None:
                node.faults.clear()
                await self._taken_over(node, node.faults)

    async def _taken_over(self, node: HurtNode, faults: NodeFaults) -> bool:
        """Until a running broker has what was ordered last. One that is paused or down will have it before it acts.

        HarnessError where it runs and does not take it over: then nothing is known of what it does.
        """

        def done() -> bool:
            node.poll()
            return node.state is not NodeState.RUNNING or faults.taken_over(node.incarnation)

        if not await _until(done, TAKEN_OVER_S):
            raise HarnessError(f"broker {node.id} did not take over {faults.folder}/control in {TAKEN_OVER_S:g} s")
        return faults.taken_over(node.incarnation)


def _hurt(node: HurtNode, what: str) -> NodeFaults:
    if node.faults is None:
        raise Refused(f"broker {node.id} was started without --faults: there is no {what} on it")
    return node.faults


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    with trio.move_on_after(timeout_s):
        while not condition():
            await trio.sleep(POLL_S)
        return True
    return condition()
