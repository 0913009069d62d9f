"""Lets a test report that it was not run because this machine lacks something: what, and the command that gets it.

As a plugin of pytest it prints all of it at the end, one line for each, and with --no-skips fails because of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

GET = "; get it: "


def without(need: str, get: str) -> str:
    """The reason of a skip. `need`: what is lacking; `get`: the command that gets it."""
    return f"needs {' '.join(need.split())}{GET}{get}"


def skip_without(need: str, get: str) -> NoReturn:
    """End this test as skipped, for want of something."""
    pytest.skip(without(need, get))


def told_of_skipped(reasons: Iterable[str]) -> list[str]:
    """One line for each reason, the commonest first: how many tests it kept from being run."""
    counted = Counter(reasons).most_common()
    return [f"{count:,} {'test was' if count == 1 else 'tests were'} skipped: {reason}" for reason, count in counted]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`squall test --no-skips`."""
    parser.addoption("--no-skips", action="store_true", help="fail where a test was skipped")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was not tried on this machine, one line for each reason, with what gets it."""
    told = told_of_skipped(_reasons(config))
    for line in told:
        terminalreporter.write_line(line, yellow=True)
    if told and config.getoption("--no-skips"):
        terminalreporter.write_line("--no-skips: that fails it", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With --no-skips a test that was skipped fails the whole."""
    if exitstatus == 0 and session.config.getoption("--no-skips") and _reasons(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reasons(config: pytest.Config) -> list[str]:
    """Why each test was skipped that was."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", ()) if reporter is not None else ()
    return [each.longrepr[2].removeprefix("Skipped: ") for each in reports if isinstance(each.longrepr, tuple)]
