"""A hunt finds what fails with the mutant and not without it, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from chaos.errors import HarnessError
from chaos.hunting import Failed, Hunted, alarms, hunt
from chaos.mutants import MUTANTS, find
from chaos.mutants.table import MUTANTS_BEGIN, MUTANTS_END, mutants_table, replaced, results_table
from chaos.plan import Plan, make_plan, write_plan
from tests.architecture.source import ROOT


@dataclass(frozen=True)
class Failure:
    kind: str
    name: str


LOST = Failure("anomaly", "lost-write")


def world(with_it: dict[int, Failure], without: dict[int, Failure] | None = None) -> Callable[..., Failed | None]:
    """Which seeds fail with the mutant planted, and which without."""

    def run(plan: Plan, mutant: str | None) -> Failed | None:
        return (with_it if mutant is not None else without or {}).get(plan.seed)

    return run


def test_the_first_seed_that_fails_with_the_mutant_only_is_the_find() -> None:
    found = hunt(find("1"), range(9), world({4: LOST, 6: LOST}), budget_s=60)
    assert (found.seed, found.tried, found.check) == (4, 5, "anomaly lost-write")
    assert found.plan == write_plan(find("1").plan(4))
    assert found.is_well
    assert found.is_expected


def test_a_plan_that_a_sound_broker_fails_finds_nothing_and_is_told() -> None:
    broken = Failure("invariant", "one-leader")
    found = hunt(find("1"), range(9), world({2: LOST, 5: LOST}, {2: broken}), budget_s=60)
    assert found.seed == 5
    assert found.false_alarms == ((2, "invariant one-leader"),)
    assert not found.is_well


def test_a_hunt_ends_with_its_seeds_or_its_budget() -> None:
    assert hunt(find("1"), range(7), world({}), budget_s=60).tried == 7
    times = iter(range(0, 1000, 10))
    tired = hunt(find("1"), range(1000), world({}), budget_s=25, clock=lambda: float(next(times)))
    assert tired.tried == 3
    assert not tired.is_well


def test_a_setting_is_held_to_what_it_promises_in_the_control() -> None:
    asked: list[tuple[str, str | None]] = []

    def run(plan: Plan, mutant: str | None) -> Failed | None:
        asked.append((plan.expect, mutant))
        return LOST if plan.expect == "safe" else None

    assert hunt(find("18"), range(3), run, budget_s=60).seed == 0
    assert asked == [("safe", "18"), ("config", None)]


def test_trouble_of_the_harness_is_no_find() -> None:
    def run(plan: Plan, mutant: str | None) -> Failed | None:
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

    def shrink(plan: Plan, failure: Failed, run: Callable[[Plan], Failed | None]) -> tuple[Plan, int]:
        verdicts.extend(run(candidate) == failure for candidate in (plan, small, other, alarm))
        return small, 2

    sims = world({0: LOST, 7: LOST, 8: Failure("anomaly", "unseen"), 9: LOST}, {9: LOST})
    found = hunt(find("1"), range(3), sims, budget_s=60, shrink=shrink)
    assert verdicts == [True, True, False, False]
    assert found.steps == 2
    assert found.plan == write_plan(small)


def test_controls_name_the_seeds_that_a_sound_broker_fails() -> None:
    assert list(alarms(find("1"), range(5), world({}, {3: LOST}))) == [(3, "anomaly lost-write")]


def test_what_is_masked_need_not_be_found() -> None:
    assert Hunted("20a", 10, 1.0).is_well
    assert not Hunted("20", 10, 1.0).is_well


def test_the_page_lists_the_mutants_as_they_are() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text()
    assert MUTANTS_BEGIN in page
    wanted = replaced(page, MUTANTS_BEGIN, MUTANTS_END, mutants_table())
    assert page == wanted, "run `squall hunt --docs docs/mutants.md`, or write_docs"


def test_a_table_is_replaced_between_its_marks() -> None:
    assert replaced("a\n<\nold\n>\nz\n", "<", ">", "new\n") == "a\n<\nnew\n>\nz\n"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_results_are_told_in_the_order_of_the_list(mutant: str) -> None:
    found = Hunted(mutant, 3, 1.25, 2, "invariant strong-isr", steps=4)
    later = replace(found, mutant="24")
    lines = results_table([later, found]).splitlines()
    assert lines[2].startswith(f"| {mutant} |")
    assert lines[2].endswith("| invariant strong-isr | 2 | 3 | 1.2 | 4 |")


def test_rows_of_mutants_that_were_not_hunted_stay() -> None:
    before = results_table([Hunted("2", 5, 8.3, 4, "invariant log-matching", steps=7), Hunted("9", 1, 3.0)])
    now = results_table([Hunted("9", 2, 4.0, 1, "invariant weak-isr", steps=3), Hunted("20a", 9, 60.0)], before)
    assert [line.split(" | ")[0] for line in now.splitlines()[2:]] == ["| 2", "| 9", "| 20a"]
    assert before.splitlines()[2] in now
    assert "weak-isr" in now
