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


def pytest_itemcollected(item: pytest.Item) -> None:
    """What runs whole clusters runs one after the other, also where there are two lanes (`--dist loadgroup`)."""
    if _stage(item) == STAGES.index("live"):
        item.add_marker(pytest.mark.xdist_group("live"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order by stage, keeping the (shuffled) order within each. A stage's tests cost more than all before it.

    Where there are two lanes the last stage comes first: it fills one of them, and the others fill the other.
    """
    lanes = bool(getattr(config.option, "numprocesses", None)) or hasattr(config, "workerinput")
    last = STAGES.index("live")
    items.sort(key=lambda item: -1 if lanes and _stage(item) == last else _stage(item))


def _stage(item: pytest.Item) -> int:
    kind = item.path.relative_to(TESTS).parts[0]
    return STAGES.index(kind) if kind in STAGES else len(STAGES)
