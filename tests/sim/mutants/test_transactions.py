"""Every planted bug of transactions shows to clients, and a sound broker is silent under the same plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.commands.hunt import simulated
from chaos.mutants import find, select
from chaos.mutants.hunt import sound
from chaos.runs.simulation import simulate

FOUND = {
    "25": 0,
    "26": 0,
    "26b": 0,
    "27": 0,
    "28": 0,
    "29": 0,
    "29b": 0,
    "30": 0,
    "31": 0,
    "31b": 0,
    "32": 0,
    "33": 0,
    "35": 0,
    "37": 0,
    "37b": 0,
    "48": 1,
    "49": 0,
    "50": 0,
    "59": 0,
    "60": 0,
    "64": 0,
    "72": 0,
}
"""Mutant to a seed whose plan shows it. What a seed comes to moves with the broker's timing: then the hunt names
another one.
"""
FEW_EPOCHS = "first_epoch"


@pytest.mark.parametrize(("mutant", "seed"), FOUND.items())
def test_clients_see_it(mutant: str, seed: int) -> None:
    run, planted = simulated(), find(mutant)
    plan = planted.plan(seed)
    seen = run(plan, mutant)
    assert seen is not None
    assert seen.name in planted.expected
    assert run(sound(planted, plan), None) is None


def test_none_is_left_out() -> None:
    assert {mutant.id for mutant in select("transactions") if not mutant.masked} == FOUND.keys()


@pytest.mark.parametrize("mutant", ["29", "29b", "59"])
def test_a_sound_broker_comes_to_the_end_of_its_epochs_and_goes_on(mutant: str) -> None:
    planted = find(mutant)
    few = replace(planted, replaces=tuple(each for each in planted.replaces if each.name == FEW_EPOCHS))
    assert len(few.replaces) == 1
    with few.planted():
        result = simulate(planted.plan(FOUND[mutant]))
    assert (result.verdict, result.failure) == ("valid", None), result.told
