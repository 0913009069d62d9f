"""Simulated worlds in which a fault has no effect, or is undone too early or in between. No fault may count as
effective there. Each function here patches the simulator into such a world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.runtimes import damage
from squall.chaos.runtimes.contract import Cut, StreamDirection
from squall.chaos.runtimes.sim import disk, disk_faults
from squall.chaos.runtimes.sim.core import true_wall_ms
from squall.chaos.runtimes.sim.disk_names import DirectoryTree
from squall.chaos.runtimes.sim.env import SimClock, SimEnv
from squall.chaos.runtimes.sim.node import SimNode, _CrashPoint
from squall.chaos.runtimes.sim.slowness import CpuShareLimits
from squall.chaos.runtimes.sim.wires import SimLink, WireConnection
from squall.workloads.client import admin, topics
from squall.workloads.control import ClientHandle, LoadHandle, ZombieRun
from squall.workloads.groups.member_slot import MemberSlot, of_member
from squall.workloads.transactions.process import TransactionalProcess
from squall.workloads.transactions.writer import TransactionalWriter

Patch = pytest.MonkeyPatch


def nothing(*given: Any, **more: Any) -> None:
    """Accept a call, and do nothing."""


# ----------------------------------------------------------------------------------------------------------- of links


def blind_wires(patch: Patch) -> None:
    """Let links list their faults, and pass every byte as if there were none."""
    sort = SimLink._sort

    def without_faults(wire: SimLink) -> None:
        kept, wire._on = wire._on, {}
        sort(wire)
        wire._on = kept

    def opened(wire: SimLink, connection: WireConnection) -> None:
        wire.connections[connection.serial] = connection

    patch.setattr(SimLink, "_sort", without_faults)
    patch.setattr(SimLink, "_of", lambda wire, kind, stream: [])
    patch.setattr(SimLink, "opened", opened)
    patch.setattr(SimLink, "reset_all", lambda wire: len(wire.connections))


def wires_healed_soon(patch: Patch) -> None:
    """Remove every fault of a link after 50 ms. The link still lists it."""
    add = SimLink.add

    def for_a_moment(wire: SimLink, name: str, fault: Any) -> None:
        add(wire, name, fault)

        def off() -> None:
            kept = dict(wire._on)
            for each in kept:
                wire.remove(each)
            wire._on = kept

        wire.kernel.at(0.05, off)

    patch.setattr(SimLink, "add", for_a_moment)
    patch.setattr(SimLink, "_of", lambda wire, kind, stream: [])


def cut_in(stream: StreamDirection) -> Callable[[Patch], None]:
    """Return a patch that cuts this direction of a link, whichever direction a cut was to have."""

    def by(patch: Patch) -> None:
        add = SimLink.add

        def other(wire: SimLink, name: str, fault: Any) -> None:
            add(wire, name, replace(fault, stream=stream) if isinstance(fault, Cut) else fault)

        patch.setattr(SimLink, "add", other)

    return by


LASTS_S = 4.0
"""Duration of faults that are undone in between and put back before their end."""


def wires_healed_between(patch: Patch, since_s: float = 0.1, until_s: float = 3.3) -> None:
    """Remove every fault of a link soon, and put it back before its end."""
    add = SimLink.add

    def on_and_off(wire: SimLink, name: str, fault: Any) -> None:
        add(wire, name, fault)

        def off() -> None:
            kept = dict(wire._on)
            for each in kept:
                wire.remove(each)
            wire._on = kept

        wire.kernel.at(since_s, off)
        wire.kernel.at(until_s, wire._sort)

    patch.setattr(SimLink, "add", on_and_off)


# ----------------------------------------------------------------------------------------------------------- of nodes


def immortal(patch: Patch) -> None:
    """Ignore SIGKILL and power loss."""
    patch.setattr(SimNode, "die", lambda node, *, power=False: {})


def deaf(patch: Patch) -> None:
    """Ignore SIGTERM: the broker has to be killed after its grace period."""
    stop = SimNode.stop

    async def unheard(node: SimNode, grace_s: float) -> bool:
        node._stop = trio.Event()  # the broker waits for the one that it was started with
        return await stop(node, grace_s)

    patch.setattr(SimNode, "stop", unheard)


def never_paused(patch: Patch) -> None:
    """Ignore SIGSTOP."""
    patch.setattr(SimEnv, "pause", nothing)


def let_go_early(patch: Patch) -> None:
    """Send SIGCONT half a second after each SIGSTOP."""
    pause = SimNode.pause

    def for_a_moment(node: SimNode) -> None:
        pause(node)
        env = node.env
        assert env is not None
        node._world.kernel.at(0.5, env.resume)

    patch.setattr(SimNode, "pause", for_a_moment)


def let_go_between(patch: Patch, since_s: float = 0.4, until_s: float = 3.8) -> None:
    """Send SIGCONT soon after each SIGSTOP, and SIGSTOP again before the fault's end."""
    pause = SimNode.pause

    def on_and_off(node: SimNode) -> None:
        pause(node)
        assert node.env is not None
        node._world.kernel.at(since_s, node.env.resume)
        node._world.kernel.at(until_s, node.env.pause)

    patch.setattr(SimNode, "pause", on_and_off)


