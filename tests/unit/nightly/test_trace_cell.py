"""docs/examples/trace_cell.py, with which a cell is traced by hand, counts what the checkers count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from squall.checkers.history import conversion
from tests.support.histories.anomaly_cases import PLANTS
from tests.support.histories.builder import GeneratedHistory, generate, merged
from tests.support.nightly import oracle
from tests.support.nightly.files import NightFiles

SCRIPT = Path(__file__).resolve().parents[3] / "docs/examples/trace_cell.py"


def said(*runs: Path) -> list[str]:
    """Its lines."""
    command = [sys.executable, "-I", str(SCRIPT), *map(str, runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def row_of(run: Path) -> dict[str, Any]:
    """Return the row of figures that the checkers count of a run."""
    conversion.convert(run)
    return oracle.run_row(run)


def losing(seed: int) -> GeneratedHistory:
    history = generate(seed)
    PLANTS["lost-write"](history)
    return history


def test_runs_and_their_cell_are_counted_as_the_checkers_count_them(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    runs = [files.add(f"run-{seed}", lines=merged([losing(seed), generate(seed + 10)]), judged={}) for seed in (1, 2)]
    rows = [row_of(run) for run in runs]
    assert min(row["lost"] for row in rows) > 0
    expected = [
        f"acknowledged {row['acknowledged']:,}, lost {row['lost']}, duplicated {row['duplicated']}, "
        f"unavailable_ms {row['unavailable_ms']:,.0f}  {run.name}"
        for row, run in zip(rows, runs, strict=True)
    ]
    *each, cell = said(*runs)
    assert each == expected
    lost, most = sum(row["lost"] for row in rows), max(row["unavailable_ms"] for row in rows)
    assert cell.startswith(f"acknowledged {sum(row['acknowledged'] for row in rows):,}, lost {lost}, ")
    assert cell.endswith(f"unavailable_ms {most:,.0f}  the cell")


def test_what_stands_twice_is_duplicated(tmp_path: Path) -> None:
    history = generate(3)
    next(each for name, each in PLANTS.items() if name.startswith("duplicate"))(history)
    run = NightFiles(tmp_path / "n1").add("run", lines=merged([history]), judged={})
    row = row_of(run)
    assert row["duplicated"] > 0
    assert f"duplicated {row['duplicated']}, " in said(run)[0]
