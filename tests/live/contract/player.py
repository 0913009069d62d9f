"""Faults that the nemesis plays in a test, and what it tells of them."""

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
    """Answers what the nemesis asks about the cluster, with the same view each time."""

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
    """The last line of nemesis.jsonl of each. `cluster`: one broker where nothing else is said."""
    papers = MemoryRunStore("a run")
    seen = cluster or Seen()
    nemesis = Nemesis(runtime, faults, 1, env=runtime.env("harness"), cluster=seen, record=papers.fault)
    if clients is not None:
        nemesis.clients = clients
    await nemesis.play()
    last = {line["id"]: line for line in map(json.loads, papers.faults)}
    return [last[fault.id] for fault in faults]


def unproven(line: dict[str, Any]) -> str | None:
    """Why a verdict counts it for nothing."""
    (fault,), _ = parse_faults([json.dumps(line).encode()])
    return not_landed(fault)
