"""Applies removals in turn, and runs the tests that the table names for each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mechanisms.mechanism import Mechanism, Removal
from tests.mechanisms.plugin import FAILED
from tests.mechanisms.table import MECHANISMS

ROOT = Path(__file__).resolve().parents[2]
TESTS_FAILED = 1
"""Exit code of pytest if tests failed. Any other code but 0 means that they could not be run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a mechanism's tests with one of its removals."""

    id: str
    """The id of the removal, such as "R2.0"."""
    removal: Removal
    asked: int
    """How many tests were run; a parametrized test counts once."""
    failed: tuple[str, ...]
    """The tests that failed, by their names in the table."""
    trouble: str
    """Why the tests could not be run; empty if they could."""
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Return whether at least one test failed."""
        return bool(self.failed) and not self.trouble


def selected(ids: Iterable[str]) -> list[tuple[str, Mechanism, Removal]]:
    """Return the removals with these ids, and those of the mechanisms with these ids; all, if none is given. Raises
    KeyError for an unknown id.
    """
    wanted = list(ids)
    known = [
        (f"{mechanism.id}.{number}", mechanism, removal)
        for mechanism in MECHANISMS.values()
        for number, removal in enumerate(mechanism.removals)
    ]
    names = {name for name, _, _ in known} | set(MECHANISMS)
    for name in wanted:
        if name not in names:
            raise KeyError(f"there is no rule {name}")
    return [item for item in known if not wanted or item[0] in wanted or item[1].id in wanted]


def run(name: str, mechanism: Mechanism, removal: Removal) -> Outcome:
    """Run the mechanism's tests with this removal, in an OS process of their own."""
    began = time.monotonic()
    words = ["-m", "pytest", "-q", "--tb=no", "-p", "tests.mechanisms.plugin", "--without", name, "--timeout", "60"]
    # Nothing is kept: neither Hypothesis's failing examples nor pytest's list of what failed last.
    words += ["-p", "no:randomly", "-p", "no:cacheprovider", *mechanism.node_ids]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "SQUALL_FUZZ": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = [line.removeprefix(FAILED) for line in done.stdout.splitlines() if line.startswith(FAILED)]
    failed = tuple(test for test in mechanism.node_ids if any(of_test(line, test) for line in lines))
    trouble = "" if done.returncode in (0, TESTS_FAILED) else done.stdout.strip()[-2000:]
    return Outcome(name, removal, len(mechanism.node_ids), failed, trouble, time.monotonic() - began)


def of_test(node_id: str, test: str) -> bool:
    """Return whether the node id is that of the test, or of one of its parametrized cases."""
    return node_id == test or node_id.startswith(f"{test}[")


def run_all(ids: Sequence[str], jobs: int, say: Callable[[str], None]) -> list[Outcome]:
    """Run the tests for each of these ids, `jobs` at a time, and print each outcome as soon as it is known."""
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(lambda item: run(*item), selected(ids)):
            outcomes.append(outcome)
            say(line_of(outcome))
    return outcomes


def line_of(outcome: Outcome) -> str:
    """Return the outcome as one line of the printed table."""
    if outcome.trouble:
        result = f"the tests did not run:\n{outcome.trouble}"
    else:
        result = f"{len(outcome.failed)} of {outcome.asked} tests failed" if outcome.failed else "NO TEST FAILED"
    return f"{outcome.id:<6} {outcome.seconds:5.1f} s  {result:<28} {outcome.removal.without}"


def unmoved(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the tests that failed with no removal of their mechanism, although the table names them."""
    ran = list(outcomes)
    failed = {test for outcome in ran for test in outcome.failed}
    whole = [
        mechanism
        for mechanism in MECHANISMS.values()
        if mechanism.removals and sum(o.id.partition(".")[0] == mechanism.id for o in ran) == len(mechanism.removals)
    ]
    return [f"{mechanism.id}: {test}" for mechanism in whole for test in mechanism.node_ids if test not in failed]
