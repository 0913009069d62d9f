"""Each invariant fires where it should, and not in the nearest situation that is sound."""

from __future__ import annotations

import pytest

from squall.chaos.runtimes.sim.invariants import INVARIANTS
from tests.support.clusters.invariant_cases import CASES
from tests.support.clusters.quorum_cases import Arguments

EVERY = [(name, *case) for name, cases in CASES.items() for case in cases]


def test_every_invariant_has_a_case_a_definition_and_a_source() -> None:
    assert CASES.keys() == INVARIANTS.keys()
    assert all(each.definition.endswith((".", ")")) and each.source for each in INVARIANTS.values())


@pytest.mark.parametrize(
    ("name", "about", "broken", "sound"), EVERY, ids=[f"{name}: {about}" for name, about, _, _ in EVERY]
)
def test_it_fires_where_it_should_and_nowhere_else(name: str, about: str, broken: Arguments, sound: Arguments) -> None:
    check = INVARIANTS[name].check
    assert check(*broken), f"{name} does not see {about}"
    assert check(*sound) is None
