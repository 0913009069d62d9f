"""Lets the nemesis inject faults in a test, and returns what it reports."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

from squall.chaos.faults.kind import Fault
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.runs.run_store import MemoryRunStore
from squall.checkers.fault_classes import not_landed
from squall.checkers.nemesis_log import parse_faults
from squall.workloads.control import LoadControls

ONE_BROKER = ClusterSnapshot((1,), 1, {"t-0": 1}, {"t-0": (1,)}, {"t-0": (1,)})


class Seen:
    """Gives the nemesis the same view of the cluster each time it asks."""

    client: Any = None

    def __init__(self, view: ClusterSnapshot = ONE_BROKER) -> None:
        self._view = view

    async def view(self) -> ClusterSnapshot:
        return self._view

    def lookout(self) -> Any:
        return nullcontext(self.view)


async def play(
    runtime: Any, *faults: Fault, cluster: Any = None, clients: LoadControls | None = None
) -> list[dict[str, Any]]:
    """Inject these faults, and return the last line of nemesis.jsonl for each. `cluster` is by default one broker."""
    papers = MemoryRunStore("a run")
    seen = cluster or Seen()
    nemesis = Nemesis(runtime, faults, 1, env=runtime.env("harness"), cluster=seen, record=papers.fault)
    if clients is not None:
        nemesis.clients = clients
    await nemesis.play()
    last = {line["id"]: line for line in map(json.loads, papers.faults)}
    return [last[fault.id] for fault in faults]


def unproven(line: dict[str, Any]) -> str | None:
    """Return why a verdict does not count the fault; None if it counts."""
    (fault,), _ = parse_faults([json.dumps(line).encode()])
    return not_landed(fault)
