"""One broker of the process runtime: its files, its process, and what can be done to it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import trio

from chaos.errors import HarnessError, Refused
from chaos.runtimes.contract import Evidence, NodeExit, NodeState
from chaos.runtimes.layout import properties_text
from chaos.runtimes.real.inquiry import probe
from chaos.runtimes.real.node_folder import NodeFolder
from chaos.runtimes.real.orders import NodeFaults
from chaos.runtimes.real.proc import environment
from chaos.runtimes.real.processes.child import PACKAGES, Child, start, until
from chaos.runtimes.real.processes.ports import LOOPBACK
from chaos.runtimes.real.processes.registry import Registration
from chaos.runtimes.real.processes.throttle import Measured, Throttle
from chaos.runtimes.real.trace_tail import TraceTail
from chaos.toolchain.sources import digest_of

BROKER = (sys.executable, "-P", "-m", "broker")
SIGNAL_TIMEOUT_S = 5.0
PAUSE_PROBE_S = 0.1
LEAVING = ("node_stopping", "node_stopped")


class Words(Protocol):
    """What a broker says of itself, from the moment that this was made."""

    def ready(self, incarnation: int) -> Evidence | None:
        """None until it has said that this incarnation serves clients; then what else it said of itself."""

    def left(self, code: int) -> tuple[bool, list[str]]:
        """Of one that ended with `code` when it was asked to: whether the controller let it go, and what it said."""


class TraceWords:
    """Those of our broker: its trace."""

    def __init__(self, trace: Path) -> None:
        self._tail = TraceTail(trace)

    def ready(self, incarnation: int) -> Evidence | None:
        """As `Words.ready`."""
        came = any(event["e"] == "node_ready" and event["i"] == incarnation for event in self._tail.events())
        return {} if came else None

    def left(self, code: int) -> tuple[bool, list[str]]:
        """As `Words.left`. A broker whose controller did not answer in time stops too, and says so."""
        last = [event for event in self._tail.events() if event["e"] in LEAVING]
        let_go = bool(last) and last[-1]["e"] == "node_stopped" and last[-1].get("controlled", True)
        return code == 0 and let_go, [event["e"] for event in last]


class Node(NodeFolder):
    """A broker's place on disk and, while it runs, its process. Incarnations count the starts on this place.

    hurt: its files can lose power and fail, as `broker.faulted` has it. second: a folder with the package `broker`, the
    version that it can be upgraded to.
    """

    def __init__(
        self,
        node: int,
        folder: Path,
        settings: Mapping[str, str],
        *,
        registration: Registration,
        probe_port: int,
        program: tuple[str, ...] = BROKER,
        hurt: bool = False,
        second: Path | None = None,
    ) -> None:
        self.id = node
        self.folder = folder
        self.state = NodeState.DOWN
        self.exits: list[NodeExit] = []
        self.faults = NodeFaults(folder / "faults") if hurt else None
        self.crash_number = 0
        """The crash that was ordered last: it is no exit of the broker's own."""
        self.slowed: dict[str, float] = {}
        """Shares of a CPU that it gets at most, by the fault's name. They outlive restarts."""
        self._throttle: Throttle | None = None
        self._throttled = Measured()
        self._settings = dict(settings)
        self._registration = registration
        self._probe_port = probe_port
        self._program = program
        self._packages, self._second = PACKAGES, second
        self._child: Child | None = None
        self._words: Words | None = None
        self.came_up: Evidence = {}
        """What its latest incarnation said of itself when it was ready."""

    @property
    def config(self) -> Path:
        """The .properties file of the latest incarnation."""
        return self.folder / "broker.properties"

    @property
    def incarnation(self) -> int:
        """How often it was started; 0 where it never was."""
        try:
            return int((self.folder / "incarnation").read_text())
        except FileNotFoundError:
            return 0

    def launch(self) -> Evidence:
        """Start the next incarnation's process; `wait_ready` waits for it. Evidence: pid, incarnation, asked_ns."""
        self.must_be(NodeState.DOWN)
        self.data.mkdir(parents=True, exist_ok=True)
        if self.faults is not None and self._words is None:
            self.faults.clear()  # what an earlier run on this folder ordered
        incarnation = self.incarnation + 1
        (self.folder / "incarnation").write_text(f"{incarnation}\n")
        self.config.write_text(properties_text(self._all_settings(incarnation)))
        self._words = self._listen()
        asked_ns = time.monotonic_ns()
        self._child = start(
            f"broker {self.id}",
            self._command(),
            log=self.log,
            registration=self._registration,
            env={"PYTHONPATH": str(self._packages), "PYTHONUNBUFFERED": "1"},
        )
        self.state = NodeState.RUNNING
        if self.slowed:
            self.throttle()
        return {"pid": self._child.pid, "incarnation": incarnation, "asked_ns": asked_ns}

    async def wait_ready(self, timeout_s: float) -> int:
        """Until this incarnation says that it is ready. When that was seen, in monotonic ns. HarnessError otherwise."""
        child, words = self._running(), self._words
        assert words is not None, "a node that was launched is listened to"

        def ready() -> bool:
            said = words.ready(self.incarnation)
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

    async def software(self) -> Evidence:
        """As `Runtime.software`, but for what it speaks: whose files the kernel says that it was started with."""
        self.must_be(NodeState.RUNNING)
        folder = Path(environment(self._running().pid)["PYTHONPATH"])
        runs = await trio.to_thread.run_sync(digest_of, folder / "broker")
        return {"runs": runs, "by": "its process's PYTHONPATH: a digest of the files there", "folder": str(folder)}

    async def upgrade(self) -> Evidence:
        """As `Runtime.upgrade_node`."""
        self.must_be(NodeState.DOWN)
        if self._second is None:
            raise Refused("there is no second version to upgrade to")
        before, self._packages = self._packages, self._second
        return {"from": str(before), "to": str(self._packages)}

    async def kill(self) -> Evidence:
        """As `Runtime.kill`."""
        asked_ns = time.monotonic_ns()
        await self.strike()
        return await self.gone(asked_ns)

    async def strike(self) -> None:
        """Send the signal that ends it."""
        self.must_be(NodeState.RUNNING, NodeState.PAUSED)
        self._running().signal(signal.SIGKILL)

    async def gone(self, asked_ns: int) -> Evidence:
        """Until it has ended of that signal."""
        child = self._running()
        code = await child.ended(SIGNAL_TIMEOUT_S)
        if code is None:
            raise HarnessError(f"broker {self.id} (pid {child.pid}) survived SIGKILL for {SIGNAL_TIMEOUT_S:g} s")
        self._down()
        return {"pid": child.pid, "gone": True, "code": code, "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}

    async def stop(self, grace_s: float) -> Evidence:
        """As `Runtime.stop_node`."""
        self.must_be(NodeState.RUNNING)
        child, words = self._running(), self._listen()
        asked_ns = time.monotonic_ns()
        child.signal(signal.SIGTERM)
        code = await child.ended(grace_s)
        if code is None:
            return {**await self.kill(), "asked_ns": asked_ns, "controlled": False}
        self._down()
        controlled, said = words.left(code)
        ended: Evidence = {"asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}
        return {
            "pid": child.pid,
            "code": code,
            "controlled": controlled,
            "said": said,
            **ended,
        }

    async def pause(self) -> Evidence:
        """As `Runtime.pause`."""
        self.must_be(NodeState.RUNNING)
        child = self._running()
        asked_ns = time.monotonic_ns()
        if self._throttle is not None:
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

    async def resume(self) -> Evidence:
        """As `Runtime.resume`."""
        self.must_be(NodeState.PAUSED)
        child = self._running()
        asked_ns = time.monotonic_ns()
        child.signal(signal.SIGCONT)
        state = await child.in_state("RSDZX-", SIGNAL_TIMEOUT_S)
        self.state = NodeState.RUNNING
        if self._throttle is not None:
            self._throttle.release()
        return {"pid": child.pid, "state": state, "asked_ns": asked_ns, "resumed_ns": time.monotonic_ns()}

    def throttle(self) -> Measured:
        """Give it the least of the shares that `slowed` has, all of a CPU where it has none. May take 0.1 s.

        What was measured since there was none, where that has ended now.
        """
        if not self.slowed:
            self._unthrottle()
            measured, self._throttled = self._throttled, Measured()
            return measured
        share = min(self.slowed.values())
        if self._throttle is not None:
            self._throttle.share = share
        elif self.state is NodeState.RUNNING:
            self._throttle = Throttle(self._running().pid, share)
        return self._throttled

    def _unthrottle(self) -> None:
        if self._throttle is not None:
            if self.state is NodeState.PAUSED:
                self._throttle.release()
            self._throttled.add(self._throttle.end())
            self._throttle = None

    def set_clock(self, offset_ms: float, rate: float) -> None:
        """Write the clock's file by renaming, so that the broker never reads half of it."""
        fresh = self.clock.with_suffix(".new")
        fresh.write_text(f"{offset_ms:.3f} {rate:.6f}\n")
        fresh.replace(self.clock)

    def poll(self) -> None:
        """Notice a process that has ended on its own."""
        if self._child is None or self.state is NodeState.DOWN:
            return
        code = self._child.code
        if code is not None:
            words = self._child.last_words()
            if not (self.faults is not None and self.crash_number and self.faults.crashed(self.crash_number)):
                self.exits.append(NodeExit(self.id, self.incarnation, code, time.monotonic_ns(), words))
            self.crash_number = 0
            self._down()

    def _listen(self) -> Words:
        """From now on."""
        return TraceWords(self.trace)

    def _command(self) -> list[str]:
        """What is started."""
        faults = ["--faults", str(self.faults.folder)] if self.faults is not None else []
        return [*self._program, "--config", str(self.config), *faults]

    def _all_settings(self, incarnation: int) -> dict[str, str | Path]:
        return {
            **self._settings,
            "log.dirs": self.data,
            "squall.incarnation": str(incarnation),
            "squall.trace.path": self.trace,
            "squall.clock.offset.path": self.clock,
        }

    def _running(self) -> Child:
        assert self._child is not None, f"broker {self.id} has no process"
        return self._child

    def _down(self) -> None:
        self._unthrottle()
        self.state = NodeState.DOWN
        self._child = None

    def must_be(self, *states: NodeState) -> None:
        """HarnessError where it is in none of these states."""
        self.poll()
        if self.state not in states:
            raise HarnessError(f"broker {self.id} is {self.state}, not {' or '.join(states)}")
