"""replicas.json: what the comparison of the replicas' logs found, kept in the run directory for the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checkers.findings import Finding, from_json, to_json

FILE = "replicas.json"
NAME = "replica-divergence"
SCHEMA = 1


def write(run_dir: Path, findings: Sequence[Finding], compared: Mapping[str, Any]) -> None:
    """Keep them. `compared`: how far each partition's logs were compared, for people."""
    stored = {"schema": SCHEMA, "compared": dict(compared), "findings": to_json(findings)}
    (run_dir / FILE).write_text(json.dumps(stored, indent=1) + "\n")


def read(run_dir: Path, troubles: list[str], notes: list[str]) -> tuple[bool, list[Finding]]:
    """(whether the logs were compared, what was found). Adds to `troubles` and `notes` why not."""
    try:
        stored = json.loads((run_dir / FILE).read_text())
        return True, from_json(stored["findings"])
    except FileNotFoundError:
        notes.append("the replicas' logs were not compared")
    except (OSError, KeyError, TypeError, ValueError) as error:
        troubles.append(f"{FILE}: {type(error).__name__}: {error}")
    return False, []
