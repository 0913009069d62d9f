"""Skips tests for which this machine lacks something, and says what is lacking and which command gets it.

As a pytest plugin it lists these reasons at the end of a session. With --no-skips a skipped test fails the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

GET = "; get it: "


def without(need: str, get: str) -> str:
    """Return the reason of a skip. `need` is what is lacking, `get` the command that gets it."""
    return f"needs {' '.join(need.split())}{GET}{get}"


def skip_without(need: str, get: str) -> NoReturn:
    """Skip the running test because this machine lacks something."""
    pytest.skip(without(need, get))


def told_of_skipped(reasons: Iterable[str]) -> list[str]:
    """Return a line for each reason, the commonest first, with the number of tests that were skipped for it."""
    counted = Counter(reasons).most_common()
    return [f"{count:,} {'test was' if count == 1 else 'tests were'} skipped: {reason}" for reason, count in counted]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --no-skips, which `squall test --no-skips` passes on."""
    parser.addoption("--no-skips", action="store_true", help="fail where a test was skipped")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line for each reason of skipped tests, with the command that gets what is lacking."""
    told = told_of_skipped(_reasons(config))
    for line in told:
        terminalreporter.write_line(line, yellow=True)
    if told and config.getoption("--no-skips"):
        terminalreporter.write_line("--no-skips: that fails it", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let the session fail if a test was skipped and --no-skips is given."""
    if exitstatus == 0 and session.config.getoption("--no-skips") and _reasons(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reasons(config: pytest.Config) -> list[str]:
    """Return the reason of each skipped test."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", ()) if reporter is not None else ()
    return [each.longrepr[2].removeprefix("Skipped: ") for each in reports if isinstance(each.longrepr, tuple)]
