"""What all tests share: their order, cheapest and most trusted first, and Hypothesis's profiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

STAGES = ("architecture", "unit", "property", "scripts", "sim", "parity", "interop", "live")
TESTS = Path(__file__).parent

# Machines that are busy with other things must not turn a slow example into a failure.
settings.register_profile("squall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("squall"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "squall")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden scripts: read the difference before you commit it."""
    parser.addoption("--update", action="store_true", help="rewrite golden scripts with what happens now")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden scripts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by stage, keeping the (shuffled) order within each. A stage's tests cost more than all before it."""
    items.sort(key=_stage)


def _stage(item: pytest.Item) -> int:
    kind = item.path.relative_to(TESTS).parts[0]
    return STAGES.index(kind) if kind in STAGES else len(STAGES)
