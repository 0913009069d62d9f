"""Every planted bug of group coordinators shows to clients, and a sound broker is silent under the same plan."""

from __future__ import annotations

import pytest

from chaos.commands.hunt import simulated
from chaos.mutants import find, select
from chaos.mutants.hunt import sound

FOUND = {
    "38": 0,
    "39": 0,
    "40": 6,
    "41": 0,
    "41b": 0,
    "44": 0,
    "45": 0,
    "46": 0,
    "51": 0,
    "52": 0,
    "73": 2,
    "75": 0,
    "76": 0,
    "78": 0,
    "79": 0,
}
"""Mutant to a seed whose plan shows it. What a seed comes to moves with the broker's timing: then the hunt names
another one.
"""


@pytest.mark.parametrize(("mutant", "seed"), FOUND.items())
def test_clients_see_it(mutant: str, seed: int) -> None:
    run, planted = simulated(), find(mutant)
    plan = planted.plan(seed)
    seen = run(plan, mutant)
    assert seen is not None
    assert seen.name in planted.expected
    assert run(sound(planted, plan), None) is None


def test_none_is_left_out() -> None:
    assert {mutant.id for mutant in select("groups") if not mutant.masked} == FOUND.keys()
