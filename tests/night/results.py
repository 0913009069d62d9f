"""The results of single tests, as `squall test --results` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.night.record import json_lines


@dataclass(frozen=True, slots=True)
class TestResult:
    """How a test ended, and what it cost."""

    __test__ = False  # of pytest's

    test: str
    """Its node id."""
    result: str
    """passed, failed or skipped."""
    cpu_s: float
    wall_s: float
    flaky: bool
    """It failed at first, and passed alone."""
    why: str
    """Why it was skipped, or the last line of its failure."""
    commit: str


def read_results(file: Path) -> list[TestResult]:
    """The last result of each test. A session that goes on writes a head of its own."""
    if not file.exists():
        return []
    commit, found = "", {}
    for each in json_lines(file.read_text(errors="replace")):
        if "test" not in each:
            commit = str(each.get("commit") or "")
            continue
        found[each["test"]] = TestResult(
            test=str(each["test"]),
            result=str(each["result"]),
            cpu_s=float(each.get("cpu_s") or 0.0),
            wall_s=float(each.get("wall_s") or 0.0),
            flaky=bool(each.get("flaky")),
            why=str(each.get("why") or ""),
            commit=commit,
        )
    return list(found.values())
