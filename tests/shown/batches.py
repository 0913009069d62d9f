"""Writes the tables whose rows come from one command that plays many runs or tests: seeds, planted bugs, nights, gates.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from squall.chaos.mutants import select
from squall.chaos.mutants import table as mutants_table
from squall.chaos.runtimes.real.processes.child import TETHER
from squall.checkers.nightly import store
from squall.workloads.registry import SCENARIOS
from tests.night.collecting import read_tables
from tests.night.player import BY_CTRL_C, run_to_end
from tests.night.record import ENDED
from tests.shown.table import ROOT, Sitting, Table, add, read

FIRST_SEED = 1000
"""The first seed of a batch. The gate plays seeds below it."""
SQUALL = "./squall"
SEEDS = Table(
    "seeds",
    "Seeds for each workload",
    "A row is one batch of simulations, `./squall sim --swarm --workload NAME --seeds A..B`.",
    ("workload", "seeds", "valid", "unknown", "failed", "faults landed", "wall s", "CPU s", "exit", "what failed"),
)
MUTANTS = Table(
    "mutants",
    "Planted bugs",
    "A row is one planted bug and what found it, by `./squall hunt`: with its own plans and every check; with its own "
    "plans and what clients see alone (`--checks history`); with the plans that a swarm draws (`--swarm`).",
    (*mutants_table.HEAD, *(name for columns in mutants_table.COLUMNS.values() for name in columns)),
    keys=1,
)
MUTANTS_AT_ONCE = 8
NIGHTS = Table(
    "nights",
    "Nights",
    "A row is one night in the store of nights, `./squall test --night`.",
    ("night", "commit of the night", "exit", "parts", "hours", "tests", "failed", "flaky", "skipped", "next seed"),
    keys=1,
)
GATES = Table(
    "gates",
    "Gates in a row",
    "A row is one `./squall test` in this checkout, or one `.ci/run` in a fresh clone with a fresh HOME.",
    ("what", "CPU hogs", "load", "wall s", "gate, wall s", "gate, CPU s", "exit", "passed", "failed", "skipped",
     "failed tests"),
)  # fmt: skip
SIMULATED = tuple(name for name, scenario in SCENARIOS.items() if scenario.SIMULATED)
Say = Callable[[str], None]

BATCH = re.compile(r"^(\d+)/\d+ seeds.*?, (\d+) failed(?:, (\d+) unknown)?;", re.MULTILINE)
SPENT = re.compile(r"virtual s in (\d+) CPU s; (\d+ of \d+) faults landed")
SIGNATURE = re.compile(r"^ +(\d+ x .*, first by seed \d+)$", re.MULTILINE)
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
LANES = re.compile(r"^lanes: .*; (\d+) CPU s in (\d+) s$", re.MULTILINE)
FAILED_TEST = re.compile(r"^(?:FAILED|FLAKY|squall:) .*$", re.MULTILINE)


class Called:
    """Runs a command to its end: keeps its output, exit code and wall seconds. Raises KeyboardInterrupt after Ctrl-C.
    """

    def __init__(self, *command: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> None:
        self.load = os.getloadavg()[0]
        began = time.monotonic()
        with tempfile.NamedTemporaryFile(prefix="squall-shown-") as log:
            self.code = run_to_end(command, Path(log.name), cwd, environment)
            self.said = Path(log.name).read_text(errors="replace")
        self.wall_s = time.monotonic() - began
        if self.code in BY_CTRL_C:
            raise KeyboardInterrupt


def show_seeds(count: int, names: Sequence[str], of: Sitting, docs: Path, say: Say) -> list[str]:
    """Simulate `count` new seeds of each workload, and add a row for each. Returns a sentence for each problem."""
    wrong = []
    for name in names:
        first = next_seed(name, docs)
        seeds = f"{first}..{first + count}"
        say(f"{name}: seeds {seeds}")
        out = ROOT / "runs/shown/seeds"
        words = ("sim", "--swarm", "--workload", name, "--seeds", seeds, "--jobs", "2", "--out", str(out))
        called = Called(SQUALL, *words)
        add(SEEDS, [seeds_row(name, seeds, called.said, called.code, called.wall_s)], of, docs)
        wrong += [f"{name}, seeds {seeds}: exit code {called.code}"] if called.code else []
    return wrong


def next_seed(workload: str, docs: Path) -> int:
    """Return the seed after the last one in a workload's rows."""
    ends = [int(cells[1].partition("..")[2]) for _, cells in read(SEEDS, docs)[1] if cells[0] == workload]
    return max(ends, default=FIRST_SEED)


def seeds_row(workload: str, seeds: str, said: str, code: int, wall_s: float) -> tuple[object, ...]:
    """Return the row of a batch of seeds, from what its command printed."""
    batch, spent = BATCH.search(said), SPENT.search(said)
    if batch is None or spent is None:
        return (workload, seeds, *["?"] * 4, round(wall_s), "?", code, "it printed no result")
    done, failed, unknown = (int(each or 0) for each in batch.groups())
    failures = "; ".join(SIGNATURE.findall(said)) or "nothing"
    counts = (done - failed - unknown, unknown, failed, spent[2])
    return (workload, seeds, *counts, round(wall_s), int(spent[1]), code, failures)


