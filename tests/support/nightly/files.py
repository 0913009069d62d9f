"""Writes the folder of a night as `squall nightly` does, with hand-made runs instead of real ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PLAN = """\
schema_version = 1
seed = {seed}
runtime = "{runtime}"
target = "{target}"

[cluster]
nodes = 3

[workload]
name = "appends"
acks = {acks}
replication_factor = 3
min_isr = 2
idempotence = {idempotence}
"""
BEGAN = "2026-07-04T01:00:00+00:00"


class NightFiles:
    """The folder of a night. Tests `add` items of its matrix, and then `write` the files."""

    def __init__(self, path: Path, began: str = BEGAN, **head: Any) -> None:
        self.path = path
        self.head = {"schema": 1, "night": path.name, "began": began, "budget_s": 600, "commit": "c0ffee", **head}
        self.items: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        path.mkdir(parents=True)

    def plan_item(self, item: str, **cell: str) -> None:
        """Add an item of the matrix that has not run. `cell` has its values on the matrix' axes."""
        if item not in [each["item"] for each in self.items]:
            self.items.append({"item": item, "cell": cell, "seed": 1})

    def add(
        self,
        item: str,
        verdict: str = "valid",
        *,
        lines: Sequence[bytes] = (),
        nemesis: bytes = b"",
        judged: Mapping[str, Any] | None = None,
        acks: int = -1,
        target: str = "squall",
        runtime: str = "process",
        **result: Any,
    ) -> Path:
        """Add an attempt of an item, and write its run directory. `judged` becomes verdict.json; with None there is
        none.
        """
        cell = {"acks": "all" if acks == -1 else str(acks), "min-isr": "2", "replication-factor": "3"}
        self.plan_item(item, **cell, target=target, runtime=runtime, workload="appends")
        attempt = 1 + sum(each["item"] == item for each in self.results)
        run = self.path / "runs" / f"{item}-{attempt}"
        run.mkdir(parents=True)
        idempotence = str(acks == -1).lower()
        text = PLAN.format(seed=1, runtime=runtime, target=target, acks=acks, idempotence=idempotence)
        (run / "plan.toml").write_text(text)
        if lines:
            (run / "history.jsonl").write_bytes(b"".join(lines))
        if nemesis:
            (run / "nemesis.jsonl").write_bytes(nemesis)
        if judged is not None:
            (run / "verdict.json").write_text(json.dumps({"schema": 1, "verdict": verdict, **judged}))
        line = {"item": item, "attempt": attempt, "verdict": verdict, "exit": 0, "run": f"runs/{run.name}", **result}
        self.results.append({"began": BEGAN, "seconds": 1.0, "why": "", "unexpected": [], **line})
        return run

    def write(self, *, end: Mapping[str, Any] | None = None) -> Path:
        """Write all files. `end` becomes end.json; with None the night has not ended."""
        (self.path / "night.json").write_text(json.dumps({**self.head, "items": self.items}))
        (self.path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in self.results))
        if end is not None:
            told = {"schema": 1, "ended": BEGAN, "exit": 0, "interrupted": False, "left_out": []}
            (self.path / "end.json").write_text(json.dumps({**told, **end}))
        return self.path
