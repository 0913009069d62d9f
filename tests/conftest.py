"""Configures all tests: their order (cheapest kinds first), their marks, and Hypothesis's profiles."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from squall.chaos.errors import PreconditionError
from tests.support import lacks, patience
from tests.support.effort import THOROUGH, examples
from tests.support.gate import bounds, costs, rules
from tests.support.gate.lanes import stage_of
from tests.support.two_names import with_two_names

TESTS = Path(__file__).parent
WHENS = {"gate", "night", "quiet"}

# Machines that are busy with other things must not turn a slow example into a failure.
settings.register_profile(
    "night", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100)
)
settings.register_profile("gate", settings.get_profile("night"), derandomize=True, database=None)
settings.load_profile("night" if THOROUGH else "gate")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the option --update, which rewrites golden files."""
    parser.addoption("--update", action="store_true", help="rewrite golden scripts with what happens now")
    pluginmanager.register(lacks)
    pluginmanager.register(patience)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Return whether golden scripts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def bound_s(request: pytest.FixtureRequest) -> float:
    """Return the limit in seconds for the time that this test measures (tests/support/gate/bounds.py)."""
    bound_s = bounds.bound_of(request.node.nodeid)
    assert bound_s is not None, "a test that asserts a bound has a row in BOUNDS_S"
    return bound_s


@pytest.fixture(scope="session", autouse=True)
def no_terminal() -> Iterator[None]:
    """Hide the width and the colours of the terminal that runs the tests: a test that needs a terminal makes one.

    The variables are restored at the end, because pytest's own summary uses them.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_name() -> Iterator[None]:
    """Assert at the end of the session that no module was imported under two names, which would define its classes
    twice.
    """
    yield
    assert not (twice := with_two_names()), "\n".join(twice)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Mark each test as gate, night or quiet, so that `-m` can select it. Then sort the tests by kind."""
    try:
        measured = costs.read()
    except PreconditionError as refused:
        raise pytest.UsageError(str(refused)) from refused
    for item in items:
        marks = frozenset(mark.name for mark in item.iter_markers())
        if (when := rules.when(item.nodeid, marks, measured)) not in marks:
            item.add_marker(when)
        # A world of a test that is in the gate may be for the night: `-m gate` must not select it.
        item.own_markers = [mark for mark in item.own_markers if mark.name not in WHENS - {when}]
    yield
    items.sort(key=lambda item: stage_of(item.path.relative_to(TESTS).parts[0]))
