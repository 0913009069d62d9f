"""`squall hunt` finds each planted bug (mutant) with one of a batch of plans, and finds nothing in a broker without
one.

The tests name no seed, because every change of the broker's timing changes what a seed does; the batch stays the same.
Fifteen mutants are searched in the gate by what clients see, and one by the brokers' files; all of them are at night.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from squall.chaos.commands.hunt import ALL, FILES, HuntTask, run_task
from squall.chaos.mutants import MUTANTS, find
from squall.chaos.mutants.hunt import MutantHuntResult
from squall.chaos.mutants.table import HISTORY
from squall.chaos.runs.simulation import simulate
from squall.checkers.anomalies.registry import CATALOG

SEEDS = 30
"""The most plans for one mutant. The search stops at the first that finds it, which is mostly seed 0."""

GATE = {
    "14": "lost-write",
    "61": "phantom",
    "66": "duplicate",
    "55": "poll-skip",
    "20c": "failed-yet-read",
    "26": "G1a",
    "60": "torn-txn",
    "31": "dirty-read",
    "51": "lost-position",
    "78": "stuck-group",
    "94": "int-nonmonotonic-poll",
    "95": "lso-violation",
    "96": "poll-skip",
    "97": "poll-skip",
    "98": "poll-skip",
}
"""The mutants that the gate searches, and the anomaly that each must show: of data, readers, transactions, groups and
loads.
"""

RARE = {
    "failed-yet-read": "20c",
    "wrong-offset": "67",
    "stale-ack": "54",
    "poll-skip": "69",
    "corrupt": "58",
    "phantom": "61",
    "duplicate": "66",
    "send-reorder": "83",
    "int-poll-skip": "84",
    "nonmonotonic-poll": "85",
    "int-nonmonotonic-poll": "86",
    "thrown-back": "87",
    "lso-violation": "88",
    "G1c": "89",
    "zombie-write": "90",
    "eos-loss": "91",
    "unseen": "92",
}
"""Anomalies that runs without a planted bug hardly ever come near, each with a mutant that shows it."""

FOUND = [mutant for mutant, planted in MUTANTS.items() if not planted.masked]
SEEN = [mutant for mutant, planted in MUTANTS.items() if planted.client_visible_plan is not None]
FEW_EPOCHS = "first_epoch"
NIGHT = pytest.mark.night("hunts planted bugs; the gate hunts sixteen")


def hunted(mutant: str, checks: str) -> MutantHuntResult:
    """Return the result of `squall hunt` for a mutant, without a time limit."""
    order = HuntTask(mutant, 0, SEEDS, math.inf, shrink_s=0.0, more=0, controls=0, swarm=False, checks=checks)
    found = run_task(order)
    assert not found.false_alarms, f"a sound broker fails under these plans: {found.false_alarms}"
    assert not found.troubles
    assert found.seed is not None, f"none of {found.tried} plans shows it"
    return found


def seen(mutant: str) -> str:
    """Return the name of the anomaly that clients see of a mutant."""
    return hunted(mutant, HISTORY).check.partition(" ")[2]


@pytest.mark.gate
@pytest.mark.parametrize(("mutant", "anomaly"), GATE.items())
def test_clients_see_it(mutant: str, anomaly: str) -> None:
    assert {anomaly, seen(mutant)} <= {*find(mutant).anomalies}


@pytest.mark.gate
def test_the_brokers_files_show_what_no_client_sees() -> None:
    found = hunted("93", FILES)
    assert found.check == "anomaly replica-divergence"
    assert found.is_expected


@NIGHT
@pytest.mark.parametrize("mutant", ["2", "4", "16"])
def test_the_brokers_files_show_logs_that_parted(mutant: str) -> None:
    assert hunted(mutant, FILES).is_expected


@NIGHT
@pytest.mark.parametrize("mutant", FOUND)
def test_its_own_plans_show_it(mutant: str) -> None:
    hunted(mutant, HISTORY if find(mutant).is_of_clients else ALL)


@NIGHT
@pytest.mark.parametrize("mutant", SEEN)
def test_what_its_own_plans_show_to_invariants_alone_others_show_to_clients(mutant: str) -> None:
    assert seen(mutant) in find(mutant).anomalies


@NIGHT
@pytest.mark.parametrize(("anomaly", "mutant"), RARE.items())
def test_each_rare_anomaly_is_shown(anomaly: str, mutant: str) -> None:
    assert anomaly in CATALOG
    planted = find(mutant)
    runs = (simulate(planted.plan(seed), mutant=mutant, stop_at_first=False) for seed in range(SEEDS))
    assert any(anomaly in run.anomalies for run in runs)


@NIGHT
@pytest.mark.parametrize("mutant", ["29", "29b", "59"])
def test_a_sound_broker_comes_to_the_end_of_its_epochs_and_goes_on(mutant: str) -> None:
    planted = find(mutant)
    few = replace(planted, replaces=tuple(each for each in planted.replaces if each.name == FEW_EPOCHS))
    assert len(few.replaces) == 1
    with few.planted():
        result = simulate(planted.plan(0))
    assert (result.verdict, result.failure) == ("valid", None), result.reasons
