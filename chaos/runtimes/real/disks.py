"""Sends commands for disk faults and power losses to real brokers. `squall.broker.faulted` carries them out inside the
brokers' own OS processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from random import Random

import trio

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import CrashOp, DiskFault, Evidence, NodeState
from squall.chaos.runtimes.damage import How, Where, damage
from squall.chaos.runtimes.real.bit_rot import rot
from squall.chaos.runtimes.real.brokers import BrokerNode, Brokers
from squall.chaos.runtimes.real.node_faults import NodeFaults

TAKEN_OVER_S = 2.0
POLL_S = 0.005


class Disks:
    """Acts on the disks of a cluster's brokers. Its methods raise PreconditionError if the brokers were not started
    with `--faults`.
    """

    def __init__(self, brokers: Brokers, seed: int) -> None:
        self._brokers, self._seed = brokers, seed

    async def lose_power(self, nodes: Sequence[int]) -> Evidence:
        """Let nodes lose power at the same moment. Evidence: asked_ns, ended_ns, nodes (by id: counts of what each node
        lost, such as bytes_lost, and through_bytes, the unsynced bytes that count as written back by the kernel because
        too many were pending).

        Peers notice the power loss at once, because connections are closed. Unsynced bytes are removed from the files
        once the OS processes have ended.
        """
        found = [self._brokers[node] for node in nodes]
        hurt = {node.id: _hurt(node, "power loss") for node in found}
        asked_ns = time.monotonic_ns()
        async with trio.open_nursery() as nursery:
            for node in found:
                nursery.start_soon(node.send_kill)
        for node in found:
            await node.wait_gone(asked_ns)
        ended_ns = time.monotonic_ns()
        lost: dict[str, Evidence] = {}
        for node in found:
            faults, rng = hurt[node.id], Random(repr((self._seed, "power loss", node.id, node.files.incarnation)))
            if not faults.ran(node.files.incarnation):
                raise HarnessError(f"broker {node.id} did not run on files that can lose power")
            lost[str(node.id)] = await trio.to_thread.run_sync(faults.lose_power, [node.files.data], rng)
        return {"nodes": lost, "asked_ns": asked_ns, "ended_ns": ended_ns}

    async def crash_at(self, node: int, op: CrashOp, nth: int, within_s: float) -> Evidence:
        """Kill a broker just before its `nth` call of `op` from now on (from 1). If that call does not come within
        `within_s`, the kill is cancelled. Evidence: op, nth, gone (whether it was killed), at (the path or peer of that
        call; None if it was not killed), incarnation, asked_ns, ended_ns.
        """
        found = self._brokers[node]
        faults = _hurt(found, "crash points")
        found.must_be(NodeState.RUNNING)
        asked_ns, incarnation = time.monotonic_ns(), found.files.incarnation
        number = found.crash_number = faults.arm(op, nth)

        def is_down() -> bool:
            found.poll()
            return found.state is NodeState.DOWN

        try:
            await _until(is_down, within_s)
        finally:
            faults.disarm()
        # Until the broker confirms that the crash is called off, it may still crash.
        if not is_down():
            await self._taken_over(found, faults)
            found.poll()
        at = faults.crashed(number)
        told: Evidence = {"op": op, "nth": nth, "gone": at is not None, "at": at}
        return {**told, "incarnation": incarnation, "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}

    async def fault(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """Put a fault on a broker's disk. Evidence: fault (its kind and parameters), taken_over (whether the running
        broker has confirmed the fault), began_ns.
        """
        found = self._brokers[node]
        faults = _hurt(found, "disk faults")
        faults.add(name, fault)
        taken_over = await self._taken_over(found, faults)
        told: Evidence = {"kind": type(fault).__name__, **asdict(fault)}
        return {"fault": told, "taken_over": taken_over, "began_ns": time.monotonic_ns()}

    async def heal(self, name: str, node: int) -> Evidence:
        """Remove the fault of this name from a broker's disk. Evidence: hits (how many calls it failed or slowed),
        ended_ns.
        """
        found = self._brokers[node]
        faults = _hurt(found, "disk faults")
        number = faults.remove(name)
        await self._taken_over(found, faults)
        return {"hits": 0 if number is None else faults.hits(number), "ended_ns": time.monotonic_ns()}

    async def rot(self, node: int, path_glob: str, bits: int, where: Where) -> Evidence:
        """Flip `bits` bits of a closed segment or index: a file that the broker no longer writes to. path_glob: the
        files to choose from. where: "checked" for bits that a checksum covers, "epoch" for bits of leader epochs.
        Evidence: path (None: no such file), bits (how many were flipped), offset (the first flipped bit's byte),
        offsets (every flipped bit's byte), before and after (SHA-256 of the file), t_ns.
        """
        found = self._brokers[node]
        rng = Random(repr((self._seed, "rot", node, found.files.incarnation)))
        rotten = await trio.to_thread.run_sync(rot, found.files.data, path_glob, bits, where, rng)
        return {**rotten, "t_ns": time.monotonic_ns()}

    async def damage(self, node: int, how: How, size: int) -> Evidence:
        """Damage the disk of a broker that is down. how: "tail" cuts the last `size` bytes of a partition's newest
        segment; "file" removes a file that the broker no longer writes to, such as an older segment. The damaged file
        then counts as durable: a later power loss removes nothing from it. Evidence: path (None: no such file), bytes
        and bytes_left (the file's size before and after), before and after (SHA-256 of the file), t_ns.
        """
        found = self._brokers[node]
        found.must_be(NodeState.DOWN)
        rng = Random(repr((self._seed, "damage", node, found.files.incarnation)))
        told, inode = await trio.to_thread.run_sync(damage, found.files.data, how, size, rng)
        if inode is not None and found.faults is not None:
            found.faults.forget(inode)
        return {**told, "t_ns": time.monotonic_ns()}

    def calls(self, node: int, op: CrashOp) -> int:
        """Return how many calls of `op` the broker has made, over all its incarnations."""
        return _hurt(self._brokers[node], f"count of its {op}s").calls(op)

    async def heal_all(self) -> None:
        """Remove every fault from every disk."""
        for node in self._brokers.values():
            if node.faults is not None:
                node.faults.clear()
                await self._taken_over(node, node.faults)

    async def _taken_over(self, node: BrokerNode, faults: NodeFaults) -> bool:
        """Wait until a running broker confirms the latest fault command. Returns whether it is confirmed. A broker that
        is down does not confirm it, but applies the command when it starts. A paused broker applies it soon after it is
        resumed.

        Raises HarnessError if a running broker does not apply the command: then the state of its disk is unknown.
        """

        def done() -> bool:
            node.poll()
            return node.state is not NodeState.RUNNING or faults.taken_over(node.files.incarnation)

        if not await _until(done, TAKEN_OVER_S):
            raise HarnessError(f"broker {node.id} did not take over {faults.folder}/control in {TAKEN_OVER_S:g} s")
        return faults.taken_over(node.files.incarnation)


def _hurt(node: BrokerNode, what: str) -> NodeFaults:
    if node.faults is None:
        raise PreconditionError(f"broker {node.id} was started without --faults: there is no {what} on it")
    return node.faults


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    with trio.move_on_after(timeout_s):
        while not condition():
            await trio.sleep(POLL_S)
        return True
    return condition()