def show_mutants(names: str, budget_s: float, of: Sitting, docs: Path, say: Say) -> list[str]:
    """Search planted bugs in three ways, a few bugs at a time, and add their rows: by plans made for each bug, by these
    and the history alone, and by random plans. Returns a sentence for each bug that its own plans miss without a reason
    in its description, and for each search that could not be made.
    """
    wrong = []
    mutants = [mutant.id for mutant in select(names)]
    for some in (mutants[first : first + MUTANTS_AT_ONCE] for first in range(0, len(mutants), MUTANTS_AT_ONCE)):
        listed = ",".join(some)
        say(f"hunts of {listed}, at most {budget_s:.0f} CPU seconds each")
        with tempfile.TemporaryDirectory(prefix="squall-shown-") as folder:
            page = Path(folder) / "page.md"
            page.write_text(f"{mutants_table.RESULTS_BEGIN}\n{mutants_table.RESULTS_END}")
            for way in ((), ("--checks", "history"), ("--swarm",)):
                words = ("hunt", "--mutants", listed, *way, "--budget", str(budget_s), "--jobs", "2")
                called = Called(SQUALL, *words, "--out", f"{folder}/plans", "--docs", str(page))
                if called.code not in (0, 1):
                    wrong.append(f"`squall {shlex.join(words)}`: exit code {called.code}")
            rows = mutant_rows(page.read_text())
            add(MUTANTS, rows, of, docs)
            # Columns: with its own plans and every check; by history alone. A swarm need not find every bug.
            wrong += [f"planted bug {row[0]}: missed" for row in rows if "nothing" in (row[3], row[7])]
    return wrong


def mutant_rows(page: str) -> list[tuple[str, ...]]:
    """Return a row for each planted bug, from the page that `squall hunt --docs` has updated."""
    results = page.partition(mutants_table.RESULTS_BEGIN)[2].partition(mutants_table.RESULTS_END)[0]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in results.strip().splitlines()[2:]]


def show_nights(nights: Path, of: Sitting, docs: Path) -> list[str]:
    """Add a row for each night in the store. Returns a sentence for each night that cannot be read."""
    tables, unread = read_tables(nights / store.FOLDER)
    add(NIGHTS, [night_row(row, tables) for row in tables["test_nights"]], of, docs)
    return unread


def night_row(night: Mapping[str, object], tables: Mapping[str, list[dict[str, object]]]) -> tuple[object, ...]:
    """Return the row of a night."""
    parts, tests = ([row for row in tables[name] if row["night"] == night["night"]] for name in ("parts", "tests"))
    results = [f"{word}: {', '.join(found)}" for word in ENDED
               if (found := [str(row["part"]) for row in parts if row["result"] == word])]  # fmt: skip
    counted = Counter(row["result"] for row in tests)
    flaky = sum(1 for row in tests if row["flaky"])
    hours = sum(float(str(row["seconds"])) for row in parts) / 3600
    seed = next((row["next_seed"] for row in parts if row["next_seed"] is not None), "-")
    figures = (len(tests), counted["failed"], flaky, counted["skipped"])
    return (night["night"], str(night["commit"])[:10], night["exit"], "; ".join(results), hours, *figures, seed)


def show_gates(gates: int, runs_of_ci: int, hogs: int, of: Sitting, docs: Path, say: Say) -> list[str]:
    """Run the gate `gates` times and CI in a fresh clone `runs_of_ci` times, while `hogs` processes use the CPU.
    Returns a sentence for each problem.
    """
    wrong = []
    for what, number in [("gate", n + 1) for n in range(gates)] + [("CI", n + 1) for n in range(runs_of_ci)]:
        say(f"{what} {number} of {gates if what == 'gate' else runs_of_ci}, beside {hogs} hogs")
        with cpu_hogs(hogs):
            called = Called(SQUALL, "test") if what == "gate" else _ci()
        add(GATES, [gate_row(what, hogs, called.said, called.code, called.wall_s, called.load)], of, docs)
        say(f"  exit code {called.code} after {called.wall_s:.0f} s")
        if called.code:
            with tempfile.NamedTemporaryFile("w", prefix="squall-gate-", suffix=".txt", delete=False) as output:
                output.write(called.said)
            say(f"  its output: {output.name}")
        wrong += [f"{what} {number}: exit code {called.code}"] if called.code else []
    return wrong


def gate_row(what: str, hogs: int, said: str, code: int, wall_s: float, load: float) -> tuple[object, ...]:
    """Return the row of a gate, from what it printed."""
    counts, lanes = COUNTS.findall(said)[-1:], LANES.findall(said)[-1:]
    spent = (lanes[0][1], lanes[0][0]) if lanes else ("?", "?")
    failed = "; ".join(FAILED_TEST.findall(said)) or ("nothing" if counts else "no test ran")
    return (what, hogs, load, round(wall_s), *spent, code, *(counts[0] if counts else "???"), failed)


def _ci() -> Called:
    """Run `.ci/run` in a fresh clone with an empty HOME. It uses this user's package caches, and no cache of mypy."""
    home = Path.home()
    caches = {
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", f"{home}/.cache/pip"),
        "GOMODCACHE": os.environ.get("GOMODCACHE", f"{home}/go/pkg/mod"),
        "MAVEN_OPTS": f"-Dmaven.repo.local={home}/.m2/repository",
    }
    with tempfile.TemporaryDirectory(prefix="squall-shown-") as folder:
        clone, fresh_home = Path(folder) / "squall", Path(folder) / "home"
        fresh_home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        kept = {name: value for name, value in os.environ.items() if name != "SQUALL_CACHE"}
        environment = {**kept, **caches, "HOME": str(fresh_home), "CI": "true"}
        return Called(".ci/run", cwd=clone, environment=environment)


@contextmanager
def cpu_hogs(count: int) -> Iterator[None]:
    """Run `count` processes that only use CPU, as long as the block runs."""
    hog = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(hog, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
