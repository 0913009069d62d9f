"""Some planted bugs show to clients alone, and each of the anomalies that are rare in sound runs is shown by one."""

from __future__ import annotations

import pytest

from chaos.commands.hunt import simulated
from chaos.mutants import MUTANTS, find
from chaos.mutants.hunt import sound
from chaos.runs.simulation import simulate

SHOWN = {
    "failed-yet-read": "20c",
    "wrong-offset": "67",
    "stale-ack": "54",
    "poll-skip": "69",
    "corrupt": "58",
    "phantom": "61",
    "duplicate": "66",
    "lost-write": "57",
}
"""Anomaly to a mutant whose first plan shows it."""


@pytest.mark.parametrize(("anomaly", "mutant"), SHOWN.items())
def test_clients_see_it_without_a_look_into_the_brokers(anomaly: str, mutant: str) -> None:
    planted = find(mutant)
    plan = planted.plan(0)
    result = simulate(plan, mutant=mutant, stop_at_first=False)
    assert anomaly in result.anomalies
    assert anomaly in planted.anomalies
    seen = simulated(history=True)(plan, mutant)
    assert seen is not None
    assert seen.name in planted.anomalies
    assert simulated(history=True)(sound(planted, plan), None) is None


BY_ANOTHER_PLAN = {
    "3": 1,
    "5": 0,
    "7": 0,
    "8": 0,
    "10": 0,
    "11": 0,
    "12": 0,
    "13": 0,
    "14": 0,
    "15": 0,
    "16b": 0,
    "19b": 3,
    "20": 0,
    "24": 0,
}
"""Mutant to a seed whose plan shows it to clients. What a seed comes to moves with the broker's timing: then
`squall hunt --checks history` names another one.
"""


@pytest.mark.parametrize(("mutant", "seed"), BY_ANOTHER_PLAN.items())
def test_what_its_own_plan_shows_to_invariants_alone_another_one_shows_to_clients(mutant: str, seed: int) -> None:
    planted = find(mutant)
    assert planted.seen_plan is not None
    plan = planted.seen_plan(seed)
    seen = simulated(history=True)(plan, mutant)
    assert seen is not None
    assert seen.name in planted.anomalies
    assert simulated(history=True)(sound(planted, plan), None) is None


def test_no_such_plan_is_left_out() -> None:
    assert {mutant for mutant, planted in MUTANTS.items() if planted.seen_plan is not None} == BY_ANOTHER_PLAN.keys()
