"""A plugin of pytest that writes a line of JSON for each test as it ends, and the reader of these lines.

    {"test": "tests/unit/x.py::test_y[1]", "result": "passed", "cpu_s": 0.12, "wall_s": 0.3, "why": ""}

`result` is passed, failed or skipped; `why` is the reason of a skip, or the last line of a failure. The lane of a test
is the file that its line is in.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.support.gate import costs


class Result(NamedTuple):
    """What one test came to, and what it cost."""

    test: str
    result: str
    cpu_s: float
    wall_s: float
    why: str = ""
    flaky: bool = False
    """It failed, and passed when it was run once more, alone."""

    def line(self) -> str:
        """This result as JSON, without a line's end."""
        return json.dumps({**self._asdict(), "cpu_s": round(self.cpu_s, 2), "wall_s": round(self.wall_s, 2)})


def read(file: Path) -> list[Result]:
    """The last result of each test in a file. Heads are left out, and so is a last line that was not written whole."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    rows = (json.loads(line) for line in lines if line.endswith("\n"))
    return list({row["test"]: Result(**row) for row in rows if "test" in row}.values())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the lines go, and which tests are left out."""
    parser.addoption("--results-to", metavar="FILE", help="append a line of JSON for each test to this file")
    parser.addoption("--leave-out", metavar="FILE", help="do not run the tests whose node ids are in this file")
    parser.addoption("--selected-to", metavar="FILE", help="write the node ids of all selected tests to this file")


class Recorder:
    """Measures the tests of one session, and writes the line of each one as it ends."""

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
        try:
            return (yield)
        finally:
            cost = costs.since(began)
            self._write(Result(item.nodeid, self._result, *cost, self._why).line())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the worst of a test's three phases."""
        if report.failed:
            self._result, self._why = "failed", _last_line(report)
        elif report.skipped and self._result == "passed" and not hasattr(report, "wasxfail"):
            self._result = "skipped"
            self._why = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write that a file could not be read, as a test that failed."""
        if report.failed:
            self._write(Result(report.nodeid, "failed", 0, 0, _last_line(report)).line())

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()


def _last_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What the failure says: the message of pytest's own summary, where there is one."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr).strip().split("\n")[0][:300]


def pytest_configure(config: pytest.Config) -> None:
    """Record where a file is named."""
    if config.getoption("--results-to"):
        file = open(config.getoption("--results-to"), "a", encoding="utf-8")  # until the process ends
        config.add_cleanup(file.close)
        config.pluginmanager.register(Recorder(file))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not to run."""
    if file := config.getoption("--leave-out"):
        left_out = frozenset(Path(file).read_text(encoding="utf-8").splitlines())
        dropped = [item for item in items if item.nodeid in left_out]
        items[:] = [item for item in items if item.nodeid not in left_out]
        config.hook.pytest_deselected(items=dropped)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write what is selected, once everything is known: node id, when it runs, and the reason of its mark `night`."""
    if file := session.config.getoption("--selected-to"):
        lines = (f"{item.nodeid}\t{_when(item)}\t{_reason(item)}\n" for item in session.items)
        Path(file).write_text("".join(lines), encoding="utf-8")


def _when(item: pytest.Item) -> str:
    return next((name for name in ("quiet", "night", "gate") if item.get_closest_marker(name)), "gate")


def _reason(item: pytest.Item) -> str:
    return next((str(mark.args[0]) for mark in item.iter_markers("night") if mark.args), "")
