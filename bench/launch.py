"""Divides the time from a launch to the first acks=all acknowledgement into steps, by traces that the brokers write.

All trace lines have times of the machine's monotonic clock. Compiled modules are kept between launches, as on a machine
on which Squall is installed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.client import first_ack
from bench.clusters import Squall
from squall.broker.overriding import override

STEPS: Mapping[str, tuple[str, bool]] = {
    "s until the first broker has its modules": ("node_started", False),
    "s until the last broker has its modules": ("node_started", True),
    "s until a controller is active": ("controller_active", False),
    "s until the last broker is registered": ("registered", True),
    "s until the last broker serves clients": ("node_ready", True),
    "s until the topic is made": ("topic_created", False),
}
"""Maps a figure's name to its trace event, and to True if the figure is the time of the slowest broker, False if it is
that of the quickest.
"""
ACKNOWLEDGED, CPU = "s until the first record is acknowledged", "CPU s of the three brokers"


class TracedSquall(Squall):
    """Runs brokers of Squall that write their events to trace files and keep compiled modules in the folder `compiled`.
    """

    def __init__(self, folder: Path, compiled: Path, root: Path | None) -> None:
        super().__init__(folder, root=root)
        self._compiled = compiled

    @override
    def settings(self, node: int) -> dict[str, str]:
        return {**super().settings(node), "squall.trace.path": str(self.trace(node))}

    @override
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        own = {} if self._root is None else {"PYTHONPATH": str(self._root)}
        return {**kept, "PYTHONPYCACHEPREFIX": str(self._compiled), **own}

    def trace(self, node: int) -> Path:
        """Return the path of the file to which a node writes its trace, one JSON object per line and event."""
        return self.folder / f"n{node}.jsonl"


def steps(lines: Iterable[Mapping[str, Any]], launched_at: float) -> Mapping[str, float]:
    """Return the seconds from the launch to each step in `STEPS`, such as "s until a controller is active", from the
    lines of all brokers' traces. Raises KeyError for a step without a trace line.
    """
    at: dict[str, list[float]] = {}
    for line in lines:
        at.setdefault(line["e"], []).append(line["t"] - launched_at)
    return {title: (max if last else min)(at[event]) for title, (event, last) in STEPS.items()}


def measure(cluster: TracedSquall) -> Mapping[str, float]:
    """Measure one launch: seconds to each step and to the first acknowledgement, and CPU seconds."""
    cluster.start()
    try:
        acknowledged_s = first_ack(cluster.bootstrap, cluster.launched_at)
        cpu_s = cluster.cpu_s()
    finally:
        cluster.stop()
    lines = [json.loads(line) for node in cluster.nodes for line in cluster.trace(node).read_text().splitlines()]
    return {**steps(lines, cluster.launched_at), ACKNOWLEDGED: acknowledged_s, CPU: cpu_s}
