"""A pytest plugin that writes a line of JSON for each test as it ends, and the reader of these lines.

    {"test": "tests/unit/x.py::test_y[1]", "result": "passed", "cpu_s": 0.12, "wall_s": 0.3, "why": ""}

`result` is passed, failed or skipped; `why` is the reason of a skip, or the last line of a failure. Each lane writes a
file of its own. A file of tests that was skipped whole, or could not be imported, has a line of its own.

The file of a whole session has a head before these lines. After them it has {"tests": 9}, the number of tests to run.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from squall.chaos.errors import PreconditionError
from tests.support.gate import costs


class Result(NamedTuple):
    """The result of one test, and what it cost."""

    test: str
    result: str
    cpu_s: float
    wall_s: float
    why: str = ""
    flaky: bool = False
    """Whether it failed, and passed when it was run once more, alone."""

    def line(self) -> str:
        """Return this result as JSON, without a newline."""
        return json.dumps({**self._asdict(), "cpu_s": round(self.cpu_s, 2), "wall_s": round(self.wall_s, 2)})


def heads(file: Path) -> list[dict[str, str]]:
    """Return the head of each session that wrote to a file; none if it does not exist.

    Raises PreconditionError if the file is not empty and does not begin with a head.
    """
    lines = list(_rows(file))
    if lines and "commit" not in lines[0] or not lines and file.exists() and file.stat().st_size:
        raise PreconditionError(f"{file}: holds no results of tests; give --results a file that does not exist yet")
    return [line for line in lines if "commit" in line]


def read(file: Path) -> list[Result]:
    """Return the last result of each test in a file. Heads, and lines that were not written whole, are left out."""
    rows = [row for row in _rows(file) if row.keys() - {"flaky", "why"} == {"test", "result", "cpu_s", "wall_s"}]
    return list({row["test"]: Result(**row) for row in rows}.values())


def lost(file: Path) -> str:
    """Return a sentence if the file of an ended session lacks results; empty if it has all of them."""
    counts = [row["tests"] for row in _rows(file) if row.keys() == {"tests"}]
    if not counts:
        return f"{file.name} does not say how many tests were to run: lines of its end are lost"
    has = len(read(file))
    return f"{file.name} has results of {has:,} of {counts[-1]:,} tests" if has < counts[-1] else ""


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for the files to write, and for the tests to leave out."""
    parser.addoption("--results-to", metavar="FILE", help="append a line of JSON for each test to this file")
    parser.addoption("--leave-out", metavar="FILE", help="do not run the tests whose node ids are in this file")
    parser.addoption("--selected-to", metavar="FILE", help="write the node ids of all selected tests to this file")


class Recorder:
    """Measures each test of a session, and writes its line as it ends."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._result, self._why = "passed", ""
        self._running: str | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure set-up, call and tear-down together."""
        began = costs.now()
        self._result, self._why = "passed", ""
        self._write(json.dumps({"running": item.nodeid}))
        # A test that Ctrl-C or pytest.exit ended has no result: it runs again when the session is resumed.
        ended = yield
        self._write(Result(item.nodeid, self._result, *costs.since(began), self._why).line())
        return ended

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst result of the test's set-up, call and tear-down."""
        if report.failed:
            self._result, self._why = "failed", _last_line(report)
        elif report.skipped and self._result == "passed" and not hasattr(report, "wasxfail"):
            self._result, self._why = "skipped", _why_skipped(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a line for a file of tests that could not be imported, or was skipped whole."""
        if report.failed:
            self._write(Result(report.nodeid, "failed", 0, 0, _last_line(report)).line())
        elif report.skipped:
            self._write(Result(report.nodeid, "skipped", 0, 0, _why_skipped(report)).line())

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


def _why_skipped(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""


def _last_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the message of a failure as pytest's summary shows it, if it has one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr).strip().split("\n")[0][:300]


def pytest_configure(config: pytest.Config) -> None:
    """Start writing to the files that the options name."""
    if config.getoption("--selected-to"):
        config.pluginmanager.register(Lister(Path(config.getoption("--selected-to"))))
    if config.getoption("--results-to"):
        file = open(config.getoption("--results-to"), "a", encoding="utf-8")  # until the process ends
        config.add_cleanup(file.close)
        config.pluginmanager.register(Recorder(file))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that the options leave out."""
    if file := config.getoption("--leave-out"):
        left_out = frozenset(Path(file).read_text(encoding="utf-8").splitlines())
        dropped = [item for item in items if item.nodeid in left_out]
        items[:] = [item for item in items if item.nodeid not in left_out]
        config.hook.pytest_deselected(items=dropped)


class Lister:
    """Writes a line for each collected test: node id, when it runs, the reason of its mark `night`, and whether it is
    selected.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._deselected: list[pytest.Item] = []

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Remember deselected tests: they are listed too, because another session may have to run them."""
        self._deselected += items

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the lines of all tests."""
        chosen = ((item, which) for which, items in (("1", session.items), ("", self._deselected)) for item in items)
        lines = (f"{item.nodeid}\t{_when(item)}\t{_reason(item)}\t{which}\n" for item, which in chosen)
        self._file.write_text("".join(lines), encoding="utf-8")


def _when(item: pytest.Item) -> str:
    return next((name for name in ("quiet", "night", "gate") if item.get_closest_marker(name)), "gate")


def _reason(item: pytest.Item) -> str:
    return next((" ".join(str(mark.args[0]).split()) for mark in item.iter_markers("night") if mark.args), "")
