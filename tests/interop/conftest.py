"""A cluster of three of our brokers for foreign clients, started as processes on loopback."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.clusters import Squall
from tests.support.patience import slowed

QUICK_FAILOVER = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.backoff.ms": "200",
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.fetch.timeout.ms": "2000",
    "log.segment.bytes": "1048576",
}
READY_S = 120.0


class TracedCluster(Squall):
    """A cluster whose brokers write traces beside their data."""

    def settings(self, node: int) -> dict[str, str]:
        return {**super().settings(node), "squall.trace.path": str(self.trace(node))}

    def trace(self, node: int) -> Path:
        return self.folder / f"trace-{node}.jsonl"

    def events(self, node: int, event: str) -> int:
        if not self.trace(node).exists():
            return 0
        return sum(json.loads(line)["e"] == event for line in self.trace(node).read_text().splitlines() if line)

    def wait_ready(self, node: int, times: int = 1) -> None:
        """Wait until the broker's trace has `times` node_ready events."""
        deadline = time.monotonic() + READY_S
        while self.events(node, "node_ready") < times:
            assert time.monotonic() < deadline, f"broker {node} is not ready: {self._log(node)}"
            assert self.processes[node].poll() is None, f"broker {node} ended: {self._log(node)}"
            time.sleep(0.05)

    def restart(self, node: int) -> None:
        """Start a killed broker on its data, and wait until it serves."""
        before = self.events(node, "node_ready")
        self.launch(node)
        self.wait_ready(node, before + 1)

    def _log(self, node: int) -> str:
        return (self.folder / f"n{node}.log").read_text()[-2000:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedCluster]:
    made = TracedCluster(tmp_path_factory.mktemp("cluster"), slowed(QUICK_FAILOVER))
    made.start()
    try:
        for node in (1, 2, 3):
            made.wait_ready(node)
        yield made
    finally:
        made.stop()
