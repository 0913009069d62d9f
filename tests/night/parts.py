"""The parts of a night of tests. Each is a command that people can also type."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from squall.chaos.errors import PreconditionError
from tests.night.record import FAILED, NOT_HERE, PASSED, UNKNOWN, Folder, Head
from tests.support.gate import results

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 2000
"""Seeds in a night. From this number on, `squall sim` also demands that every rare path was taken, and every branch
that is not exempt.
"""
WORDS = 300
"""The most characters of a reason."""
SQUALL = "./squall"
BY_SQUALL: Mapping[int, str] = {0: PASSED, 1: FAILED, 2: UNKNOWN}
BY_PYTEST: Mapping[int, str] = {0: PASSED}
BY_MACHINE: Mapping[int, str] = {0: PASSED, 1: FAILED, 2: UNKNOWN, 3: NOT_HERE}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a night."""

    name: str
    what: str
    """A description for people."""
    minutes: int
    """Its approximate duration on two idle cores."""
    command: Callable[[Folder, Head], list[str]]
    lacks: Callable[[], str] = lambda: ""
    """Returns why this machine cannot run it; empty if it can."""
    codes: Mapping[int, str] = field(default_factory=lambda: BY_SQUALL)
    """The result for each exit code of the command. Any other code is FAILED."""
    page: Callable[[Folder, str], Path | None] = lambda folder, night: None
    """Returns the path of a page that the part itself makes."""
    seeds: int = 0
    """How many seeds it runs, from `Head.first_seed` on."""

    def result(self, folder: Folder, code: int) -> tuple[str, str]:
        """Return (result, reason) of an ended command. Results of single tests count more than the exit code."""
        result = self.codes.get(code, FAILED)
        why = "" if result == PASSED else last_words(folder.said(self.name)) or f"exit code {code}"
        if self.name != EVERYTHING:
            return result, why
        try:
            tests = results.read(folder.tests)
        except PreconditionError as refused:
            return (UNKNOWN if result == PASSED else result), str(refused)
        failed = sum(1 for each in tests if each.result == FAILED)
        if failed:
            return FAILED, f"{failed:,} of {len(tests):,} tests failed"
        if result == PASSED:
            why = results.lost(folder.tests) if tests else "no test has a result"
            return (UNKNOWN if why else PASSED), why
        return result, troubles(folder.said(self.name)) or why


EVERYTHING = "everything"


def _everything(folder: Folder, head: Head) -> list[str]:
    del head
    again = ["--go-on"] if folder.tests.exists() else []
    return [SQUALL, "test", "--all", "--again", "--results", shown(folder.tests), *again]


def _hunts(folder: Folder, head: Head) -> list[str]:
    del head
    return [SQUALL, "hunt", "--mutants", "all", "--budget", "120", "--jobs", "2", "--out", shown(folder.path / "hunts")]


def _seeds(folder: Folder, head: Head) -> list[str]:
    seeds = f"{head.first_seed}..{head.first_seed + SEEDS}"
    out = shown(folder.path / "seeds")
    return [SQUALL, "sim", "--swarm", "--seeds", seeds, "--jobs", "2", "--coverage", "--out", out]


def _fresh(*words: str) -> Callable[[Folder, Head], list[str]]:
    return lambda folder, head: ["tests/fresh/machine.sh", *words]


def _containers(folder: Folder, head: Head) -> list[str]:
    del head
    matrix = ["--vary", "runtime=docker", "--vary", "workload=appends,transactions,groups,pipeline,semantics"]
    return _nightly(folder.path / "containers", *matrix, "--seeds", "3", "--time", "20", "--budget", "40m")


def _libraries(folder: Folder, head: Head) -> list[str]:
    del head
    matrix = ["--vary", "client=confluent,aiokafka,kafka-python", "--vary", "target=squall,kafka",
              "--vary", "workload=appends,transactions,groups"]  # fmt: skip
    return _nightly(folder.path / "libraries", *matrix, "--time", "20", "--budget", "40m")


def _differential(folder: Folder, head: Head) -> list[str]:
    out = shown(folder.path / "differential")
    return [".venv/bin/python", "-m", "tests.differential", "--seed", str(head.first_seed), "--out", out]


