"""Finds not-converged: after healing, the cluster did not converge within the plan's limit, as run.json says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from squall.checkers import run_facts
from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily
from squall.checkers.anomalies.check import AnomalyCheck
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
    """Return (whether convergence was checked, the findings). Each partition without a leader or with an incomplete ISR
    is a witness.
    """
    found = findings_in(run_facts.read(run_dir).info.get("converged"), partitions)
    return found is not None, found or []


def findings_in(converged: Mapping[str, Any] | None, partitions: Iterable[ObservedPartition]) -> list[Finding] | None:
    """Return the findings from `converged`, the entry of that name in run.json; None if there is no such entry, because
    convergence was not checked.
    """
    if converged is None:
        return None
    missing: list[str] = [] if converged["ok"] else list(converged["lacking"])
    parts = {partition.name: partition.part for partition in partitions}
    return findings_of(Witness(NAME, "", parts.get(name, -1), -1, -1, -1, -1, -1) for name in missing)
