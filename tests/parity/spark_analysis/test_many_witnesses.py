"""A history with more witnesses than Spark's driver may hold: all are counted and written to files, few are collected.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from squall.chaos.toolchain.java import java
from squall.checkers.findings import places_kept
from squall.spark_analysis.witnesses import FEW

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")

MANY, PARTITIONS, A_POLL = 150_000, 3, 1_000
RESULTS = "4m"
"""Spark's limit for the size of all results at the driver: a witness takes about 65 bytes."""


def values_that_nobody_sent() -> Iterator[dict[str, Any]]:
    """Yield the lines of a history in which a reader gets MANY records of a process that sent none."""
    yield {"e": "h", "schema": 1, "run": "many", "wall_ms": 0, "mono_ns": 0}
    for part in range(PARTITIONS):
        yield {"e": "t", "part": part, "topic": "t", "index": part, "cleanup": "delete", "retention_ms": -1}
    for proc, role in enumerate(("producer", "reader")):
        yield {"e": "p", "p": proc, "role": role, "settings": {}}
    for op in range(MANY // A_POLL):
        part, at = op % PARTITIONS, op // PARTITIONS * A_POLL
        records = [[off, op * A_POLL + off - at] for off in range(at, at + A_POLL)]
        end = at + A_POLL
        yield {"e": "i", "op": op, "p": 1, "f": "poll", "t": 2 * op + 1, "at": {str(part): at}}
        yield {"e": "c", "op": op, "st": 0, "t": 2 * op + 2, "got": [[part, end, end, end, 0, records, 0]]}


def test_all_are_counted_and_written_and_the_kept_ones_are_told(tmp_path: Path) -> None:
    assert MANY > 2 * FEW
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in values_that_nobody_sent()))
    command = [sys.executable, "-P", "-m", "squall.spark_analysis", str(tmp_path), "--java-home", str(java(print).home)]
    # Spark itself stops a job whose answer is larger.
    done = subprocess.run([*command, f"--conf=spark.driver.maxResultSize={RESULTS}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "findings.json").read_text())["findings"]
    assert (found["anomaly"], found["count"]) == ("phantom", MANY)
    assert found["parts"] == [[part, MANY // PARTITIONS] for part in range(PARTITIONS)]
    kept = places_kept(dict.fromkeys(range(PARTITIONS), MANY // PARTITIONS))
    assert {part for part, _ in kept} == set(range(PARTITIONS))
    assert [(each["part"], each["off"]) for each in found["witnesses"]] == kept
    stored = pq.read_table(tmp_path / "anomalies")
    assert stored.num_rows == MANY == pc.count_distinct(stored["val"]).as_py()