def let_go_for_a_moment(patch: Patch) -> None:
    """Send SIGCONT and SIGSTOP between two checks of the nemesis: only what the broker did meanwhile shows it."""
    let_go_between(patch, 3.4, 3.8)


def alive_between(patch: Patch) -> None:
    """Start the killed broker soon, and kill it again before the fault's end."""
    die = SimNode.die

    def reborn(node: SimNode, *, power: bool = False) -> Any:
        patch.setattr(SimNode, "die", die)
        told = die(node, power=power)
        node._world.kernel.at(0.2, node.launch)
        node._world.kernel.at(3.8, node.die)
        return told

    patch.setattr(SimNode, "die", reborn)


def clock_true_between(patch: Patch) -> None:
    """Correct the clock soon, and make it wrong again before the fault's end."""
    bend = SimNode.bend_clock

    def on_and_off(node: SimNode, offset_ms: float, rate: float) -> None:
        bend(node, offset_ms, rate)
        if (offset_ms, rate) != (0, 1.0):
            node._world.kernel.at(1.6, bend, node, 0, 1.0)
            node._world.kernel.at(2.2, bend, node, offset_ms, rate)

    patch.setattr(SimNode, "bend_clock", on_and_off)


def no_crash_point(patch: Patch) -> None:
    """Count the calls, but let the broker survive the one at which it should crash."""
    patch.setattr(SimNode, "crash_at", lambda node, op, nth: _CrashPoint(op, nth))


def unlimited_cpu(patch: Patch) -> None:
    """Store the limit of the CPU share, and do not apply it."""
    patch.setattr(CpuShareLimits, "_hold", nothing)


def freed_quota(patch: Patch) -> None:
    """Lift the limit of the CPU share after the first 0.1 s."""
    patch.setattr(CpuShareLimits, "_let_go", CpuShareLimits._go_on)


def steady_clock(patch: Patch) -> None:
    """Accept changes of the clock, and keep showing the true time."""
    patch.setattr(SimClock, "wall_ms", lambda clock: int(true_wall_ms(clock._kernel.now)))


# ----------------------------------------------------------------------------------------------------------- of disks


def whole_disk(patch: Patch) -> None:
    """Let every call on the disk succeed at once."""
    patch.setattr(disk_faults.DiskFaults, "synced", nothing)
    patch.setattr(disk_faults.DiskFaults, "written", nothing)
    patch.setattr(disk_faults.DiskFaults, "delay_s", lambda faults, op: 0.0)


class Unchanging(bytearray):
    """Bytes that accept changes and keep their value."""

    def __setitem__(self, *change: Any) -> None:
        pass


def bits_that_stay(patch: Patch) -> None:
    """Let bit flips change nothing."""
    closed = disk_faults._closed

    def kept(names: DirectoryTree) -> Any:
        found = closed(names)
        for _, node in found:
            node.content.cached = Unchanging(node.content.cached)
        return found

    patch.setattr(disk_faults, "_closed", kept)


def files_that_stay(patch: Patch) -> None:
    """Let removals and truncations of files change nothing."""
    original = damage.drawn

    def uncut(files: Mapping[str, int], *how: Any) -> Any:
        chosen = original(files, *how)
        return chosen and (chosen if chosen.size is None else replace(chosen, size=files[chosen.path]))

    patch.setattr(disk, "drawn", uncut)
    patch.setattr(DirectoryTree, "remove", nothing)


# --------------------------------------------------------------------------------------------- of requests and clients


def deaf_controller(patch: Patch) -> None:
    """Let the controller accept elections, reassignments and its resignation, and carry out none."""

    async def accepted(client: Any, places: Any, **more: Any) -> dict[Any, str]:
        return dict.fromkeys(places, "")

    async def unmoved(client: Any) -> admin.QuorumDescription:
        """Return the quorum without a resignation of its leader."""
        return await admin.describe_quorum(client)

    patch.setattr(admin, "elect_leaders", accepted)
    patch.setattr(admin, "alter_partition_reassignments", accepted)
    patch.setattr(admin, "unseat_controller", unmoved)


