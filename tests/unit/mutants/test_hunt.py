"""A hunt finds what fails with the mutant and not without it, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from click.testing import CliRunner

from squall.chaos.commands.hunt import command as hunt_command
from squall.chaos.commands.hunt import seen_by_clients
from squall.chaos.errors import HarnessError
from squall.chaos.mutants import MUTANTS, find
from squall.chaos.mutants.hunt import FEW_STEPS, FailureKind, MutantHuntResult, Shrink, alarms, hunt
from squall.chaos.mutants.table import (
    COLUMNS,
    HEAD,
    HISTORY,
    OWN,
    SWARM,
    replaced,
    results_table,
)
from squall.chaos.plans.plan import Plan, make_plan, write_plan
from tests.architecture.source import ROOT


@dataclass(frozen=True)
class Failure:
    kind: str
    name: str


LOST = Failure("anomaly", "lost-write")


def world(with_it: dict[int, Failure], without: dict[int, Failure] | None = None) -> Callable[..., FailureKind | None]:
    """Return a runner in which these seeds fail with the mutant planted, and those without."""

    def run(plan: Plan, mutant: str | None) -> FailureKind | None:
        return (with_it if mutant is not None else without or {}).get(plan.seed)

    return run


def test_the_first_seed_that_fails_with_the_mutant_only_is_the_find() -> None:
    found = hunt(find("1"), range(9), world({4: LOST, 6: LOST}), budget_s=60)
    assert (found.seed, found.tried, found.check) == (4, 5, "anomaly lost-write")
    assert found.plan == write_plan(find("1").plan(4))
    assert found.is_as_required
    assert found.is_expected


def test_a_plan_that_a_sound_broker_fails_finds_nothing_and_is_told() -> None:
    broken = Failure("invariant", "one-leader")
    found = hunt(find("1"), range(9), world({2: LOST, 5: LOST}, {2: broken}), budget_s=60)
    assert found.seed == 5
    assert found.false_alarms == ((2, "invariant one-leader"),)
    assert not found.is_as_required


def test_a_hunt_ends_with_its_seeds_or_its_budget() -> None:
    assert hunt(find("1"), range(7), world({}), budget_s=60).tried == 7
    times = iter(range(0, 1000, 10))
    tired = hunt(find("1"), range(1000), world({}), budget_s=25, clock=lambda: float(next(times)))
    assert tired.tried == 3
    assert not tired.is_as_required


def test_a_setting_is_held_to_what_it_promises_in_the_control() -> None:
    asked: list[tuple[str, str | None]] = []

    def run(plan: Plan, mutant: str | None) -> FailureKind | None:
        asked.append((plan.expect, mutant))
        return LOST if plan.expect == "safe" else None

    assert hunt(find("18"), range(3), run, budget_s=60).seed == 0
    assert asked == [("safe", "18"), ("config", None)]


def test_trouble_of_the_harness_is_no_find() -> None:
    def run(plan: Plan, mutant: str | None) -> FailureKind | None:
        if plan.seed == 0:
            raise HarnessError("it did not start")
        return LOST if mutant else None

    found = hunt(find("1"), range(3), run, budget_s=60)
    assert found.seed == 1
    assert found.troubles == ((0, "it did not start"),)


def test_shrinking_keeps_to_the_same_failure_and_to_plans_that_a_sound_broker_stands() -> None:
    small = make_plan({"seed": 7, "runtime": "sim", "time_s": 3})
    other = small.model_copy(update={"seed": 8})
    alarm = small.model_copy(update={"seed": 9})
    verdicts: list[bool] = []

    def shrink(plan: Plan, failure: FailureKind, run: Callable[[Plan], FailureKind | None]) -> tuple[Plan, int]:
        verdicts.extend(run(candidate) == failure for candidate in (plan, small, other, alarm))
        return small, 2

    sims = world({0: LOST, 7: LOST, 8: Failure("anomaly", "unseen"), 9: LOST}, {9: LOST})
    found = hunt(find("1"), range(3), sims, budget_s=60, shrink=shrink)
    assert verdicts == [True, True, False, False]
    assert found.steps == 2
    assert found.plan == write_plan(small)


def shrinking_to(steps: dict[int, int], asked: list[int]) -> Shrink:
    """Return a replacement of the shrinker. `steps` has the number of steps that remain of each seed's plan; the
    resulting plan has a hundred times the seed.
    """

    def shrink(plan: Plan, failure: FailureKind, run: Callable[[Plan], FailureKind | None]) -> tuple[Plan, int]:
        asked.append(plan.seed)
        return plan.model_copy(update={"seed": 100 * plan.seed}), steps[plan.seed]

    return shrink


def shrunk(
    steps: dict[int, int], with_it: dict[int, Failure], *, more: int
) -> tuple[MutantHuntResult, list[int], list[str]]:
    """Return the result of a hunt through nine seeds, the seeds whose plans were shrunk, and what was printed."""
    asked: list[int] = []
    said: list[str] = []
    shrink, sims = shrinking_to(steps, asked), world(with_it)
    found = hunt(find("1"), range(9), sims, budget_s=60, shrink=shrink, more=more, say=said.append)
    return found, asked, said


def test_a_plan_with_few_steps_is_the_only_one_that_is_shrunk() -> None:
    found, asked, said = shrunk({2: FEW_STEPS, 3: 1}, {2: LOST, 3: LOST}, more=3)
    assert (found.seed, found.shrunk_seed, found.steps_text) == (2, 2, str(FEW_STEPS))
    assert asked == [2]
    assert not said


def test_where_too_many_steps_are_left_the_plan_of_the_next_seed_is_shrunk_and_both_seeds_are_told() -> None:
    found, asked, said = shrunk({2: FEW_STEPS + 1, 5: 4, 6: 3}, {2: LOST, 5: LOST, 6: LOST}, more=3)
    assert asked == [2, 5]
    assert (found.seed, found.tried, found.shrunk_seed, found.steps) == (2, 3, 5, 4)
    assert found.steps_text == "4 (seed 5)"
    assert found.plan == write_plan(find("1").plan(5).model_copy(update={"seed": 500}))
    assert said == [f"the plan of seed 2 has {FEW_STEPS + 1} steps after shrinking"]


def test_the_fewest_steps_stay_after_as_many_further_plans_as_are_allowed() -> None:
    found, asked, _ = shrunk({0: 30, 1: 12, 2: 20, 3: 2}, {0: LOST, 1: LOST, 2: LOST, 3: LOST}, more=2)
    assert asked == [0, 1, 2]
    assert (found.seed, found.shrunk_seed, found.steps) == (0, 1, 12)
    same = shrunk({0: 30, 1: 30}, {0: LOST, 1: LOST}, more=1)[0]
    assert (same.shrunk_seed, same.steps_text) == (0, "30")


def test_a_further_plan_has_to_fail_by_one_of_the_checks_of_the_mutant() -> None:
    other = Failure("invariant", "one-leader")
    assert other.name not in find("1").expected
    found, asked, _ = shrunk({0: 30, 3: 5}, {0: LOST, 1: other, 3: LOST}, more=1)
    assert asked == [0, 3]
    assert found.steps_text == "5 (seed 3)"


def test_false_alarms_on_the_way_to_a_further_plan_are_told() -> None:
    sims = world({0: LOST, 1: LOST, 2: LOST}, {1: LOST})
    found = hunt(find("1"), range(9), sims, budget_s=60, shrink=shrinking_to({0: 30, 2: 5}, []), more=1)
    assert found.steps_text == "5 (seed 2)"
    assert found.false_alarms == ((1, "anomaly lost-write"),)
    assert not found.is_as_required


def test_the_budget_is_for_finding_all_plans_and_shrinking_takes_nothing_of_it() -> None:
    now = 0.0

    def run(plan: Plan, mutant: str | None) -> FailureKind | None:
        nonlocal now
        now += 5 if mutant else 0
        return LOST if mutant and plan.seed in (1, 3, 8) else None

    asked: list[int] = []

    def shrink(plan: Plan, failure: FailureKind, run: Callable[[Plan], FailureKind | None]) -> tuple[Plan, int]:
        nonlocal now
        now += 1000
        asked.append(plan.seed)
        return plan, 30

    found = hunt(find("1"), range(99), run, budget_s=24, shrink=shrink, more=9, clock=lambda: now)
    assert asked == [1, 3], "20 s were spent until 3, 25 s after 4"
    assert (found.seconds, found.tried) == (10, 2)


def test_controls_name_the_seeds_that_a_sound_broker_fails() -> None:
    assert list(alarms(find("1"), range(5), world({}, {3: LOST}))) == [(3, "anomaly lost-write")]


def test_what_is_masked_need_not_be_found() -> None:
    assert MutantHuntResult("20a", 10, 1.0).is_as_required
    assert not MutantHuntResult("20", 10, 1.0).is_as_required


def test_each_mutant_says_what_it_is() -> None:
    said = CliRunner().invoke(hunt_command, ["--mutants", "all", "--list"], standalone_mode=False).output
    assert [line.partition("  ")[0] for line in said.splitlines() if not line.startswith(" ")] == list(MUTANTS)
    one = CliRunner().invoke(hunt_command, ["--mutants", "82", "--list"], standalone_mode=False).output.splitlines()
    assert one == [
        "82  lookups-by-first-timestamp: the broker leaves out batches that begin before the time that is looked up",
        "  source: Redpanda #6604, PR 6606 (2022)",
        "  replaces: log.lookups.TimestampLookup._not_before",
        "  faults: latency",
    ]


@dataclass(frozen=True)
class Simulated:
    """Holds what `seen_by_clients` reads of a result."""

    anomalies: tuple[str, ...]
    failure: Failure | None


def test_clients_see_anomalies_and_ends_but_no_invariant() -> None:
    broken, dead = Failure("invariant", "one-leader"), Failure("crash", "struct.error in encode")
    named = [
        (Simulated(("poll-skip", "G1a"), broken), "G1a"),
        (Simulated(("poll-skip",), broken), "poll-skip"),
        (Simulated((), dead), dead.name),
    ]
    for result, name in named:
        seen = seen_by_clients(result, ("G1a",))  # type: ignore[arg-type]
        assert seen is not None
        assert seen.name == name
    assert seen_by_clients(Simulated((), broken), ("G1a",)) is None  # type: ignore[arg-type]
    differ = Failure("anomaly", "replica-divergence")
    assert seen_by_clients(Simulated((differ.name,), differ), (differ.name,)) is None  # type: ignore[arg-type]
    assert seen_by_clients(Simulated((), None), ("G1a",)) is None  # type: ignore[arg-type]


def test_a_swarms_plans_may_take_the_place_of_a_mutants_own() -> None:
    other = make_plan({"seed": 3, "runtime": "sim", "time_s": 3})
    asked: list[Plan] = []

    def run(plan: Plan, mutant: str | None) -> FailureKind | None:
        asked.append(plan)
        return LOST if mutant else None

    assert hunt(find("1"), range(3), run, budget_s=60, plan=lambda seed: other).seed == 0
    assert asked == [other, other]


def test_a_hunt_by_history_goes_on_until_it_finds_what_the_mutant_must_cause() -> None:
    other = Failure("anomaly", "duplicate")
    assert other.name not in find("1").expected
    found = hunt(find("1"), range(9), world({2: other, 5: LOST}), budget_s=60, named=True)
    assert (found.seed, found.tried, found.is_expected) == (5, 6, True)
    none = hunt(find("1"), range(9), world({2: other, 5: other}), budget_s=60, named=True)
    assert (none.seed, none.is_expected) == (2, False)


def test_a_hunt_by_files_updates_no_page() -> None:
    done = CliRunner().invoke(hunt_command, ["--mutants", "93", "--checks", "files", "--docs", __file__])
    assert done.exit_code == 2
    assert "no columns for --checks files" in done.output


def test_a_table_is_replaced_between_its_marks() -> None:
    assert replaced("a\n<\nold\n>\nz\n", "<", ">", "new\n") == "a\n<\nnew\n>\nz\n"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_results_are_told_in_the_order_of_the_list(mutant: str) -> None:
    found = MutantHuntResult(mutant, 3, 1.25, 2, "invariant strong-isr", steps=4, shrunk_seed=2)
    later = replace(found, mutant=list(MUTANTS)[-1])
    lines = results_table([later, found]).splitlines()
    assert lines[2].startswith(f"| {mutant} |")
    assert "| invariant strong-isr | 3 | 1.2 | 4 |" in lines[2]


def test_rows_of_mutants_that_were_not_hunted_stay() -> None:
    matched = MutantHuntResult("2", 5, 8.3, 4, "invariant log-matching", steps=12, shrunk_seed=6)
    weak = MutantHuntResult("9", 2, 4.0, 1, "invariant weak-isr", steps=3, shrunk_seed=1)
    before = results_table([matched, MutantHuntResult("9", 1, 3.0)])
    now = results_table([weak, MutantHuntResult("20a", 9, 60.0)], before)
    assert [line.split(" | ")[0] for line in now.splitlines()[2:]] == ["| 2", "| 9", "| 20a"]
    assert before.splitlines()[2] in now
    assert "| 12 (seed 6) |" in before.splitlines()[2]
    assert "weak-isr" in now


def test_each_kind_of_hunt_has_columns_of_its_own_and_leaves_the_others() -> None:
    own = results_table([MutantHuntResult("1", 1, 1.4, 0, "invariant strong-isr", steps=2, shrunk_seed=0)])
    seen = results_table([MutantHuntResult("1", 3, 5.2, 2, "anomaly lost-write")], own, which=HISTORY)
    swarm = results_table([MutantHuntResult("1", 1, 9.0, 107, "anomaly unseen")], seen, which=SWARM)
    (row,) = swarm.splitlines()[2:]
    assert row.split(" | ")[3:] == [
        *("invariant strong-isr", "1", "1.4", "2"),
        *("lost-write", "3", "5.2"),
        *("anomaly unseen", "1 (seed 107)", "9.0 |"),
    ]


def test_a_row_says_whether_clients_saw_what_the_mutant_must_cause_or_why_they_cannot() -> None:
    other = results_table([MutantHuntResult("1", 3, 5.2, 2, "anomaly duplicate")], which=HISTORY)
    assert "| duplicate (not named) | 3 |" in other
    missed = results_table([MutantHuntResult("23b", 3, 5.2)], which=HISTORY)
    assert f"| nothing that clients see | - | - | - | - | nothing: {find('23b').unseen} | 3 |" in missed
    assert "nothing |" in results_table([MutantHuntResult("1", 3, 5.2)], which=HISTORY)


def test_a_bug_of_transactions_is_hunted_by_clients_eyes_whatever_is_asked_for() -> None:
    for which in (OWN, HISTORY):
        (row,) = results_table([MutantHuntResult("26", 1, 0.7, 0, "anomaly G1a")], which=which).splitlines()[2:]
        assert "| anomaly G1a | 1 | 0.7 | - | G1a | 1 | 0.7 |" in row


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_names_what_clients_see_or_says_why_they_do_not(mutant: str) -> None:
    planted = find(mutant)
    assert planted.anomalies or planted.unseen


def test_the_shown_page_has_a_row_for_each_mutant_with_all_columns() -> None:
    page = (ROOT / "docs/shown/mutants.md").read_text()
    rows = [row.split(" | ") for row in page.partition(f" | {HEAD[1]} | ")[2].splitlines()[2:]]
    assert {row[1] for row in rows} == set(MUTANTS)
    assert {len(row) for row in rows} == {1 + len(HEAD) + sum(map(len, COLUMNS.values()))}
