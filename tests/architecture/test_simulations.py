"""Tests that simulate a cluster are in tests/sim: they cost a hundred times what a unit test costs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source import sources

RUNNERS = ("squall.chaos.runs.simulation", "squall.chaos.runtimes.sim.runtime", "squall.chaos.fixture", "tests.sim")
"""Modules whose import means that a test simulates a whole cluster."""


def runners_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names of imported modules of RUNNERS."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        else:
            continue
        yield from (name for name in names if name.startswith(tuple(f"{each}." for each in RUNNERS)) or name in RUNNERS)


def test_no_unit_test_simulates_a_cluster() -> None:
    found = [
        f"{source.name} imports {name}"
        for source in sources("tests")
        if source.name.startswith("tests/unit/")
        for name in runners_in(source.tree)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from squall.chaos.runs.simulation import simulate", True),
        ("from squall.chaos.runs import simulation", True),
        ("import squall.chaos.fixture.handle", True),
        ("def test():\n    from tests.sim.world.conftest import simulated", True),
        ("from squall.chaos.runs import batch", False),
        ("from squall.chaos.runtimes.sim.runtimes import x", False),
    ],
)
def test_the_finder_of_runners_finds_them_and_nothing_else(code: str, found: bool) -> None:
    assert any(runners_in(ast.parse(code))) == found
