"""Represents the brokers of a real cluster: the acts that each broker can do, and acts of all brokers together."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Protocol, TypeVar

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Evidence, NodeExit, NodeState
from squall.chaos.runtimes.real.node_faults import NodeFaults
from squall.chaos.runtimes.real.node_folder import NodeFolder

STOP_GRACE_S = 25.0


class BrokerNode(Protocol):
    """Represents one broker: its files and, while it runs, its OS process or container."""

    id: int
    files: NodeFolder
    exits: list[NodeExit]
    state: NodeState
    """Is the broker's state when it was last changed or checked."""
    crash_number: int
    """Is the number of the crash that the harness ordered last; 0 for none. An exit that this crash causes is not
    reported as the broker's own failure.
    """

    @property
    def faults(self) -> NodeFaults | None:
        """Returns the object that sends disk fault commands to the broker. None if the broker was started without
        `--faults`.
        """

    def poll(self) -> None:
        """Check whether the broker has ended without an order of the harness, and record that."""

    def must_be(self, *states: NodeState) -> None:
        """Raise HarnessError if the broker is in none of these states."""

    async def kill(self) -> Evidence:
        """Kill a running or paused broker (SIGKILL), and wait until it has ended. Evidence: pid, gone (whether it has
        ended), code (the exit code), asked_ns, ended_ns.
        """

    async def send_kill(self) -> None:
        """Send SIGKILL to the broker, even if it is paused."""

    async def wait_gone(self, asked_ns: int) -> Evidence:
        """Wait until the SIGKILL that was sent at `asked_ns` has ended the broker. Evidence: pid, gone (whether it has
        ended), code (the exit code), asked_ns, ended_ns.
        """

    async def stop(self, grace_s: float) -> Evidence:
        """Shut down a running broker (SIGTERM), and kill it after `grace_s` seconds. Evidence: pid, code (the exit
        code), asked_ns, ended_ns, controlled (the controller permitted the shutdown). If no SIGKILL was needed, also
        alone (no controller answered) and said (the events of the shutdown in the broker's trace or log).
        """

    async def software(self) -> Evidence:
        """Identify the broker's software. Evidence: runs (an image's id, a program's digest, or a version), by (the
        source of `runs`).
        """

    async def upgrade(self) -> Evidence:
        """Prepare a broker that is down: from its next start on, it runs the second of the run's two software versions.
        Evidence: from, to (the two versions). Raise PreconditionError if the run has no second version.
        """

    async def pause(self) -> Evidence:
        """Stop a running broker where it is (SIGSTOP). Evidence: pid, state ("T" for stopped), asked_ns, paused_ns,
        probe (the result of a probe of the broker's port, which must not answer).
        """

    async def resume(self) -> Evidence:
        """Let a paused broker continue. Evidence: pid, found and state (the kernel's state letter before and after, "T"
        for stopped), asked_ns, resumed_ns.
        """

    async def activity(self) -> Evidence:
        """Measure the CPU time that the broker has used so far: a stopped broker uses none. Evidence: node, t_ns, state
        ("T" if stopped, "-" if there is no OS process), cpu_s (CPU seconds of all threads, if there is a process).
        """


Brokers = Mapping[int, BrokerNode]
N = TypeVar("N", bound=BrokerNode)


class Nodes(dict[int, N]):
    """Maps ids to brokers. Raises HarnessError for an unknown id."""

    def __missing__(self, node: int) -> N:
        raise HarnessError(f"there is no node {node}")


def state_of(broker: BrokerNode) -> NodeState:
    """Return the broker's state, after checking whether it has ended."""
    broker.poll()
    return broker.state


def exits_of(brokers: Brokers) -> tuple[NodeExit, ...]:
    """Return the exits of brokers that ended without an order of the harness, by time."""
    for each in brokers.values():
        each.poll()
    return tuple(sorted((gone for each in brokers.values() for gone in each.exits), key=lambda gone: gone.t_ns))


async def shut_down_all(brokers: Brokers) -> None:
    """Shut the brokers down together; a paused broker is resumed first. A broker whose shutdown fails is left as it is.
    """

    async def one(broker: BrokerNode) -> None:
        with contextlib.suppress(HarnessError):
            if state_of(broker) is NodeState.PAUSED:
                await broker.resume()
            if state_of(broker) is NodeState.RUNNING:
                await broker.stop(STOP_GRACE_S)

    async with trio.open_nursery() as nursery:
        for each in brokers.values():
            nursery.start_soon(one, each)