def _foreign_suites(folder: Folder, head: Head) -> list[str]:
    del head
    return [".venv/bin/python", "-m", "tests.foreign_suites", "--out", shown(folder.path / "foreign-suites")]


def _matrix(folder: Folder, head: Head) -> list[str]:
    return _nightly(folder.matrix(head.night), "--seeds", "6", "--budget", "90m")


def _nightly(out: Path, *flags: str) -> list[str]:
    """Return the command that runs a matrix by `squall nightly`, or resumes it."""
    if (out / "night.json").exists():
        return [SQUALL, "nightly", "--resume", shown(out)]
    return [SQUALL, "nightly", *flags, "--out", shown(out)]


def _no_go() -> str:
    from tests.foreign_suites.fetching import go_lacks

    return go_lacks()


def _no_engine() -> str:
    from squall.chaos.toolchain.engine_lacks import engine_lacks

    return next((lack.what for lack in engine_lacks()), "")


def _no_kafka() -> str:
    from squall.chaos.toolchain.kafka import kafka_lacks

    return next((lack.what for lack in kafka_lacks()), "")


def _no_machine() -> str:
    if os.geteuid():
        return "needs root, for debootstrap and chroot"
    missing = [each for each in ("debootstrap", "unshare") if shutil.which(each) is None]
    if missing:
        return f"needs {' and '.join(missing)}"
    apart = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "" if apart.returncode == 0 else "this machine permits no namespaces of mounts and processes"


PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part(EVERYTHING, "Every test that there is, in random order.", 120, _everything, codes=BY_PYTEST),
        Part("hunts", "Plants each known bug; the checks must find it.", 40, _hunts),
        Part("seeds", "Simulations with seeds that no earlier night played.", 75, _seeds, seeds=SEEDS,
             page=lambda f, _: _made(f.path / "seeds/coverage.html")),
        Part("matrix", "The durability matrix, plans/nightly.toml.", 60, _matrix,
             page=lambda f, night: _report(f.matrix(night))),
        Part("containers", "Runs in containers.", 20, _containers, _no_engine,
             page=lambda f, _: _report(f.path / "containers")),
        Part("libraries", "Runs with each foreign client library, against Squall and Apache Kafka.", 20, _libraries,
             page=lambda f, _: _report(f.path / "libraries")),
        Part("differential", "The same requests to a node of ours and to one of Apache Kafka's.", 15, _differential,
             _no_kafka, BY_MACHINE, page=lambda f, _: _report(f.path / "differential")),
        Part("foreign-suites", "Test suites of other projects' clients, unmodified, against Squall.", 20,
             _foreign_suites, _no_go),
        Part("fresh", "The README's two commands on three Debians that have Python alone.", 90, _fresh("all"),
             _no_machine, BY_MACHINE),
        Part("oldest", "All tests on the oldest Python that is promised, on a Debian that has it alone.", 150,
             _fresh("bookworm", "--only", "test", "--", "--all"), _no_machine, BY_MACHINE),
        Part("newest", "All tests on the newest Python that is promised, on a Debian that has it alone.", 150,
             _fresh("forky", "--only", "test", "--", "--all"), _no_machine, BY_MACHINE),
    )
}  # fmt: skip
"""All parts by name, in the order in which they run."""


def _report(night: Path) -> Path | None:
    return _made(night / "report/index.html")


def _made(page: Path) -> Path | None:
    return page if page.exists() else None


def shown(path: Path) -> str:
    """Return a path relative to the checkout."""
    whole = path.absolute()
    return str(whole.relative_to(ROOT)) if whole.is_relative_to(ROOT) else str(whole)


def last_words(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    return next((line.strip()[:WORDS] for line in reversed(_lines(log)) if line.strip()), "")


def troubles(log: Path) -> str:
    """Return why the last `squall test` in a log failed although no test did: the lines in which it says so.

    Only lines after the one that names the order of its tests count. Earlier ones are of its set-up or of an
    interrupted session.
    """
    lines = _lines(log)
    begin = max((number for number, line in enumerate(lines) if line.startswith("order: ")), default=0)
    told = [line.removeprefix("squall: ") for line in lines[begin:] if line.startswith("squall: ")]
    return "; ".join(line for line in told if line != "interrupted")[:WORDS]


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()
    except OSError:
        return []
