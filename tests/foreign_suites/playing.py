"""Runs a suite's own test program, and reads the result of each test."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from tests.foreign_suites.fetching import PROGRAM, SOURCE
from tests.support.gate.results import Result

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
ENDED = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
WORDS = 300
"""The most characters of a failure's reason."""
LOOK_S = 0.2
GRACE_S = 60.0
"""How long a test program may take to print its results after its own time-out."""


@dataclass(frozen=True, slots=True)
class Play:
    """The arguments of one run of a suite."""

    folder: Path
    """The suite's folder in the cache."""
    out: Path
    """The file that keeps its output."""
    environment: Mapping[str, str]
    seconds: float
    only: str
    """A part of the names of the tests to run; empty: all."""
    ended: Event
    """Is set when the command is interrupted: then the suite's program is killed."""


@dataclass(frozen=True, slots=True)
class Played:
    """The results of a suite."""

    results: list[Result]
    lost: list[str] = field(default_factory=list)
    """Tests without a result, because time was over."""


Player = Callable[[Play], Played]


def go_player(package: str) -> Player:
    """Return a function that runs the tests of a compiled Go package, in its folder."""

    def play(what: Play) -> Played:
        program = [str(what.folder / PROGRAM)]
        where = what.folder / SOURCE / package
        listed = subprocess.run([*program, "-test.list", "."], cwd=where, capture_output=True, text=True, check=True)
        left = [name for name in listed.stdout.split() if name.startswith(("Test", "Example")) and what.only in name]
        until = time.monotonic() + what.seconds
        results: dict[str, Result] = {}
        skipped: list[str] = []
        begun: set[str] = set()
        while left and (seconds := until - time.monotonic()) > 0 and not what.ended.is_set():
            # A panic in one test, the time-out's included, ends the program and with it the tests after it.
            chosen = ["-test.run", f"^({'|'.join(left)})$", "-test.timeout", f"{seconds:.0f}s", "-test.v=test2json"]
            chosen += ["-test.skip", "|".join(map(_pattern, skipped))] if skipped else []
            tool = ["go", "tool", "test2json", "-t", *program, *chosen]
            text = _output(tool, where, what, what.environment, seconds + GRACE_S)
            found, cut = read_go(text.splitlines())
            before = len(results)
            results |= {each.test: each for each in found}
            begun.update(cut)
            # What was cut off is played again, without the parts of the same test that may have ended the program.
            parts = parts_to_skip(found, cut, skipped)
            again = {_whole(name) for name in cut} - {each.test for each in found} | set(map(_whole, parts))
            skipped += parts
            for name in map(_whole, parts):
                results.pop(name, None)  # it failed with its part, and is played again
            left = [name for name in left if name in again or name not in set(map(_whole, (*cut, *results)))]
            if not parts and len(results) == before:
                break
        lost = dict.fromkeys((*left, *sorted(begun - results.keys())))
        return Played(list(results.values()), [name for name in lost if name not in results])

    return play


def parts_to_skip(found: Iterable[Result], cut: Iterable[str], skipped: Sequence[str]) -> list[str]:
    """Return the failed subtests of tests that were cut off: the next run skips these, so that the other subtests can
    end.
    """
    wholes = set(map(_whole, cut))
    bad = [each.test for each in found if each.result == FAILED and "/" in each.test]
    return [name for name in bad if _whole(name) in wholes and name not in skipped]


def _whole(name: str) -> str:
    """Return the test that a subtest belongs to."""
    return name.partition("/")[0]


def _pattern(name: str) -> str:
    """Return Go's regular expression for just this test."""
    return "/".join(f"^{re.escape(part)}$" for part in name.split("/"))


def read_go(lines: Iterable[str]) -> tuple[list[Result], list[str]]:
    """Return the results in the events of `go tool test2json`, and the tests that were cut off when the program ended.

    If a subtest failed, only the subtest counts as a failure, not the test around it.
    """
    said: dict[str, list[str]] = {}
    ends: dict[str, tuple[str, float]] = {}
    for event in map(_event, lines):
        name = event.get("Test")
        if name is None:
            continue
        kept = said.setdefault(name, [])
        if event["Action"] == "output":
            kept.append(event["Output"])
        elif event["Action"] in ENDED:
            ends[name] = (ENDED[event["Action"]], event.get("Elapsed", 0.0))
    why = {name: _why(said[name]) for name, (end, _) in ends.items() if end == FAILED}
    # kgo has tests "range" and "range/848" that are no parts of each other: a whole that failed says nothing itself.
    whole = {name for name, own in why.items() if not own and any(other.startswith(f"{name}/") for other in why)}
    results = [
        Result(name, end, 0.0, seconds, why.get(name, "")) for name, (end, seconds) in ends.items() if name not in whole
    ]
    return results, [name for name in said if name not in ends]


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _why(lines: Sequence[str]) -> str:
    """Return the lines that a test printed, without Go's own lines about its start and end."""
    own = [line.strip() for line in lines if not line.lstrip().startswith(("===", "---"))]
    return " ".join(" ".join(own).split())[:WORDS]


def pytest_player(tests: str) -> Player:
    """Return a function that runs a folder of a Python suite by this environment's pytest, without our settings and
    plugins.
    """

    def play(what: Play) -> Played:
        source, report = what.folder / SOURCE, what.out / "results.xml"
        chosen = ["-k", what.only] if what.only else []
        patience = ["-o", "addopts=", "--timeout=180", "--timeout-method=signal"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "pytest_timeout",
            *patience,
            f"--junitxml={report}",
            *chosen,
            tests,
        ]
        settings = {"PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        _output(command, source, what, {**settings, **what.environment}, what.seconds + GRACE_S)
        return Played(read_junit(report.read_text())) if report.exists() else Played([], ["every test"])

    return play


def read_junit(text: str) -> list[Result]:
    """Return the results in pytest's JUnit report. An error in a test's fixture counts as its failure."""
    found = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        bad = [each for each in case if each.tag in ("failure", "error")]
        skipped = any(each.tag == "skipped" for each in case)
        why = " ".join(bad[0].get("message", "").split())[:WORDS] if bad else ""
        name = f"{case.get('classname')}::{case.get('name')}"
        found[name] = Result(name, FAILED if bad else SKIPPED if skipped else PASSED, 0.0,
                             float(case.get("time", 0)), why)  # fmt: skip
    return list(found.values())


def _output(command: Sequence[str], where: Path, of: Play, environment: Mapping[str, str], seconds: float) -> str:
    """Run a program, and return its output, which is also kept in a file. It is killed with its children at its time
    limit.
    """
    file = of.out / f"output-{len(list(of.out.glob('output-*')))}.txt"
    until = time.monotonic() + seconds
    with file.open("wb") as to:
        process = subprocess.Popen(
            command,
            cwd=where,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=to,
            start_new_session=True,
        )
        try:
            while process.poll() is None and time.monotonic() < until and not of.ended.wait(LOOK_S):
                pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return file.read_text(errors="replace")
