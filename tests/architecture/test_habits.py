"""Checks how the code is written, as far as a machine can check it."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.architecture.sets import unordered_iterations
from tests.architecture.source import PACKAGES, ROOT, Source, node_code, own_nodes, sources

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_P90_LINES = 30

KNOWN_LONG: dict[str, int] = {}
"""Functions longer than 70 lines, "file:qualified name" -> lines. May only shrink."""

KNOWN_LONG_FILES: dict[str, int] = {}
"""Files longer than 500 lines -> lines. May only shrink."""

PURE = (
    "broker/protocol/",
    "broker/replication/",
    "broker/quorum/",
    "broker/controller/",
    "broker/coordinators/",
    "broker/cluster/",
    "checkers/",
    "chaos/faults/vocabulary.py",
    "chaos/plans/schedule.py",
    "chaos/faults/targets.py",
)
"""Packages that decide without I/O and without side effects."""

BANNED_CALLS = {
    "open": "env.fs",
    "print": "env.trace",
    "input": "nobody is there to ask",
    "breakpoint": "nobody is there to ask",
    "hash": "it differs from process to process",
    "id": "it differs from process to process",
    "eval": "say it in code",
    "exec": "say it in code",
}


def test_node_code_calls_nothing_that_differs_from_process_to_process_or_goes_round_the_seam() -> None:
    found = [
        f"{source.where(node)}: {node.func.id}(): {BANNED_CALLS[node.func.id]}"
        for source in node_code()
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS
    ]
    assert not found, "\n".join(found)


def test_pure_rooms_write_and_print_nothing() -> None:
    found = [
        f"{source.where(node)}: {node.func.id}()"
        for source in sources(*PACKAGES)
        if source.name.startswith(PURE) and "/codegen/" not in source.name and not _is_edge(source)
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS
    ]
    assert not found, "\n".join(found)


def _is_edge(source: Source) -> bool:
    """Return whether this file of checkers/ may read a run directory."""
    return source.name.startswith("checkers/") and ("Path" in source.text or "open(" in source.text)


def test_no_protocol_is_looked_for_by_isinstance() -> None:
    """Since Python 3.12 `isinstance` does not see methods that an object forwards by `__getattr__`, as wrappers of
    runtimes do. Before, it did, so a test of behaviour would fail on some Pythons only.
    """
    found = [source.name for source in sources(*PACKAGES) if "runtime_checkable" in source.text]
    assert found == []


def test_node_code_has_no_async_generators() -> None:
    found = [
        f"{source.where(function)}: {name}"
        for source in node_code()
        for name, function in source.functions
        if isinstance(function, ast.AsyncFunctionDef)
        and any(isinstance(node, ast.Yield) for node in own_nodes(function))
    ]
    assert not found, "their clean-up runs when the garbage collector likes:\n" + "\n".join(found)


def test_node_code_makes_no_random_generators_of_its_own() -> None:
    found = [
        source.where(node)
        for source in node_code()
        for node in source.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "Random"
        and not node.args
    ]
    assert not found, "without a seed nothing can be played again:\n" + "\n".join(found)


def test_no_order_of_a_set_gets_into_what_a_node_or_a_pure_room_does() -> None:
    rooms = [*node_code(), *(source for source in sources("chaos", "checkers") if source.name.startswith(PURE))]
    found = [
        f"{source.where(node)}: {ast.unparse(node)[:100]}"
        for source in rooms
        for node in unordered_iterations(source.tree)
    ]
    assert not found, "sort it, or keep it in a dict or a tuple:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("code", "alarms"),
    [
        ("for x in {1, 2}: act(x)", 1),
        ("def f(s: set[int]) -> None:\n    for x in s: act(x)", 1),
        ("class C:\n    s: set[int] = set()\n    def f(self):\n        return list(self.s)", 1),
        ("s = frozenset(a) | b\nt = [x for x in s]", 1),
        ("s = set(a)\nact(*s)", 1),
        ("s = set(a)\nt = ','.join(s)", 1),
        ("s = set(a)\nfor x in sorted(s): act(x)", 0),
        ("s = set(a)\nt = {x for x in s}\nn = sum(x for x in s)\nm = sorted(x for x in s)\nk = sorted(list(s))", 0),
        ("d = dict(a)\nfor x in d: act(x)", 0),
        ("s = set(a)\nif x in s: act(x)", 0),
    ],
)
def test_the_finder_of_set_iterations_finds_them_and_only_them(code: str, alarms: int) -> None:
    assert len(list(unordered_iterations(ast.parse(code)))) == alarms


def test_files_are_short() -> None:
    lengths = {source.name: source.text.count("\n") for source in sources(*PACKAGES, "tests")}
    _only_shrinks(lengths, MAX_FILE_LINES, KNOWN_LONG_FILES)


def test_functions_are_short() -> None:
    lengths = {
        f"{source.name}:{name}": _lines(function)
        for source in sources(*PACKAGES, "tests")
        for name, function in source.functions
    }
    _only_shrinks(lengths, MAX_FUNCTION_LINES, KNOWN_LONG)


def _only_shrinks(lengths: dict[str, int], limit: int, known: dict[str, int]) -> None:
    grown = {name: lines for name, lines in lengths.items() if lines > known.get(name, limit)}
    assert not grown, f"longer than {limit} lines, or than it was: split it"
    done = [name for name in known if lengths.get(name, 0) <= limit]
    assert not done, "short by now, or gone: take it off the list of known ones"


@pytest.mark.parametrize("package", PACKAGES)
def test_nine_of_ten_functions_are_very_short(package: str) -> None:
    lengths = sorted(_lines(function) for source in sources(package) for _, function in source.functions)
    if lengths:
        assert lengths[len(lengths) * 9 // 10] <= MAX_P90_LINES


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_every_module_says_what_it_is_for() -> None:
    silent = [source.name for source in sources(*PACKAGES) if not ast.get_docstring(source.tree)]
    assert not silent


def test_no_test_hides_inside_another_function() -> None:
    hidden = [
        f"{source.where(function)}: {name}"
        for source in sources("tests")
        for name, function in source.functions
        if function.name.startswith("test_")
        and "." in name
        and not name.split(".")[0].startswith("Test")
        and not name[0].isupper()
    ]
    assert not hidden, "pytest never finds:\n" + "\n".join(hidden)


def test_no_test_sleeps() -> None:
    """Helpers may: to wait for an outside process they poll it within a time limit."""
    asleep = [
        source.where(node)
        for source in sources("tests")
        if "time.sleep" in source.text
        for _, function in source.functions
        if function.name.startswith("test_")
        for node in own_nodes(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"
    ]
    assert not asleep, "wait for what is meant instead:\n" + "\n".join(asleep)


def test_a_broker_loads_none_of_the_harnesses_libraries() -> None:
    script = (
        "import sys, squall.broker.__main__; "
        "heavy = {'pydantic', 'msgspec', 'numpy', 'pandas', 'pyarrow', 'rich', 'click', 'structlog', 'requests'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
