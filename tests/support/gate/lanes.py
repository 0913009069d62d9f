"""Plans which test files run side by side. A lane is one pytest process, which collects only its own files.

There is a lane for each CPU, and one more, the waiting lane, for tests that start processes and mostly wait. The plan
follows from `costs.json`: a whole file goes to the CPU lane with the least work. All tests with Spark go to one lane,
because they share one JVM.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from tests.support.gate import bounds, rules
from tests.support.gate.costs import Cost
from tests.support.gate.rules import When

STAGES = ("architecture", "unit", "mechanisms", "property", "scripts", "sim", "parity", "interop", "live")
"""The order of the kinds of tests within a lane: cheap ones first."""
WAITING = ("interop", "live")
SHARED = ("parity",)
"""Kinds of tests whose files all go to the same lane."""

_TEST = re.compile(r"^[ \t]*(?:async )?def (test_\w+)|^((?:Test|test_)\w+) *=", re.MULTILINE)
_MARKED = re.compile(r"mark\.(?:gate|night)")
_GATE = "mark.gate"


@dataclass(slots=True)
class Lane:
    """The files of one pytest process. `cost_s` is the time that they are expected to take: CPU seconds, or in the
    waiting lane wall seconds.
    """

    name: str
    files: list[str] = field(default_factory=list)
    cost_s: float = 0.0

    def take(self, files: Iterable[str], cost_s: float) -> None:
        """Add files, and keep the order of the stages."""
        self.files = sorted([*self.files, *files], key=lambda file: (stage_of(folder_of(file)), file))
        self.cost_s += cost_s


def folder_of(node_id: str) -> str:
    """Return the kind of a test: "unit" of "tests/unit/x.py::test_y"."""
    return node_id.split("/")[1]


def stage_of(folder: str) -> int:
    """Return the position of a kind of tests in `STAGES`. An unknown kind comes last."""
    return STAGES.index(folder) if folder in STAGES else len(STAGES)


def every_file(root: Path) -> dict[str, str]:
    """Return the text of every file with tests, by its path below the root."""
    found = (path for path in (root / "tests").rglob("test_*.py"))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in found}


def marks_of(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each test function of a file, with those of its marks that decide when it runs. A mark on one parametrized
    case counts for the whole function.
    """
    of_all = "".join(_marks_of_all(tree))
    for each in tree.body:
        if _is_test(each):
            text = of_all + "".join(map(ast.unparse, each.decorator_list))
            yield each.name, frozenset(name for name in ("gate", "night") if f"mark.{name}" in text)
        elif isinstance(each, ast.Assign | ast.ClassDef):
            names = [each.name] if isinstance(each, ast.ClassDef) else map(ast.unparse, each.targets)
            yield from ((name, frozenset()) for name in names if name.startswith(("Test", "test_")))


def _is_test(statement: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test_")


def _marks_of_all(tree: ast.Module) -> Iterator[str]:
    assigned = (each for each in tree.body if isinstance(each, ast.Assign))
    return (ast.unparse(each) for each in assigned if ast.unparse(each.targets[0]) == "pytestmark")


def _has_other_marks(tree: ast.Module, text: str) -> bool:
    """Return whether a file has such marks where `marks_of` does not find them: under another name, or on a method."""
    seen = [ast.unparse(mark) for each in tree.body if _is_test(each) for mark in each.decorator_list]
    return text.count(_GATE) > sum(mark.count(_GATE) for mark in (*seen, *_marks_of_all(tree)))


def unmeasured(text: str, measured: Iterable[str]) -> set[str]:
    """Return the test functions of a file that have no row in `costs.json`. `measured` has the names of the rows."""
    known = {part for name in measured for part in bounds.function_of(name).split("::")}
    return {one or other for one, other in _TEST.findall(text)} - known


def cost_of(file: str, text: str, rows: Mapping[str, Cost], wanted: Iterable[When], *, by_wall: bool) -> float | None:
    """Return the seconds that the wanted tests of a file take; None if the file has none of them. `rows` has its costs
    by node id.
    """
    try:
        tree = ast.parse(text) if _MARKED.search(text) else ast.Module([], [])
    except SyntaxError:
        return rules.UNMEASURED_S  # pytest says what is wrong with it
    marks = dict(marks_of(tree))
    quiet = bounds.of_file(file)
    seconds = [rules.UNMEASURED_S for _ in quiet if "quiet" in wanted]
    if "gate" in wanted and _has_other_marks(tree, text):
        seconds.append(0.0)
    for test, cost in rows.items():
        function = bounds.function_of(test).split("::")[1]
        if test not in quiet and rules.when(test, marks.get(function, frozenset()), rows) in wanted:
            seconds.append(cost.wall_s if by_wall else cost.cpu_s)
    for function in unmeasured(text, (test.partition("::")[2] for test in (*rows, *quiet))):
        if rules.when(f"{file}::{function}", marks.get(function, frozenset()), rows) in wanted:
            seconds.append(rules.UNMEASURED_S)
    return sum(seconds) if seconds else None


def plan(files: Mapping[str, str], costs: Mapping[str, Cost], wanted: Iterable[When], cpus: int) -> list[Lane]:
    """Return the lanes that have tests: at most one for each CPU, and the waiting lane. `files` has texts by path."""
    waiting, computing = Lane("waiting"), [Lane(f"cpu {number + 1}") for number in range(max(cpus, 1))]
    rows: dict[str, dict[str, Cost]] = {}
    for test, cost in costs.items():
        rows.setdefault(test.partition("::")[0], {})[test] = cost
    parts: dict[str, tuple[list[str], float]] = {}
    for file, text in files.items():
        folder = folder_of(file)
        cost_s = cost_of(file, text, rows.get(file, {}), wanted, by_wall=folder in WAITING)
        if cost_s is None:
            continue
        if folder in WAITING:
            waiting.take([file], cost_s)
        else:
            together, before_s = parts.get(key := folder if folder in SHARED else file, ([], 0.0))
            parts[key] = ([*together, file], before_s + cost_s)
    for part, cost_s in sorted(parts.values(), key=lambda part: (-part[1], part[0])):
        min(computing, key=lambda lane: lane.cost_s).take(part, cost_s)
    return [lane for lane in (*computing, waiting) if lane.files]
