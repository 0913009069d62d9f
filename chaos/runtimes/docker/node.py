"""Represents one broker in a container: its folder, its container, and the acts that a run can do to it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import GONE, Evidence, NodeExit, NodeState
from squall.chaos.runtimes.docker.container import Container, ended_badly, exit_text, last_words, until
from squall.chaos.runtimes.docker.cpu_quota import CpuQuota
from squall.chaos.runtimes.docker.faketime import FILE, before_program
from squall.chaos.runtimes.docker.watch import ContainerWatch
from squall.chaos.runtimes.layout import Address, properties_text
from squall.chaos.runtimes.real.brokers import BrokerNode
from squall.chaos.runtimes.real.inquiry import probe
from squall.chaos.runtimes.real.node_faults import NodeFaults
from squall.chaos.runtimes.real.node_folder import NodeFolder
from squall.chaos.runtimes.real.trace_tail import TraceTail

BROKER = ("python", "-P", "-m", "squall.broker")
INSIDE = "/node"
"""Is the path of the node's folder in its container."""
SIGNAL_TIMEOUT_S = 10.0
PAUSE_PROBE_S = 0.1


class ContainerNode(BrokerNode):
    """Represents a broker by its folder on this machine and its container, which is kept over all its starts
    ("incarnations").

    The broker keeps all its files in this folder, which host and container share: settings, trace, printed output,
    clock offset, data, and fault commands for its disk.

    cpus: how many CPUs the broker may keep busy. owner: the broker's user id, if it is not the harness's. faulted: the
    broker runs with `squall.broker.faulted`, which carries out disk faults and power losses. second: the image that it
    can be upgraded to.
    """

    def __init__(
        self,
        node: int,
        files: NodeFolder,
        settings: Mapping[str, str],
        address: Address,
        watch: ContainerWatch,
        *,
        cpus: float = 1.0,
        owner: int | None = None,
        faulted: bool = False,
        second: str | None = None,
    ) -> None:
        self.id, self.files = node, files
        self.state = NodeState.DOWN
        self.exits: list[NodeExit] = []
        self._faults = NodeFaults(files.faults) if faulted else None
        self.crash_number = 0
        """Identifies the crash that the harness ordered last (`NodeFaults.arm`); 0 for none. An exit that this crash
        causes is not reported as the broker's own failure.
        """
        self.quota = CpuQuota(cpus)
        self._owner, self._second = owner, second
        self._settings = dict(settings)
        self._address = address
        self._watch = watch
        self._container: Container | None = None
        self._pid = 0
        self._tail: TraceTail | None = None

    @property
    @override
    def faults(self) -> NodeFaults | None:
        return self._faults

    @property
    def container(self) -> Container:
        """Return the node's container."""
        assert self._container is not None, f"broker {self.id} has no container"
        return self._container

    async def create(self, container: Container) -> None:
        """Create the node's container in the engine."""
        await container.create()
        self._container = container

    async def launch(self) -> Evidence:
        """Start the next incarnation; `wait_ready` waits for it. Evidence: pid, container, incarnation, asked_ns."""
        self.must_be(NodeState.DOWN)
        if self.faults is not None and self._tail is None:
            self.faults.clear()  # what an earlier run on this folder ordered
        incarnation = self.files.begin_incarnation()
        self.files.config.write_text(properties_text(self._all_settings(incarnation)))
        self._hand_over()
        self._tail = TraceTail(self.files.trace)
        asked_ns = time.monotonic_ns()
        self._pid = await self.container.start()
        self.state = NodeState.RUNNING
        await self.quota.begin(self.container)
        return {"pid": self._pid, "container": self.container.name, "incarnation": incarnation, "asked_ns": asked_ns}

    async def wait_ready(self, timeout_s: float) -> int:
        """Wait until this incarnation traces node_ready. Returns that moment in monotonic ns. Raises HarnessError if no
        such line comes.
        """
        tail, incarnation = self._tail, self.files.incarnation
        assert tail is not None, "a node that was launched has a trace"

        def ready() -> bool:
            return any(event["e"] == "node_ready" and event["i"] == incarnation for event in tail.events())

        came = await until(lambda: self.container.death is not None or ready(), timeout_s, self._watch)
        death = self.container.death
        if death is not None:
            self.poll()
            raise ended_badly(f"broker {self.id}", death, last_words(self.files.log))
        if not came:
            raise HarnessError(
                f"broker {self.id} is not ready after {timeout_s:g} s; it last said:\n{last_words(self.files.log)}"
            )
        return time.monotonic_ns()

    @override
    async def software(self) -> Evidence:
        self.must_be(NodeState.RUNNING)
        return {"runs": await self.container.image(), "by": "the engine: the image of its container"}

    @override
    async def upgrade(self) -> Evidence:
        """Make another container on the same folder, from the image of the second version."""
        self.must_be(NodeState.DOWN)
        if self._second is None:
            raise PreconditionError("there is no second image to upgrade to")
        before = await self.container.image()
        self._container = await self.container.made_of(self._second)
        # A new container has none of the limits that are on.
        if self.quota.shares:
            await self._container.set_cpus(min(self.quota.shares.values()))
        return {"from": before, "to": self._second}

    @override
    async def kill(self) -> Evidence:
        asked_ns = time.monotonic_ns()
        await self.send_kill()
        return await self.wait_gone(asked_ns)

    async def send_kill(self) -> None:
        """Send SIGKILL to the container, even if it is paused."""
        self.must_be(NodeState.RUNNING, NodeState.PAUSED)
        # Before the end, with which the kernel's counters are gone.
        await self.quota.end(self.container)
        if self.state is NodeState.PAUSED:
            # Some engines refuse to signal a frozen container; others let it run for a moment before it dies.
            await self._kill_frozen()
        else:
            await self.container.signal("SIGKILL")

    async def wait_gone(self, asked_ns: int) -> Evidence:
        """Wait until the SIGKILL that was sent at `asked_ns` has ended the container. Evidence: as `Runtime.kill`."""
        death = await self.container.died(SIGNAL_TIMEOUT_S)
        if death is None:
            raise HarnessError(f"broker {self.id} ({self.container.name}) survived SIGKILL for {SIGNAL_TIMEOUT_S:g} s")
        pid, state = self._pid, await self.container.state()
        self._down()
        times: Evidence = {"asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}
        gone = not state["Running"] and state["Pid"] == 0
        who: Evidence = {"pid": pid, "container": self.container.name, "engine": state["Status"]}
        return {**who, "gone": gone, "code": death.code, **times}

    async def _kill_frozen(self) -> None:
        await self.container.signal("SIGKILL")
        # The signal takes effect once the container runs again.
        if await self.container.died(0.2) is None and (await self.container.settled(frozen=True))["Paused"]:
            await self.container.unpause()

    @override
    async def stop(self, grace_s: float) -> Evidence:
        self.must_be(NodeState.RUNNING)
        await self.quota.end(self.container)
        tail = TraceTail(self.files.trace)
        asked_ns = time.monotonic_ns()
        await self.container.signal("SIGTERM")
        death = await self.container.died(grace_s)
        if death is None:
            return {**await self.kill(), "asked_ns": asked_ns, "controlled": False}
        pid = self._pid
        self._down()
        report = tail.shutdown_report(death.code)
        times: Evidence = {"asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}
        return {
            "pid": pid,
            "container": self.container.name,
            "code": death.code,
            "controlled": report.controlled,
            "alone": report.alone,
            "said": report.said,
            **times,
        }

    @override
    async def pause(self) -> Evidence:
        """Freeze all OS processes of the container. Evidence: as `Runtime.pause`; `engine` is the state that the engine
        reports.
        """
        self.must_be(NodeState.RUNNING)
        asked_ns = time.monotonic_ns()
        # Not by SIGSTOP, which would stop the container's init alone.
        state = await self.container.pause()
        paused_ns = time.monotonic_ns()
        if not state["Paused"]:
            raise HarnessError(f"broker {self.id} ({self.container.name}) was not paused: it is {state['Status']}")
        self.state = NodeState.PAUSED
        silence = await probe(*self._address, timeout_s=PAUSE_PROBE_S)
        told: Evidence = {"pid": self._pid, "container": self.container.name, "state": "T", "engine": state["Status"]}
        return {**told, "asked_ns": asked_ns, "paused_ns": paused_ns, "probe": silence.evidence()}

    @override
    async def resume(self) -> Evidence:
        self.must_be(NodeState.PAUSED)
        asked_ns = time.monotonic_ns()
        # Right after a pause the engine may not report it yet, and `found` would say that it did not last.
        state = await self.container.settled(frozen=True)
        found = "T" if state["Paused"] else "R"
        if found == "T":
            state = await self.container.unpause()
        if state["Paused"]:
            raise HarnessError(f"broker {self.id} ({self.container.name}) was not resumed")
        self.state = NodeState.RUNNING
        told: Evidence = {"pid": self._pid, "container": self.container.name, "found": found, "state": "R"}
        return {**told, "engine": state["Status"], "asked_ns": asked_ns, "resumed_ns": time.monotonic_ns()}

    @override
    async def activity(self) -> Evidence:
        """Measure the broker's activity: the engine reports the container's state, and the CPU time of its control
        group.
        """
        told: Evidence = {"node": self.id, "t_ns": time.monotonic_ns()}
        state = await self.container.state()
        if not state["Running"]:
            return {**told, "state": GONE}
        cpu_s, _ = await self.container.cpu()
        return {**told, "state": "T" if state["Paused"] else "R", "cpu_s": cpu_s}

    def poll(self) -> None:
        """Check whether the container has ended without an order of the harness, and record that."""
        if self._container is None or self.state is NodeState.DOWN or (death := self._container.death) is None:
            return
        words = last_words(self.files.log)
        if death.out_of_memory:
            words = f"{words}\n{exit_text(death)}".strip()
        if not (self.faults is not None and self.crash_number and self.faults.crashed(self.crash_number)):
            self.exits.append(NodeExit(self.id, self.files.incarnation, death.code, death.t_ns, words))
        self.crash_number = 0
        self._down()

    def _all_settings(self, incarnation: int) -> dict[str, str | Path]:
        return {
            **self._settings,
            "log.dirs": f"{INSIDE}/{self.files.data.name}",
            "squall.incarnation": str(incarnation),
            "squall.trace.path": f"{INSIDE}/{self.files.trace.name}",
            "squall.clock.offset.path": f"{INSIDE}/{self.files.clock.name}",
        }

    def _hand_over(self) -> None:
        """Make the broker's user the owner of all files in the node's folder, because the harness wrote some of them,
        for example after a power loss.
        """
        if self._owner is not None:
            for path in (self.files.path, *self.files.path.rglob("*")):
                os.chown(path, self._owner, self._owner, follow_symlinks=False)

    def _down(self) -> None:
        self.state = NodeState.DOWN
        self._pid = 0

    def must_be(self, *states: NodeState) -> None:
        """Raise HarnessError if the node is in none of these states."""
        self._watch.check()
        self.poll()
        if self.state not in states:
            raise HarnessError(f"broker {self.id} is {self.state}, not {' or '.join(states)}")


def command(program: Sequence[str], *, faulted: bool, fake_time: bool = False) -> list[str]:
    """Return the command of a broker's container: it runs `program` and appends the program's output to the broker's
    log. faulted: disk faults and power losses are possible. fake_time: the program runs behind libfaketime.
    """
    program = (*before_program(f"{INSIDE}/{FILE}"), *program) if fake_time else program
    # By `exec`, so that signals reach the program, and its exit code is that of the container.
    redirected = f'exec "$@" >>{INSIDE}/broker.log 2>&1'
    faults = ["--faults", f"{INSIDE}/faults"] if faulted else []
    return ["sh", "-c", redirected, "sh", *program, "--config", f"{INSIDE}/broker.properties", *faults]
