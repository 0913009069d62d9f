"""Branches that a batch did not reach are recorded from real code, compared with its source, and explained."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from squall.chaos import cli
from squall.chaos.runs.branch_coverage import (
    IMPOSSIBLE,
    LEFT_OUT,
    MEASURED,
    RARE,
    REASONS,
    UNDRAWN,
    ArcRecorder,
    UnreachedReason,
    read_path_reasons,
    read_reasons,
    report_of,
)
from squall.chaos.runs.rare_paths import PATHS

ROOT = Path(__file__).resolve().parents[3]
FILE = "broker/doors.py"
SOURCE = '''
if __name__ == "__main__":
    raise SystemExit


def knock(times):
    if times > 3:
        return "come in"
    return "who is there?"


class Door:
    def open(self):
        if self:
            pass

    def shut(self):
        def latch():
            pass
        latch()
'''


@pytest.fixture
def doors(tmp_path: Path) -> ModuleType:
    """A module in a folder `broker` of its own, loaded before anything is recorded."""
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(SOURCE)
    (tmp_path / "broker/protocol/schema").mkdir(parents=True)
    (tmp_path / "broker/protocol/schema/made.py").write_text(SOURCE)
    spec = spec_from_file_location("doors", tmp_path / FILE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tracing() -> Iterator[None]:
    """Give another tracer, such as one that measures these tests, its place back."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


def taken(root: Path, *calls: Callable[[], object]) -> list[dict[str, set[tuple[int, int]]]]:
    """Return what one recorder finds new in each of the calls."""
    recorder, found = ArcRecorder(root), []
    for call in calls:
        with recorder.recording():
            call()
        found.append(recorder.take_new())
    return found


@pytest.mark.usefixtures("tracing")
def test_a_branch_that_was_not_taken_and_a_function_that_was_not_called_are_listed(
    doors: ModuleType, tmp_path: Path
) -> None:
    (arcs,) = taken(tmp_path, lambda: doors.knock(1))
    report = report_of(arcs, (), tmp_path)
    assert [(each.file, each.line, each.function, each.branch()) for each in report.unreached] == [
        (FILE, 7, "knock", 'if times > 3: -> return "come in"'),
        (FILE, 13, "Door.open", "never called: def open(self):"),
        (FILE, 17, "Door.shut", "never called: def shut(self):"),
    ]
    assert (report.branches, report.reached, report.functions, report.called) == (4, 1, 4, 1)
    assert report.unexplained() == list(report.unreached)


@pytest.mark.usefixtures("tracing")
def test_arcs_are_handed_over_once_and_add_up(doors: ModuleType, tmp_path: Path) -> None:
    first, again, last = taken(tmp_path, lambda: doors.knock(1), lambda: doors.knock(2), lambda: doors.knock(4))
    assert first and not again
    assert set(last) == {FILE} and not first[FILE] & last[FILE]
    both = {FILE: first[FILE] | last[FILE]}
    assert [each.function for each in report_of(both, (), tmp_path).unreached] == ["Door.open", "Door.shut"]


@pytest.mark.usefixtures("tracing")
def test_a_reason_explains_what_it_names_and_is_refuted_once_all_of_it_was_taken(
    doors: ModuleType, tmp_path: Path
) -> None:
    arcs = taken(tmp_path, lambda: doors.knock(1), lambda: doors.knock(4))
    both = {FILE: arcs[0][FILE] | arcs[1][FILE]}
    reasons = (
        UnreachedReason(IMPOSSIBLE, "broker/d*", ("Door.o*", "knock"), (), "the house is empty"),
        UnreachedReason(UNDRAWN, FILE, (), ("never called: def shut*",), "to be done"),
    )
    report = report_of(both, reasons, tmp_path)
    assert [each.function for each in report.explained(IMPOSSIBLE)] == ["Door.open"]
    assert [each.function for each in report.explained(UNDRAWN)] == ["Door.shut"]
    assert not report.unexplained()
    assert report.refuted == ("broker/d*: knock",)
    of_uncalled = (
        UnreachedReason(IMPOSSIBLE, FILE, (), (), "all"),
        UnreachedReason(IMPOSSIBLE, FILE, ("Door.open",), ("if self: -> pass",), "a branch of what was never called"),
        UnreachedReason(IMPOSSIBLE, FILE, ("Door.shut.latch",), (), "inside of what was never called"),
    )
    assert report_of(both, of_uncalled, tmp_path).refuted == ()


def qualified_names(path: Path) -> set[str]:
    """The functions of a file, as coverage.py names them."""

    def of(node: ast.AST, above: str) -> Iterator[str]:
        for each in ast.iter_child_nodes(node):
            named = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{above}{each.name}" if named else above  # type: ignore[attr-defined]
            if named and not isinstance(each, ast.ClassDef):
                yield name
            yield from of(each, f"{name}." if named else above)

    return set(of(ast.parse(path.read_text()), ""))


def test_each_reason_is_about_functions_that_there_are_and_says_something() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / MEASURED).rglob("*.py")]
    known = {file: qualified_names(ROOT / file) for file in files if not file.startswith(LEFT_OUT)}
    wrong = []
    for each in read_reasons():
        names = {name for file, found in known.items() if fnmatchcase(file, each.file) for name in found}
        assert names, f"no function in {each.file}"
        wrong += [f"{each.file}: {name}" for name in each.functions if not any(fnmatchcase(n, name) for n in names)]
        if not each.reason.endswith("."):
            wrong.append(f"{each.file}: a reason is a sentence: {each.reason!r}")
    assert wrong == []


def test_the_table_has_no_other_keys_and_names_rare_paths_that_there_are() -> None:
    table = tomllib.loads(REASONS.read_text())
    allowed = {
        IMPOSSIBLE: {"file", "functions", "branches", "reason"},
        UNDRAWN: {"file", "functions", "branches", "reason"},
        RARE: {"file", "functions", "branches", "reason"},
        "path": {"name", "reason"},
    }
    assert table.keys() <= allowed.keys()
    assert [row for kind, rows in table.items() for row in rows if not row.keys() <= allowed[kind]] == []
    assert set(read_path_reasons()) <= set(PATHS)


def test_without_coverage_py_the_option_is_refused_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "coverage", None)
    assert cli.run(["sim", "--seeds", "0..1", "--coverage", "--out", str(tmp_path)]) == 3
    said = capsys.readouterr().err
    assert "coverage.py, which is not installed: pip install 'coverage" in said
    assert "Traceback" not in said


def test_one_seed_has_no_coverage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sim", "--swarm", "--seed", "0", "--coverage", "--out", str(tmp_path)]) == 3
    assert "--coverage measures a batch: give --seeds A..B" in capsys.readouterr().err
