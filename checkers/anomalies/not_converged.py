"""not-converged: what the harness saw after healing (run.json), held to the plan's limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from squall.checkers import run_facts
from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily
from squall.checkers.findings import Finding, Witness, findings_of
from squall.checkers.history.tables import ObservedPartition

NAME = "not-converged"
NOT_LOOKED = "run.json does not say whether the cluster converged"
ANOMALIES = (
    AnomalyDefinition(
        NAME,
        AnomalyFamily.LIVENESS,
        "a partition of the workload without a leader, or with an ISR that lacks a replica, longer after healing than "
        "the plan allows; a broker that holds none of its replicas may be fenced all the same",
        source="the plan's limit; Kafka documentation, design, Replication (a follower that caught up joins the ISR)",
        meaning="partitions did not come to rest after all faults had ended",
        meaning_of_one="partition did not come to rest after all faults had ended",
    ),
)
CHECK = AnomalyCheck(__name__, ANOMALIES)


def read(run_dir: Path, partitions: Iterable[ObservedPartition]) -> tuple[bool, list[Finding]]:
    """(whether it was looked at, what was found): a witness for each partition that lacked a leader or a full ISR."""
    found = lacking(run_facts.read(run_dir).info.get("converged"), partitions)
    return found is not None, found or []


def lacking(seen: Mapping[str, Any] | None, partitions: Iterable[ObservedPartition]) -> list[Finding] | None:
    """Return findings from run.json's `converged` (of `RunFacts`); None if convergence was not checked."""
    if seen is None:
        return None
    missing: list[str] = [] if seen["ok"] else list(seen["lacking"])
    parts = {partition.name: partition.part for partition in partitions}
    return findings_of(Witness(NAME, "", parts.get(name, -1), -1, -1, -1, -1, -1) for name in missing)
