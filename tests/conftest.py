"""What all tests share: their order, cheapest and most trusted first, and Hypothesis's profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.support import lacks
from tests.support.gate import costs, measuring, rules

STAGES = ("architecture", "unit", "mechanisms", "property", "scripts", "sim", "parity", "interop", "live")
TESTS = Path(__file__).parent
LONGEST = ("tests/live/contract/", "tests/live/docker/")
"""Half of all the time, and most of that is waiting."""

# Machines that are busy with other things must not turn a slow example into a failure.
settings.register_profile("squall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("squall"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "squall")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Golden scripts: read the difference before you commit it."""
    parser.addoption("--update", action="store_true", help="rewrite golden scripts with what happens now")
    pluginmanager.register(lacks)
    if not pluginmanager.has_plugin("tests.support.gate.measuring"):
        pluginmanager.register(measuring)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden scripts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def bound_s(request: pytest.FixtureRequest) -> float:
    """The most seconds that what this quiet test measures may take."""
    return rules.BOUNDS_S[rules.function_of(request.node.nodeid)]


@pytest.fixture(scope="session", autouse=True)
def no_terminal() -> Iterator[None]:
    """How wide or colourful the terminal of whoever runs the tests is decides nothing: a test that needs one makes it.

    Given back at the end: pytest's own summary uses it.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        yield


class Lanes(LoadFileScheduling):
    """pytest-xdist's work: each file to whoever is free, but the longest part to one worker alone, in turn."""

    def _split_scope(self, nodeid: str) -> str:
        return "longest" if nodeid.startswith(LONGEST) else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes:
    """Of `--numprocesses`: see `squall test`."""
    return Lanes(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order by stage, keeping the (shuffled) order within each. A stage's tests cost more than all before it.

    Where there are lanes the longest part comes first: it has one of them for itself.
    """
    measured = costs.read()
    for item in items:
        marks = frozenset(mark.name for mark in item.iter_markers())
        when = rules.when(item.nodeid, marks, measured)
        if when not in marks:
            item.add_marker(when)
    lanes = bool(getattr(config.option, "numprocesses", None)) or hasattr(config, "workerinput")
    items.sort(key=lambda item: -1 if lanes and item.nodeid.startswith(LONGEST) else _stage(item))


def _stage(item: pytest.Item) -> int:
    kind = item.path.relative_to(TESTS).parts[0]
    return STAGES.index(kind) if kind in STAGES else len(STAGES)
