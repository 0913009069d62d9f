"""not-converged: what the harness saw after healing (run.json), held to the plan's limit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from checkers.findings import Finding, Witness, findings_of
from checkers.tables import Partition

FILE = "run.json"
NAME = "not-converged"


def read(run_dir: Path, partitions: Iterable[Partition]) -> tuple[bool, list[Finding]]:
    """(whether it was looked at, what was found): a witness for each partition that lacked a leader or a full ISR."""
    try:
        seen = json.loads((run_dir / FILE).read_text())["converged"]
        lacking: list[str] = [] if seen["ok"] else list(seen["lacking"])
    except (OSError, ValueError, KeyError, TypeError):
        return False, []
    parts = {partition.name: partition.part for partition in partitions}
    return True, findings_of(Witness(NAME, "", parts.get(name, -1), -1, -1, -1, -1, -1) for name in lacking)