def deaf_to_topics(patch: Patch) -> None:
    """Accept changes of topics, and make none."""
    create_topics = admin.create_topics

    async def not_made(client: Any, asked: Any, *more: Any) -> dict[str, str]:
        of_the_fault = asked[0].name.startswith("passing")
        return await (each_accepted if of_the_fault else create_topics)(client, asked, *more)

    async def accepted(*given: Any, **more: Any) -> str:
        return ""

    async def each_accepted(client: Any, asked: Any, *more: Any) -> dict[str, str]:
        return {getattr(each, "name", each): "" for each in asked}

    async def not_deleted(*given: Any, **more: Any) -> tuple[str, int]:
        return "", 0

    patch.setattr(admin, "create_topics", not_made)
    patch.setattr(topics, "add_partitions", accepted)
    patch.setattr(topics, "alter_topics", each_accepted)
    patch.setattr(topics, "delete_records", not_deleted)


def immortal_client(patch: Patch) -> None:
    """Let the client's process continue after its crash."""
    patch.setattr(ClientHandle, "crash", lambda handle, who: handle.processes[-1])


def immortal_load(patch: Patch) -> None:
    """Let the processes of a load continue after they were killed."""
    dies = LoadHandle.dies

    def lives(*given: Any) -> bool:
        return dies(*given) and False

    patch.setattr(LoadHandle, "dies", lives)


def restless_client(patch: Patch) -> None:
    """Let the client continue although it is paused."""
    patch.setattr(ClientHandle, "hold", nothing)


def restless_zombie(patch: Patch) -> None:
    """Let a zombie continue at once, before a successor can take over its transactional id."""

    async def goes_on(handle: ClientHandle, zombie_run: ZombieRun, process: int, end: trio.Event) -> None:
        zombie_run.zombie = process

    patch.setattr(ClientHandle, "until_woken", goes_on)


def sleeping_zombie(patch: Patch) -> None:
    """Let a zombie sleep until the load is over."""
    patch.setattr(ClientHandle, "wake", nothing)


def childless_zombie(patch: Patch) -> None:
    """Start a zombie's successor only after the zombie's end."""

    async def alone(writer: Any, zombie_run: ZombieRun, task_status: trio.TaskStatus[None]) -> None:
        await writer._run_until_crash(zombie_run)
        zombie_run.over = True
        task_status.started()

    patch.setattr(TransactionalWriter, "_run_zombie_process", alone)


def lazy_successor(patch: Patch) -> None:
    """Let a zombie's successor take over the transactional id, and then do nothing."""

    async def lives(writer: Any, one: TransactionalProcess) -> None:
        await writer._handle.until_released(writer._stop)
        while not writer._stop.is_set() and writer._handle.pending_zombie is None:
            await writer._stopped.wait(1.0)

    patch.setattr(TransactionalWriter, "_go_on", lives)


def polite_member(patch: Patch) -> None:
    """Let a member leave its group instead of crashing, so that its session need not expire."""
    asked: dict[ClientHandle, trio.Event] = {}
    sound = MemberSlot._live

    async def lives(seat: Any, subscriber: Any, twins: trio.Nursery, process: int) -> None:
        told = asked[seat._handle] = trio.Event()
        async with trio.open_nursery() as nursery:

            async def leaves() -> None:
                await told.wait()
                await subscriber.leave()
                nursery.cancel_scope.cancel()

            nursery.start_soon(leaves)
            await sound(seat, subscriber, twins, process)
            nursery.cancel_scope.cancel()

    def told(handle: ClientHandle, who: int) -> int:
        asked[handle].set()
        return handle.processes[-1]

    patch.setattr(MemberSlot, "_live", lives)
    patch.setattr(ClientHandle, "crash", told)


def no_twin(patch: Patch) -> None:
    """Start no second process with the member's instance id."""
    patch.setattr(ClientHandle, "begin_duplicate", nothing)


def twin_of_another_name(patch: Patch) -> None:
    """Start the second process without the instance id, as a further member."""
    sound = MemberSlot._subscriber

    def nameless(seat: Any, settings: Any) -> Any:
        known = seat._handle.group_identity
        if known().member_id and seat._handle.alive:
            settings = of_member(settings, "")
        return sound(seat, settings)

    patch.setattr(MemberSlot, "_subscriber", nameless)


def same_version(patch: Patch) -> None:
    """Do nothing here: a switch of the world of unit tests does it."""
