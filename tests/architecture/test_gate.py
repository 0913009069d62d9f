"""Each folder of tests has tests in the gate, whatever they cost: otherwise its code could break unnoticed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath

from tests.architecture.source import Source, sources
from tests.support.gate import bounds, costs, rules
from tests.support.gate.costs import Cost
from tests.support.gate.lanes import marks_of


def test_each_folder_of_tests_has_one_in_the_gate() -> None:
    rows: dict[str, dict[str, Cost]] = {}
    for test, cost in costs.read().items():
        rows.setdefault(test.partition("::")[0], {})[test] = cost
    files: dict[str, list[Source]] = {}
    for source in sources("tests"):
        path = PurePosixPath(source.name)
        if path.name.startswith("test_"):
            files.setdefault("/".join(path.parts[: min(3, len(path.parts) - 1)]), []).append(source)
    without = [
        folder
        for folder, inside in sorted(files.items())
        if not any(in_gate(each, rows.get(each.name, {})) for each in inside)
    ]
    assert not without, "make one of its tests cheap, or mark it gate:\n" + "\n".join(without)


def in_gate(source: Source, rows: Mapping[str, Cost]) -> bool:
    """Return whether the gate runs a test of this file. `rows` has the file's costs by node id."""
    cases: dict[str, list[str]] = {}
    for test in rows:
        cases.setdefault(bounds.function_of(test).split("::")[1], []).append(test)
    return any(
        rules.when(case, marks, rows) == "gate"
        for name, marks in marks_of(source.tree)
        for case in cases.get(name, [f"{source.name}::{name}"])
    )


def test_what_is_measured_or_marked_decides() -> None:
    text = "@parametrize('x', [param(1, marks=pytest.mark.gate), 2])\ndef test_a(x): ...\nTestB = B.C\n"
    source = Source("tests/unit/x/test_y.py", text, ast.parse(text))
    assert dict(marks_of(source.tree)) == {"test_a": {"gate"}, "TestB": frozenset()}
    other = Source("tests/unit/x/test_y.py", "", ast.parse("def test_c(): ..."))
    dear, cheap = Cost(9.0, 9.0), Cost(0.1, 0.1)
    assert in_gate(source, {"tests/unit/x/test_y.py::test_a[1]": dear})
    assert in_gate(other, {})
    assert in_gate(other, {"tests/unit/x/test_y.py::test_c[0]": dear, "tests/unit/x/test_y.py::test_c[1]": cheap})
    assert not in_gate(other, {"tests/unit/x/test_y.py::test_c[0]": dear})
