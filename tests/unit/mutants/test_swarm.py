"""The swarm draws plans that were made for planted bugs, and never the one of the bug that is hunted."""

from __future__ import annotations

from functools import cache

from squall.chaos.mutants.hunt import sound
from squall.chaos.mutants.registry import MUTANTS
from squall.chaos.mutants.swarm import SHARE, drawn_plan
from squall.chaos.plans.plan import Plan
from squall.chaos.plans.swarm import swarm_plan
from tests.support.effort import examples

SEEDS = range(examples(400, least=150))


@cache
def lent(mutant: str | None = None, workload: str | None = "appends") -> dict[int, Plan]:
    plans = {seed: drawn_plan(seed, workload=workload, mutant=mutant) for seed in SEEDS}
    return {seed: plan for seed, plan in plans.items() if plan != swarm_plan(seed, workload=workload)}


def owners(seed: int, plan: Plan) -> set[str]:
    return {each.id for each in MUTANTS.values() if not each.is_setting and sound(each, each.plan(seed)) == plan}


def test_some_seeds_play_a_plan_of_a_hunt_under_their_own_seed() -> None:
    found = lent()
    assert SHARE / 2 < len(found) / len(SEEDS) < 2 * SHARE
    assert all(plan.seed == seed and plan.expect == "config" for seed, plan in found.items())
    assert {plan.workload.name for plan in found.values()} == {"appends"}
    assert len({owner for seed, plan in found.items() for owner in owners(seed, plan)}) > len(SEEDS) // 40


def test_the_plan_of_the_bug_that_is_hunted_is_the_swarms_own() -> None:
    found = lent()
    seed, plan = next(iter(found.items()))
    (owner,) = owners(seed, plan)
    others = lent(owner)
    assert seed not in others
    assert others.keys() < found.keys()


def test_a_seed_that_draws_its_workload_has_plans_for_that_one() -> None:
    names = {plan.workload.name for plan in lent(workload=None).values()}
    assert names <= {"appends", "transactions", "groups", "pipeline"}
    assert len(names) > 2
    assert {plan.workload.name for plan in lent(workload="transactions").values()} == {"transactions"}
