"""Failures of foreign suites that are explained: `known.toml`, a row for each with its reason and whose fault it is."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.foreign_suites.clusters import TARGETS
from tests.foreign_suites.playing import FAILED, PASSED
from tests.support.gate.results import Result

ROWS = Path(__file__).with_name("known.toml")
WHOSE = ("ours", "suite", "machine", "declined")
"""ours: a fault of Squall's broker. suite: of the tests, or of their client. machine: they are not patient enough for
a busy one. declined: Squall's broker lacks it on purpose.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """One failure that is explained."""

    suite: str
    test: str
    """Its name as the suite prints it; a part of a test is TEST/PART."""
    on: tuple[str, ...]
    """The targets on which it fails."""
    kind: str
    """The failure's class."""
    whose: str
    reason: str
    sometimes: bool = False
    """It also passes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of one suite on one target, held against the rows."""

    unexplained: list[Result]
    explained: list[Result]
    mended: list[Known]
    """Rows whose test passes now: they can go."""


def read(file: Path = ROWS) -> list[Known]:
    """The rows. AssertionError for one that is not complete."""
    rows = []
    for row in tomllib.loads(file.read_text()).get("failure", []):
        known = Known(**{**row, "on": tuple(row["on"])})
        assert known.on, known
        assert set(known.on) <= set(TARGETS), known
        assert known.whose in WHOSE, known
        assert known.reason, known
        rows.append(known)
    names = [(row.suite, row.test, target) for row in rows for target in row.on]
    assert len(names) == len(set(names)), "two rows of one test"
    return rows


def judge(suite: str, target: str, results: Iterable[Result], rows: Sequence[Known]) -> Verdict:
    """Failures with a row, failures without one, and rows that are of no use any more."""
    here = {row.test: row for row in rows if row.suite == suite and target in row.on}
    results = list(results)
    failed = [each for each in results if each.result == FAILED]
    passed = {each.test for each in results if each.result == PASSED}
    return Verdict(
        unexplained=[each for each in failed if each.test not in here],
        explained=[each for each in failed if each.test in here],
        mended=[row for row in here.values() if row.test in passed and not row.sometimes],
    )
