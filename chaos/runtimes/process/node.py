"""Represents one broker of the process runtime: its files, its OS process, and the acts that a run can do to it."""

from __future__ import annotations

import signal
import time

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import GONE, Evidence, NodeExit, NodeState
from squall.chaos.runtimes.process.program import BrokerProgram, BrokerReports
from squall.chaos.runtimes.real.brokers import BrokerNode
from squall.chaos.runtimes.real.inquiry import probe
from squall.chaos.runtimes.real.node_faults import NodeFaults
from squall.chaos.runtimes.real.node_folder import NodeFolder
from squall.chaos.runtimes.real.proc import run_state
from squall.chaos.runtimes.real.processes.child import ChildProcess, start, until
from squall.chaos.runtimes.real.processes.ports import LOOPBACK
from squall.chaos.runtimes.real.processes.registry import RunRegistration
from squall.chaos.runtimes.real.processes.throttle import Throttle, ThrottleUsage, cpu_seconds

SIGNAL_TIMEOUT_S = 5.0
PAUSE_PROBE_S = 0.1


class ProcessNode(BrokerNode):
    """Represents a broker by its folder and, while it runs, its OS process. Each start in this folder is one
    incarnation.
    """

    def __init__(
        self, node: int, files: NodeFolder, program: BrokerProgram, *, registration: RunRegistration, probe_port: int
    ) -> None:
        self.id, self.files, self.program = node, files, program
        self.state = NodeState.DOWN
        self.exits: list[NodeExit] = []
        self.crash_number = 0
        """Is the number of the crash that the harness ordered last; 0 for none. An exit that this crash causes is not
        reported as the broker's own failure.
        """
        self.slowed: dict[str, float] = {}
        """Maps a fault's name to the largest share of a CPU that the broker may use. The limits outlive restarts."""
        self.came_up: Evidence = {}
        """Holds what the latest incarnation reported about itself when it became ready (`BrokerReports.ready`)."""
        self._throttle: Throttle | None = None
        self._throttled = ThrottleUsage()
        self._registration, self._probe_port = registration, probe_port
        self._child: ChildProcess | None = None
        self._words: BrokerReports | None = None

    @property
    @override
    def faults(self) -> NodeFaults | None:
        return self.program.faults

    def launch(self) -> Evidence:
        """Start the OS process of the next incarnation, and do not wait until it is ready: `wait_ready` does. Evidence:
        pid, incarnation (its number), asked_ns (the monotonic time just before the start).
        """
        self.must_be(NodeState.DOWN)
        if self.faults is not None and self._words is None:
            self.faults.clear()  # what an earlier run on this folder ordered
        incarnation = self.files.begin_incarnation()
        self.program.configure(incarnation)
        # Before the process starts, so that all lines from here on are its own.
        self._words = self.program.reports()
        asked_ns = time.monotonic_ns()
        self._child = start(
            f"broker {self.id}",
            self.program.command(),
            log=self.files.log,
            registration=self._registration,
            env=self.program.environment(),
        )
        self.state = NodeState.RUNNING
        if self.slowed:
            self.throttle()
        return {"pid": self._child.pid, "incarnation": incarnation, "asked_ns": asked_ns}

    async def wait_ready(self, timeout_s: float) -> int:
        """Wait until this incarnation reports that it serves clients. Returns that moment in monotonic ns. Raises
        HarnessError if it does not report.
        """
        child, words = self._running(), self._words
        assert words is not None, "a node that was launched is listened to"

        def ready() -> bool:
            said = words.ready(self.files.incarnation)
            if said is not None:
                self.came_up = said
            return said is not None

        came = await until(lambda: child.code is not None or ready(), timeout_s)
        if child.code is not None:
            code, last = child.code, child.last_words()
            self.poll()
            raise HarnessError(f"broker {self.id} ended with {code} before it was ready:\n{last}")
        if not came:
            raise HarnessError(
                f"broker {self.id} is not ready after {timeout_s:g} s; it last said:\n{child.last_words()}"
            )
        return time.monotonic_ns()

    @override
    async def software(self) -> Evidence:
        self.must_be(NodeState.RUNNING)
        return await self.program.software(self._running().pid, self.came_up)

    @override
    async def upgrade(self) -> Evidence:
        self.must_be(NodeState.DOWN)
        return self.program.upgrade()

    @override
    async def kill(self) -> Evidence:
        asked_ns = time.monotonic_ns()
        await self.send_kill()
        return await self.wait_gone(asked_ns)

    async def send_kill(self) -> None:
        """Send SIGKILL to the process, even if it is paused."""
        self.must_be(NodeState.RUNNING, NodeState.PAUSED)
        self._running().signal(signal.SIGKILL)

    async def wait_gone(self, asked_ns: int) -> Evidence:
        """Wait until the SIGKILL that was sent at `asked_ns` has ended the process. Evidence: pid, gone (True), code
        (the exit code), asked_ns, ended_ns. Raises HarnessError if the process does not end.
        """
        child = self._running()
        code = await child.ended(SIGNAL_TIMEOUT_S)
        if code is None:
            raise HarnessError(f"broker {self.id} (pid {child.pid}) survived SIGKILL for {SIGNAL_TIMEOUT_S:g} s")
        self._down()
        return {"pid": child.pid, "gone": True, "code": code, "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}

    @override
    async def stop(self, grace_s: float) -> Evidence:
        self.must_be(NodeState.RUNNING)
        # New reports, which begin with the shutdown.
        child, words = self._running(), self.program.reports()
        asked_ns = time.monotonic_ns()
        child.signal(signal.SIGTERM)
        code = await child.ended(grace_s)
        if code is None:
            return {**await self.kill(), "asked_ns": asked_ns, "controlled": False}
        self._down()
        report = words.shutdown_report(code)
        ended: Evidence = {"asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}
        return {
            "pid": child.pid,
            "code": code,
            "controlled": report.controlled,
            "alone": report.alone,
            "said": report.said,
            **ended,
        }

    @override
    async def pause(self) -> Evidence:
        self.must_be(NodeState.RUNNING)
        child = self._running()
        asked_ns = time.monotonic_ns()
        if self._throttle is not None:
            # Otherwise the throttle's next SIGCONT would end the pause.
            await trio.to_thread.run_sync(self._throttle.hold)
        child.signal(signal.SIGSTOP)
        state = await child.in_state("TtZ-", SIGNAL_TIMEOUT_S)
        paused_ns = time.monotonic_ns()
        if state is None or state not in "Tt":
            raise HarnessError(f"broker {self.id} (pid {child.pid}) did not stop on SIGSTOP: its state is {state}")
        self.state = NodeState.PAUSED
        silence = await probe(LOOPBACK, self._probe_port, timeout_s=PAUSE_PROBE_S)
        times: Evidence = {"asked_ns": asked_ns, "paused_ns": paused_ns}
        return {"pid": child.pid, "state": state, **times, "probe": silence.evidence()}

    @override
    async def resume(self) -> Evidence:
        self.must_be(NodeState.PAUSED)
        child = self._running()
        asked_ns, found = time.monotonic_ns(), run_state(child.pid)
        child.signal(signal.SIGCONT)
        state = await child.in_state("RSDZX-", SIGNAL_TIMEOUT_S)
        self.state = NodeState.RUNNING
        if self._throttle is not None:
            self._throttle.release()
        times: Evidence = {"asked_ns": asked_ns, "resumed_ns": time.monotonic_ns()}
        return {"pid": child.pid, "found": found, "state": state, **times}

    @override
    async def activity(self) -> Evidence:
        """Measure the process's state and CPU time, from /proc/PID/stat. Evidence: node, t_ns, state (the kernel's
        letter, "T" for stopped), cpu_s (CPU seconds of all threads). If the broker has no known OS process, there is no
        cpu_s, and `state` is "R" if the broker's port answers nevertheless, otherwise "-".
        """
        self.poll()
        told: Evidence = {"node": self.id, "t_ns": time.monotonic_ns()}
        if self._child is None:
            answer = await probe(LOOPBACK, self._probe_port, timeout_s=PAUSE_PROBE_S)
            return {**told, "state": "R" if answer.ok else GONE}
        await trio.lowlevel.checkpoint()
        return {**told, "state": run_state(self._child.pid), "cpu_s": cpu_seconds(self._child.pid)}

    def throttle(self) -> ThrottleUsage:
        """Limit the process to the smallest share in `slowed`, or lift the limit if `slowed` is empty. May block for
        0.1 s.

        Returns the usage measured since the broker was first limited, over all its OS processes. The usage of the
        process that runs now is included only once the limit is lifted. After that, a new limit begins a new
        measurement.
        """
        if not self.slowed:
            self._unthrottle()
            measured, self._throttled = self._throttled, ThrottleUsage()
            return measured
        share = min(self.slowed.values())
        if self._throttle is not None:
            self._throttle.share = share
        elif self.state is NodeState.RUNNING:
            self._throttle = Throttle(self._running().pid, share)
        return self._throttled

    def _unthrottle(self) -> None:
        if self._throttle is not None:
            # `pause` holds the throttle, whose thread could not end otherwise.
            if self.state is NodeState.PAUSED:
                self._throttle.release()
            self._throttled.add(self._throttle.end())
            self._throttle = None

    def poll(self) -> None:
        """Check whether the OS process has ended without an order of the harness, and record that."""
        if self._child is None or self.state is NodeState.DOWN:
            return
        code = self._child.code
        if code is not None:
            words = self._child.last_words()
            if not (self.faults is not None and self.crash_number and self.faults.crashed(self.crash_number)):
                self.exits.append(NodeExit(self.id, self.files.incarnation, code, time.monotonic_ns(), words))
            self.crash_number = 0
            self._down()

    def _running(self) -> ChildProcess:
        assert self._child is not None, f"broker {self.id} has no process"
        return self._child

    def _down(self) -> None:
        self._unthrottle()
        self.state = NodeState.DOWN
        self._child = None

    def must_be(self, *states: NodeState) -> None:
        """Raise HarnessError if the node is in none of these states."""
        self.poll()
        if self.state not in states:
            raise HarnessError(f"broker {self.id} is {self.state}, not {' or '.join(states)}")
