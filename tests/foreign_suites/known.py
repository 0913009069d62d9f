"""Reads `known.toml`, the explained failures of foreign suites: a row for each, with its reason and its class."""

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
"""The classes of failures. ours: a bug of Squall's broker. suite: a bug of the tests, or of their client. machine: the
tests' time limits are too short for a busy machine. declined: Squall's broker lacks the feature on purpose.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """An explained failure."""

    suite: str
    test: str
    """The test's name as the suite prints it; a subtest is TEST/PART."""
    on: tuple[str, ...]
    """The targets on which it fails."""
    kind: str
    """The failure's class, one of WHOSE."""
    whose: str
    reason: str
    sometimes: bool = False
    """Whether the test sometimes passes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of one suite on one target, compared with the rows."""

    unexplained: list[Result]
    explained: list[Result]
    mended: list[Known]
    """Rows whose test passes now: they can be removed."""


def read(file: Path = ROWS) -> list[Known]:
    """Return the rows. Raises AssertionError for an incomplete one."""
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
    """Compare a suite's results with the rows: failures with a row, failures without one, and rows that can be removed.
    """
    here = {row.test: row for row in rows if row.suite == suite and target in row.on}
    results = list(results)
    failed = [each for each in results if each.result == FAILED]
    passed = {each.test for each in results if each.result == PASSED}
    return Verdict(
        unexplained=[each for each in failed if each.test not in here],
        explained=[each for each in failed if each.test in here],
        mended=[row for row in here.values() if row.test in passed and not row.sometimes],
    )
