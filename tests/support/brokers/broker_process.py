"""Runs one of our brokers as an OS process that reports the longest step of its tasks."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from squall.broker.protocol.schema.metadata import MetadataRequest
from tests.support.brokers.raw_client import RawClient

READY_S = 100.0
REPORT = '"e":"turns_measured"'


class LongestTurn(NamedTuple):
    """The longest time that a task of the broker ran without yielding to trio (`squall.broker.turn_meter`)."""

    seconds: float
    """CPU time."""
    task: str
    """Name of the task."""
    bytes: int
    entries: int
    records: int
    steps: int


class BrokerProcess:
    """A cluster of one node, broker and controller, in an OS process of its own."""

    def __init__(self, folder: Path, more: dict[str, str] | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.trace = folder / "trace.jsonl"
        settings = {
            "node.id": "1",
            "listeners": f"CLIENT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            "squall.trace.path": str(self.trace),
            "squall.turn.measurement.enable": "true",
            **(more or {}),
        }
        config = folder / "broker.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self.log = folder / "broker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "squall.broker", "--config", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.wait_for(lambda: any(e["e"] == "node_ready" for e in self.events()))

    def events(self) -> list[dict[str, object]]:
        text = self.trace.read_text() if self.trace.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for(self, holds: object, limit_s: float = READY_S) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():  # type: ignore[operator]
            assert self.process.poll() is None, f"the broker ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

    def connect(self) -> RawClient:
        return RawClient(self.port)

    def longest_turn(self) -> LongestTurn:
        """Return the longest step since the last call."""
        before = self._reports()
        self.process.send_signal(signal.SIGUSR1)
        self.wait_for(lambda: len(self._reports()) > len(before))
        report = json.loads(self._reports()[-1])
        most = {unit: report[f"most_{unit}"] for unit in ("bytes", "entries", "records", "steps")}
        return LongestTurn(report["squall_longest_turn_seconds"], report["task"], **most)

    def _reports(self) -> list[str]:
        return [line for line in self.trace.read_text().splitlines() if REPORT in line and line.endswith("}")]

    def stop(self) -> None:
        """Send SIGTERM, and wait until the process has ended."""
        self.process.terminate()
        self.process.wait(60)

    def assert_serves(self) -> None:
        """Assert that a new client gets an answer, and that the process has not been replaced."""
        with self.connect() as client:
            answer = client.ask(MetadataRequest(topics=None), 12)
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert self.process.poll() is None
