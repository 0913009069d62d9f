"""Three real brokers as processes on loopback, for one test."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.chaos.runtimes.real.processes.ports import free_ports
from squall.chaos.runtimes.real.processes.registry import claimed_ports
from tests.support.patience import scaled_ms

ROOT = Path(__file__).parents[3]
NODES = (1, 2, 3)


class Brokers:
    """Kills and starts nodes by id. Their ports do not change."""

    def __init__(self, folder: Path, *, session_timeout_ms: int = 3000) -> None:
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * len(NODES), claimed_ports(), random.SystemRandom())
        internal = dict(zip(NODES, ports[: len(NODES)], strict=True))
        client = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self.bootstrap = [("127.0.0.1", client[node]) for node in NODES]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in internal.items())
        for node in NODES:
            listeners = f"INTERNAL://127.0.0.1:{internal[node]},CLIENT://127.0.0.1:{client[node]}"
            settings = {
                "node.id": node,
                "process.roles": "broker,controller",
                "controller.quorum.voters": voters,
                "controller.listener.names": "INTERNAL",
                "inter.broker.listener.name": "INTERNAL",
                "listeners": listeners,
                "advertised.listeners": listeners,
                "log.dirs": self._home(node) / "data",
                "broker.session.timeout.ms": scaled_ms(session_timeout_ms),
                "broker.heartbeat.interval.ms": scaled_ms(500),
                "squall.trace.path": self._home(node) / "trace.jsonl",
            }
            (self._home(node) / "data").mkdir(parents=True)
            lines = [f"{name}={value}\n" for name, value in settings.items()]
            self._properties(node).write_text("".join(lines))

    def start(self, *nodes: int) -> None:
        for node in nodes:
            command = [sys.executable, "-m", "squall.broker", "--config", str(self._properties(node))]
            with (self._home(node) / "output").open("ab") as output:
                self._processes[node] = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    def kill(self, node: int) -> None:
        """Kill a node by SIGKILL."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for node in list(self._processes):
            self.kill(node)

    def _home(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    def _properties(self, node: int) -> Path:
        return self._home(node) / "node.properties"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    found = Brokers(tmp_path)
    found.start(*NODES)
    try:
        yield found
    finally:
        found.stop()
