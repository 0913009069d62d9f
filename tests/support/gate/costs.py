"""The measured cost of each test: `tests/costs.json`, which `squall test --costs` writes.

The file has a row for each test: its CPU seconds (those of processes that it started included) and its wall seconds,
set-up and tear-down included. What a fixture of a module or a session costs is the cost of the
first test that uses it.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.chaos.errors import PreconditionError

if TYPE_CHECKING:
    from tests.support.gate.results import Result

ROOT = Path(__file__).resolve().parents[3]
TICKS = os.sysconf("SC_CLK_TCK")
FILE = "tests/costs.json"
"""Path of the file below the checkout."""
MOST_S = 86_400.0


class Cost(NamedTuple):
    """Measured seconds of one test."""

    cpu_s: float
    wall_s: float


def read(file: Path = ROOT / FILE) -> dict[str, Cost]:
    """Return costs by node id. If the file does not exist, there are none.

    Raises PreconditionError if `write` cannot have written the file, or a test has two rows.
    """
    if not file.exists():
        return {}
    try:
        rows: dict[str, dict[str, list[float]]] = json.loads(file.read_bytes(), object_pairs_hook=_once)
        return {f"{path}::{name}": _cost(*cost) for path, names in rows.items() for name, cost in names.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise PreconditionError(
            f"{file}: {error}; git checkout {FILE} takes it back, ./squall test --costs makes it anew"
        ) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"{twice!r} stands there twice")
    return found


def _cost(cpu_s: float, wall_s: float) -> Cost:
    for value in (cpu_s, wall_s):
        if not 0 <= value < MOST_S:
            raise ValueError(f"{value} is no number of seconds")
    return Cost(cpu_s, wall_s)


def write(costs: Mapping[str, Cost], file: Path) -> None:
    """Replace the file. It has one line for each test, so that diffs are small."""
    by_path: dict[str, dict[str, Cost]] = {}
    for node_id in sorted(costs):
        path, _, name = node_id.partition("::")
        by_path.setdefault(path, {})[name] = costs[node_id]
    parts = []
    for path, names in by_path.items():
        rows = ",\n".join(f"  {json.dumps(name)}: [{cpu:.2f}, {wall:.2f}]" for name, (cpu, wall) in names.items())
        parts.append(f"{json.dumps(path)}: {{\n{rows}\n}}")
    half_written = file.with_suffix(".new")
    half_written.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    half_written.replace(file)


def renewed(before: Mapping[str, Cost], results: Iterable[Result]) -> dict[str, Cost]:
    """Return the rows updated by these results. A test that failed or was skipped keeps its row.

    If such a test has no row, it gets one: otherwise it would count as not measured for as long as it is skipped.
    """
    rows = dict(before)
    for each in results:
        if each.result == "passed" or each.test not in rows:
            rows[each.test] = Cost(max(0.0, each.cpu_s), each.wall_s)
    return rows


def now() -> Cost:
    """Return the CPU seconds of this process and all its descendants so far, and the time of the clock."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ended_s = sum(each.ru_utime + each.ru_stime for each in spent)
    return Cost(ended_s + _running_s(Path("/proc/self")), time.monotonic())


def _running_s(process: Path) -> float:
    """Return the CPU seconds of all running descendants of an OS process, and of the ended ones that these have waited
    for.

    It is needed because Spark's JVM outlives the tests that use it.
    """
    total_s = 0.0
    try:
        children = [
            pid for task in process.joinpath("task").iterdir() for pid in task.joinpath("children").read_text().split()
        ]
        for child in (Path("/proc", pid) for pid in children):
            # utime, stime, cutime and cstime, after the name, which may contain anything.
            times = child.joinpath("stat").read_text().rpartition(")")[2].split()[11:15]
            total_s += sum(map(int, times)) / TICKS + _running_s(child)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended meanwhile, and counts among the ended ones
    return total_s


def since(began: Cost) -> Cost:
    """Return the CPU seconds and wall seconds spent since `began`.

    A descendant may disappear from the count because no running process has waited for it; then the CPU seconds are at
    least 0.
    """
    ended = now()
    return Cost(max(0.0, ended.cpu_s - began.cpu_s), ended.wall_s - began.wall_s)
