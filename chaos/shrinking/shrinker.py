"""Shrinks a failing plan to a small plan that fails in the same way. It runs the passes of the search in an order that
saves time: the first ones make the runs of all later ones shorter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import Plan
from squall.chaos.shrinking.plain_numbers import (
    less_idle_time,
    plain_operations,
    plain_seed,
    plain_targets,
    round_numbers,
    smaller_operations,
)
from squall.chaos.shrinking.search import OutOfBudget, ShrinkSearch, steps_of
from squall.chaos.shrinking.structure import (
    defaults_again,
    fewer_faults,
    fewer_nodes,
    fewer_of_each,
    fewer_operations,
    no_warm_up,
    shorter_load,
    thinner_load,
    thinner_load_under_another_seed,
)
from squall.chaos.shrinking.trades import fewer_operations_for_more

F = TypeVar("F")
Pass = Callable[[ShrinkSearch[Any]], None]

# A thinner and a shorter load make every later try cheaper. Then faults: there are few, and without them most of the
# operations turn out to be needless.
STRUCTURE: tuple[tuple[str, Pass], ...] = (
    ("thinner load", thinner_load),
    ("shorter load", shorter_load),
    ("thinner load under another seed", thinner_load_under_another_seed),
    ("fewer faults", fewer_faults),
    ("fewer operations", fewer_operations),
    ("fewer faults", fewer_faults),
)
SETTINGS: tuple[tuple[str, Pass], ...] = (
    ("fewer operations for more of a fault", fewer_operations_for_more),
    ("no warm-up", no_warm_up),
    ("settings as they are by default", defaults_again),
    ("fewer nodes and replicas", fewer_nodes),
    ("fewer topics, partitions and clients", fewer_of_each),
    ("shorter load", shorter_load),
)
NUMBERS: tuple[tuple[str, Pass], ...] = (
    ("plain targets", plain_targets),
    ("less idle time", less_idle_time),
    ("plain operations", plain_operations),
    ("smaller operations", smaller_operations),
    ("round numbers", round_numbers),
    ("shorter load", shorter_load),
    ("plain seed", plain_seed),
)
ROUNDS = 6
"""Limits the rounds of a search. In each round all passes run; a round that changes nothing is the last one."""


@dataclass(frozen=True, slots=True)
class ShrinkResult:
    """Holds the smallest plan that was found. `finished`: False if the search ended early, so that a smaller plan might
    exist.
    """

    plan: Plan
    tries: int
    steps: int
    """Counts the operations and faults that are left."""
    seconds: float
    finished: bool
    interrupted: bool = False
    """Is True if a signal ended the search."""


def shrink(
    plan: Plan,
    failure: F,
    run: Callable[[Plan], F | None],
    *,
    budget_s: float,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> ShrinkResult:
    """Return the smallest plan found within `budget_s` for which `run` returns `failure`. `run` must return `failure`
    for `plan` itself.

    In a simulation, a load by rate is first written out as operations. `run` is called once for each plan that is
    tried. KeyboardInterrupt ends the search as the end of the budget does, with the best plan found so far as the
    result. `say` gets a line for each pass that made the plan smaller.
    """
    began = clock()
    if plan.runtime == "sim":
        plan = concrete(plan)
    search = ShrinkSearch(plan, failure, run, budget_s=budget_s, clock=clock)
    finished = interrupted = False
    try:
        _to_the_end(search, say)
        finished = True
    except OutOfBudget:
        pass
    except KeyboardInterrupt:
        interrupted = True
    return ShrinkResult(search.best, search.tries, steps_of(search.best), clock() - began, finished, interrupted)


def _to_the_end(search: ShrinkSearch[Any], say: Callable[[str], None]) -> None:
    _repeat(search, STRUCTURE, say)
    for _ in range(ROUNDS):
        before = search.best
        _repeat(search, SETTINGS, say)
        _repeat(search, STRUCTURE, say)
        _repeat(search, NUMBERS, say)
        _repeat(search, STRUCTURE, say)
        if search.best == before:
            return


def _repeat(search: ShrinkSearch[Any], passes: tuple[tuple[str, Pass], ...], say: Callable[[str], None]) -> None:
    for name, each in passes:
        before = search.best
        each(search)
        if search.best != before:
            say(f"{name}: {describe(search.best)}, {many(search.tries, 'try', 'tries')}")


def describe(plan: Plan) -> str:
    """Return a plan's size in words: its operations or rate, faults and nodes."""
    operations = getattr(plan, "operations", None)
    load = f"{plan.workload.traffic().rate} records/s" if operations is None else many(len(operations), "operation")
    faults, nodes = many(len(plan.faults), "fault"), many(plan.cluster.nodes, "node")
    return f"{load}, {faults}, {nodes}, {plan.time_s:g} s"


def many(number: int, what: str, plural: str = "") -> str:
    """Return a number and its noun: "1 step", "2 steps"."""
    return f"{number} {what if number == 1 else plural or f'{what}s'}"
