"""Acts on one broker's container in a cluster that is not Squall's own, and restores it after the run."""

from __future__ import annotations

import time
from typing import Any

import trio

from squall.broker.protocol.errors import MalformedFrame
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import GONE, Evidence, NodeExit, NodeState
from squall.chaos.runtimes.layout import Address
from squall.chaos.runtimes.real import inquiry
from squall.chaos.runtimes.real.processes.registry import RunRegistration
from squall.chaos.toolchain.engine import DockerEngine

ASK_S = 5.0
READY_S = 120.0
SIGNAL_S = 10.0
POLL_S = 0.1
PAUSE_PROBE_S = 0.5
LAST_LINES = 20
STATES = {"running": NodeState.RUNNING, "paused": NodeState.PAUSED}
IN_GOOD_ORDER = (0, 143)
"""Lists the exit codes of a broker that shut down when asked: 0, or 143 (128 + SIGTERM)."""


class AttachedContainer:
    """Represents a broker's container in somebody else's cluster. `container`: its id in the engine. `advertised`: the
    address at which clients find the broker.

    Before a container is stopped or paused, its id is written to the run's file for `squall clean` (`RunRegistration`).
    So `squall clean` can restore the container after the harness was killed.
    """

    def __init__(
        self, node: int, engine: DockerEngine, container: str, advertised: Address, registration: RunRegistration
    ) -> None:
        self.id = node
        self.state = NodeState.RUNNING
        self.exits: list[NodeExit] = []
        self._engine, self._container, self._advertised = engine, container, advertised
        self._registration = registration
        self._name = f"broker {node}'s container {container[:12]}"

    async def poll(self) -> None:
        """Check whether the container has ended without an order of the harness, and record that."""
        if self.state is not NodeState.RUNNING or (seen := await self._seen())["Status"] != "exited":
            return
        self.state = NodeState.DOWN
        # The run did not end it, but restores it all the same: `heal` does, or `squall clean` after a killed harness.
        self._registration.hurt(self._container)
        words = await trio.to_thread.run_sync(self._engine.last_words, self._container, LAST_LINES)
        self.exits.append(NodeExit(self.id, 0, int(seen["ExitCode"]), time.monotonic_ns(), words))

    async def kill(self) -> Evidence:
        """Kill the container's processes. Evidence: as `Runtime.kill`."""
        await self._must_be(NodeState.RUNNING, NodeState.PAUSED)
        return await self._end("SIGKILL", SIGNAL_S)

    async def stop(self, grace_s: float) -> Evidence:
        """Stop the container. Only the exit code shows whether the stop was controlled. Evidence: as
        `Runtime.stop_node`.
        """
        await self._must_be(NodeState.RUNNING)
        ended = await self._end("SIGTERM", grace_s)
        return {**ended, "controlled": ended["code"] in IN_GOOD_ORDER, "said": ["exit code"]}

    async def _end(self, signal: str, within_s: float) -> Evidence:
        before = await self._seen()
        # Recorded before the signal: if the harness dies in between, `squall clean` still restores the container.
        self._registration.hurt(self._container)
        asked_ns = time.monotonic_ns()
        await trio.to_thread.run_sync(self._engine.kill, self._container, signal)
        after = before
        with trio.move_on_after(within_s):
            while (after := await self._seen())["Status"] != "exited":
                await trio.sleep(POLL_S)
        if after["Status"] != "exited":
            if signal == "SIGKILL":
                raise HarnessError(f"{self._name} survived {signal} for {within_s:g} s: it is {after['Status']}")
            return await self._end("SIGKILL", SIGNAL_S)
        self.state = NodeState.DOWN
        told: Evidence = {"pid": before["Pid"], "container": self._container[:12], "gone": True}
        return {**told, "code": after["ExitCode"], "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}

    async def start(self) -> Evidence:
        """Start the container and wait until the broker is ready: it answers at its advertised address and Metadata
        lists it again. Evidence: as `Runtime.start_node`.
        """
        asked_ns = time.monotonic_ns()
        await trio.to_thread.run_sync(self._engine.start, self._container)
        seen = await self._seen()
        with trio.move_on_after(READY_S):
            while not await self._is_back():
                seen = await self._seen()
                if seen["Status"] == "exited":
                    raise HarnessError(f"{self._name} ended with {seen['ExitCode']} after its start")
                await trio.sleep(POLL_S)
            self.state = NodeState.RUNNING
            self._registration.healed(self._container)
            told: Evidence = {"pid": seen["Pid"], "container": self._container[:12], "incarnation": None}
            return {**told, "seen_in": "Metadata", "asked_ns": asked_ns, "ready_ns": time.monotonic_ns()}
        host, port = self._advertised
        raise HarnessError(f"{self._name} is not back at {host}:{port} {READY_S:g} s after its start")

    async def _is_back(self) -> bool:
        with trio.move_on_after(ASK_S):
            try:
                return self.id in await inquiry.visible_brokers(*self._advertised)
            except (OSError, MalformedFrame):
                pass
        return False

    async def pause(self) -> Evidence:
        """Freeze the whole container, and check that the engine reports it as paused. Evidence: as `Runtime.pause`."""
        await self._must_be(NodeState.RUNNING)
        self._registration.hurt(self._container)
        asked_ns = time.monotonic_ns()
        await trio.to_thread.run_sync(self._engine.pause, self._container)
        seen = await self._seen()
        if seen["Status"] != "paused":
            raise HarnessError(f"{self._name} was not paused: it is {seen['Status']}")
        self.state = NodeState.PAUSED
        paused_ns = time.monotonic_ns()
        silence = await inquiry.probe(*self._advertised, timeout_s=PAUSE_PROBE_S)
        told: Evidence = {"pid": seen["Pid"], "container": self._container[:12], "state": "T", "engine": "paused"}
        return {**told, "asked_ns": asked_ns, "paused_ns": paused_ns, "probe": silence.evidence()}

    async def activity(self) -> Evidence:
        """Measure the broker's activity: the engine reports the container's state, and the CPU time of its control
        group. Evidence: as `Runtime.activity`.
        """
        told: Evidence = {"node": self.id, "t_ns": time.monotonic_ns()}
        status = (await self._seen())["Status"]
        if status not in STATES:
            return {**told, "state": GONE}
        cpu_s, _ = await trio.to_thread.run_sync(self._engine.cpu, self._container)
        return {**told, "state": "T" if status == "paused" else "R", "cpu_s": cpu_s}

    async def resume(self) -> Evidence:
        """Let the container continue. Evidence: as `Runtime.resume`."""
        asked_ns = time.monotonic_ns()
        found = "T" if (await self._seen())["Status"] == "paused" else "R"
        if found == "T":
            await trio.to_thread.run_sync(self._engine.unpause, self._container)
        seen = await self._seen()
        self.state = STATES.get(seen["Status"], NodeState.DOWN)
        if self.state is NodeState.RUNNING:
            self._registration.healed(self._container)
        told: Evidence = {"pid": seen["Pid"], "container": self._container[:12], "state": "R"}
        return {
            **told,
            "found": found,
            "engine": seen["Status"],
            "asked_ns": asked_ns,
            "resumed_ns": time.monotonic_ns(),
        }

    async def _must_be(self, *states: NodeState) -> None:
        await self.poll()
        if self.state not in states:
            raise HarnessError(f"{self._name} is {self.state.value}, not {' or '.join(states)}")

    async def _seen(self) -> dict[str, Any]:
        return await trio.to_thread.run_sync(self._engine.state, self._container)
