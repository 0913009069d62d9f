"""Every mutant replaces the rules that it names, and nothing else, for as long as it is planted."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.mutants import MUTANTS, Mutant, find, select
from squall.chaos.mutants.mutant import always
from squall.chaos.plans.plan import write_plan
from squall.chaos.runtimes.sim.invariants.table import INVARIANTS
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker

EACH = pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda m: f"{m.id}-{m.name}")
ANY = list(inspect.signature(always(None)).parameters)
assert InvariantChecker  # With it all invariants are entered.


def owners() -> list[Any]:
    """Everything in the broker that some mutant changes."""
    return list(dict.fromkeys(r.owner for m in MUTANTS.values() for r in m.replaces))


def seen() -> dict[tuple[int, str], object]:
    return {(at, name): value for at, owner in enumerate(owners()) for name, value in vars(owner).items()}


def changed(before: Mapping[Any, object], after: Mapping[Any, object]) -> set[tuple[int, str]]:
    assert before.keys() == after.keys()
    return {key for key, value in after.items() if value is not before[key]}


@EACH
def test_planting_changes_the_named_rules_only_and_is_undone(mutant: Mutant) -> None:
    before = seen()
    named = {(owners().index(r.owner), r.name) for r in mutant.replaces}
    with mutant.planted():
        assert changed(before, seen()) == named
        assert all(vars(r.owner)[r.name] is r.by for r in mutant.replaces)
    assert not changed(before, seen())


@EACH
def test_planting_is_undone_when_the_run_fails(mutant: Mutant) -> None:
    before = seen()
    with pytest.raises(ZeroDivisionError), mutant.planted():
        raise ZeroDivisionError
    assert not changed(before, seen())


@EACH
def test_what_stands_in_a_rules_place_is_called_as_the_rule_is(mutant: Mutant) -> None:
    for r in mutant.replaces:
        rule = vars(r.owner)[r.name]
        assert inspect.isfunction(rule), r
        parameters = list(inspect.signature(r.by).parameters)
        assert parameters in (list(inspect.signature(rule).parameters), ANY), r
        assert inspect.iscoroutinefunction(rule) == inspect.iscoroutinefunction(r.by)


@EACH
def test_a_rule_is_not_overridden_where_a_mutant_would_not_reach_it(mutant: Mutant) -> None:
    for r in mutant.replaces:
        if isinstance(r.owner, type):
            over = [heir.__qualname__ for heir in r.owner.__subclasses__() if r.name in vars(heir)]
            assert [name for name in over if "Partition" == name] == []


@EACH
def test_a_seed_gives_one_plan_and_another_seed_another_one(mutant: Mutant) -> None:
    plans = [mutant.plan(seed) for seed in range(12)]
    assert [plan.seed for plan in plans] == list(range(12))
    assert all(plan.runtime == "sim" for plan in plans)
    assert write_plan(mutant.plan(3)) == write_plan(plans[3])
    assert len({str((plan.faults, plan.operations)) for plan in plans}) > 6, "the plans hardly vary"


@EACH
def test_a_mutant_says_what_it_is(mutant: Mutant) -> None:
    assert mutant.title[0].islower()
    assert mutant.source
    assert mutant.expected or mutant.masked
    planned = {fault.action for seed in range(12) for fault in mutant.plan(seed).faults}
    assert planned == set(mutant.faults)
    expects_safety = mutant.plan(0).expect == "safe"
    assert expects_safety == mutant.is_setting


@EACH
def test_a_mutant_of_transactions_or_groups_is_found_by_what_clients_see(mutant: Mutant) -> None:
    assert mutant.plan(0).workload.name == mutant.workload
    if mutant.is_of_clients:
        assert not set(mutant.expected) & INVARIANTS.keys()
        assert mutant.workload in ("transactions", "groups", "pipeline", "load")


def test_mutants_are_found_by_id_name_and_group() -> None:
    assert find("9") is find("unconfirmed-shrink")
    assert [m.id for m in select("1, 19b")] == ["1", "19b"]
    groups = [select(name) for name in ("replication", "transactions", "groups")]
    assert {mutant for group in groups for mutant in group} == set(MUTANTS.values())
    assert sum(map(len, groups)) == len(MUTANTS)
    assert select("all") == tuple(MUTANTS.values())
    with pytest.raises(PreconditionError, match="no mutant 'nonsense'"):
        find("nonsense")


def test_a_mutant_of_a_rule_that_is_gone_is_refused() -> None:
    from dataclasses import replace

    mutant = find("9")
    gone = replace(mutant, replaces=(replace(mutant.replaces[0], name="no_such_rule"),))
    with pytest.raises(AssertionError, match="there is no rule"), gone.planted():
        pass
