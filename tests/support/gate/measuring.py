"""A plugin of pytest that measures each test: `-p tests.support.gate.measuring --costs-to FILE`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.gate import costs


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the rows go."""
    parser.addoption("--costs-to", metavar="FILE", help="write what each test cost to this file")


class Measuring:
    """Measures the tests of one session, and writes a row for each one that passed or was expected to fail."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._costs: dict[str, costs.Cost] = {}
        self._not_run: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure set-up, call and tear-down together."""
        began = costs.now()
        try:
            return (yield)
        finally:
            self._costs[item.nodeid] = costs.since(began)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice the tests whose cost says nothing: those that failed or were skipped."""
        if report.failed or report.skipped:
            self._not_run.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the rows."""
        costs.write({test: cost for test, cost in self._costs.items() if test not in self._not_run}, self._file)


def pytest_configure(config: pytest.Config) -> None:
    """Measure where a file is named."""
    if config.getoption("--costs-to"):
        config.pluginmanager.register(Measuring(Path(config.getoption("--costs-to"))))
