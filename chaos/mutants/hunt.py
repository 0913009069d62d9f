"""Hunts mutants (planted bugs): finds out whether each one is found, how soon, by which check, and whether a correct
broker raises no alarm under the same plan.

Plans are drawn seed by seed until one fails with the mutant planted. The same plan then runs without the mutant. If
that run fails too, the plan finds nothing: it shows a false alarm, or a bug of the broker itself.

Some plans do not shrink: they fail only by a coincidence of times, which is lost if any operation or fault is left out.
Plans of other seeds that find the same mutant mostly do shrink. So the hunt continues with other seeds, rather than
spend more time on the first plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Protocol

from squall.chaos.errors import HarnessError
from squall.chaos.mutants import Mutant, find
from squall.chaos.plans.plan import Plan, write_plan


class FailureKind(Protocol):
    """Describes how a plan fails, as `squall.chaos.runs.result.FailureSignature` does. Two equal values are the same
    failure.
    """

    @property
    def kind(self) -> str:
        """Says which kind of check the plan failed: "invariant", "anomaly", "liveness", "deadlock" or "crash"."""

    @property
    def name(self) -> str:
        """Names the invariant, anomaly or other check that failed."""


Run = Callable[[Plan, str | None], FailureKind | None]
"""Simulates a plan and returns how it failed; None if it passed. The second argument is the id of the mutant to plant;
None: no mutant. Raises HarnessError if nothing could be judged.
"""
Shrink = Callable[[Plan, FailureKind, Callable[[Plan], FailureKind | None]], tuple[Plan, int]]
"""Returns the smallest plan that fails in the same way, and its number of steps: operations and faults.

Takes a plan, its failure, and a function that tries a smaller plan. The function returns the failure if the smaller
plan fails in the same way, else None.
"""
FEW_STEPS = 10
"""Limits the steps of a shrunk plan: a person can still follow so many operations and faults one by one, and every bug
that is planted here shows with fewer.
"""


@dataclass(frozen=True, slots=True)
class MutantHuntResult:
    """Says how a hunt for one mutant ended: which plan and check found it, after how many seeds, and which seeds gave a
    false alarm.
    """

    mutant: str
    tried: int
    """Counts the seeds that were tried."""
    seconds: float
    """Gives the CPU time in seconds until the mutant was found or given up, without shrinking."""
    seed: int | None = None
    """Is the seed whose plan found the mutant; None: no seed did."""
    check: str = ""
    """Names what found the mutant: the kind of failure and the check's name."""
    false_alarms: tuple[tuple[int, str], ...] = ()
    """Lists the seeds under whose plans the correct broker failed as well, and how."""
    troubles: tuple[tuple[int, str], ...] = ()
    """Lists the seeds under whose plans nothing could be judged, and why."""
    plan: str = ""
    """Holds the plan that found the mutant, as TOML; shrunk, if that was requested."""
    steps: int | None = None
    """Counts the steps of the plan after shrinking; None if it was not shrunk."""
    shrunk_seed: int | None = None
    """Is the seed whose plan was shrunk to `plan`: `seed`, or a later seed whose plan has fewer steps."""

    @property
    def is_expected(self) -> bool:
        """Is True if the mutant was found by a check that its definition names (`Mutant.expected`)."""
        return self.check.partition(" ")[2] in find(self.mutant).expected

    @property
    def plans_text(self) -> str:
        """Returns the number of tried plans as text, such as "5". Adds the seed that found the mutant if the number
        does not show it: "1 (seed 107)" if the seeds began at 107.
        """
        plain = self.seed is None or self.seed == self.tried - 1
        return str(self.tried) if plain else f"{self.tried} (seed {self.seed})"

    @property
    def steps_text(self) -> str:
        """Returns the number of steps as text: "4". If another seed found the mutant first, adds the seed of the shrunk
        plan: "4 (seed 7)". "-" if nothing was shrunk.
        """
        if self.steps is None:
            return "-"
        return str(self.steps) if self.shrunk_seed == self.seed else f"{self.steps} (seed {self.shrunk_seed})"

    @property
    def is_as_required(self) -> bool:
        """Is True if there was no false alarm, and the mutant was found or is known to be masked (another rule of the
        broker prevents its effect).
        """
        return (self.seed is not None or bool(find(self.mutant).masked)) and not self.false_alarms


def sound(mutant: Mutant, plan: Plan) -> Plan:
    """Return the plan under which the correct broker must raise no alarm: `plan` itself. If the mutant is an unsafe
    setting, return a copy that does not claim that the setting is safe.
    """
    return plan.model_copy(update={"expect": "config"}) if mutant.is_setting else plan


@dataclass(frozen=True, slots=True)
class FailingPlan:
    """Holds a plan that fails with the mutant planted, and passes with the correct broker."""

    seed: int
    plan: Plan
    failure: FailureKind


@dataclass(slots=True)
class MutantSearch:
    """Searches the seeds for plans that find the mutant, until `budget_s` of CPU time is spent. Records the seeds that
    gave a false alarm, and those that could not be judged (`troubles`).
    """

    mutant: Mutant
    seeds: Iterator[int]
    run: Run
    budget_s: float
    clock: Callable[[], float]
    plan: Callable[[int], Plan]
    """Returns the plan that is tried for a seed."""
    tried: int = 0
    spent_s: float = 0.0
    """Gives the CPU seconds inside `next_failing_plan`. What the caller does between two calls does not count."""
    alarms: list[tuple[int, str]] = field(default_factory=list)
    troubles: list[tuple[int, str]] = field(default_factory=list)

    def next_failing_plan(self) -> FailingPlan | None:
        """Return the next plan that finds the mutant, or None if seeds or budget run out first."""
        began, spent_s = self.clock(), self.spent_s
        found = None
        for seed in self.seeds:
            # One seed is tried in any case, however small the budget is.
            if self.tried and spent_s + self.clock() - began > self.budget_s:
                break
            self.tried += 1
            found = self._try(seed)
            if found is not None:
                break
        self.spent_s = spent_s + self.clock() - began
        return found

    def _try(self, seed: int) -> FailingPlan | None:
        plan = self.plan(seed)
        try:
            # The mutant first: most plans find nothing, and then no second run is needed.
            failure = self.run(plan, self.mutant.id)
            if failure is None:
                return None
            alarm = self.run(sound(self.mutant, plan), None)
        except HarnessError as trouble:
            self.troubles.append((seed, str(trouble)))
            return None
        if alarm is not None:
            self.alarms.append((seed, check_of(alarm)))
            return None
        return FailingPlan(seed, plan, failure)

    def finds_as_expected(self) -> Iterator[FailingPlan]:
        """Yield further plans that find the mutant by one of its own checks (`Mutant.expected`): any other check may
        show another problem.
        """
        while (found := self.next_failing_plan()) is not None:
            if found.failure.name in self.mutant.expected:
                yield found

    def first_as_named(self) -> FailingPlan | None:
        """Return the first plan that finds the mutant by one of its own checks (`Mutant.expected`); without such a
        plan, the first that finds it at all.
        """
        other: FailingPlan | None = None
        while (found := self.next_failing_plan()) is not None:
            if found.failure.name in self.mutant.expected:
                return found
            other = other or found
        return other

    def fails_as(self, failure: FailureKind) -> Callable[[Plan], FailureKind | None]:
        """Return the function by which a shrinker tests whether a smaller plan still shows the same bug. It returns
        `failure` if the plan fails in this way with the mutant and the correct broker passes it, else None.
        """

        def run(candidate: Plan) -> FailureKind | None:
            try:
                failed = self.run(candidate, self.mutant.id)
                if failed != failure or self.run(sound(self.mutant, candidate), None) is not None:
                    return None
            except HarnessError:
                return None
            return failed

        return run


def hunt(
    mutant: Mutant,
    seeds: Iterable[int],
    run: Run,
    *,
    budget_s: float,
    plan: Callable[[int], Plan] | None = None,
    named: bool = False,
    shrink: Shrink | None = None,
    more: int = 0,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.process_time,
) -> MutantHuntResult:
    """Try the plans of seeds until one finds the mutant, or `budget_s` of CPU time is spent.

    run: simulates a plan with or without a mutant. plan: makes the plan of a seed, in place of the mutant's own. named:
    continue until a check in `Mutant.expected` finds the mutant. If none does, the result is the first plan that found
    the mutant by another check.

    If a plan shrinks to more than `FEW_STEPS`, the hunt also shrinks the next plan that finds the mutant, at most
    `more` times and within the rest of the budget. It keeps the plan with the fewest steps. say: gets a line for each
    plan that has too many.
    """
    search = MutantSearch(mutant, iter(seeds), run, budget_s, clock, plan or mutant.plan)
    first = search.first_as_named() if named else search.next_failing_plan()
    hunted = MutantHuntResult(mutant.id, search.tried, search.spent_s)
    if first is not None:
        hunted = replace(hunted, seed=first.seed, check=check_of(first.failure), plan=write_plan(first.plan))
        if shrink is not None:
            finds = chain([first], islice(search.finds_as_expected(), more))
            hunted = _fewest_steps(hunted, finds, search, shrink, say)
    return replace(hunted, false_alarms=tuple(search.alarms), troubles=tuple(search.troubles))


def _fewest_steps(
    hunted: MutantHuntResult,
    finds: Iterable[FailingPlan],
    search: MutantSearch,
    shrink: Shrink,
    say: Callable[[str], None],
) -> MutantHuntResult:
    """Shrink one failing plan after another until one has at most `FEW_STEPS` steps, and keep the one with the fewest.
    The next plan is searched for only when it is needed.
    """
    best = hunted
    for found in finds:
        plan, steps = shrink(found.plan, found.failure, search.fails_as(found.failure))
        if best.steps is None or steps < best.steps:
            best = replace(best, plan=write_plan(plan), steps=steps, shrunk_seed=found.seed)
        if steps <= FEW_STEPS:
            break
        say(f"the plan of seed {found.seed} has {steps} steps after shrinking")
    return best


def check_of(failure: FailureKind) -> str:
    """Return the failure's kind and name, such as "invariant strong-isr"."""
    return f"{failure.kind} {failure.name}"


def alarms(mutant: Mutant, seeds: Iterable[int], run: Run) -> Iterator[tuple[int, str]]:
    """Yield the seeds under whose plans the correct broker fails, and how. There must be none."""
    for seed in seeds:
        try:
            failure = run(sound(mutant, mutant.plan(seed)), None)
        except HarnessError as trouble:
            yield seed, f"trouble {trouble}"
            continue
        if failure is not None:
            yield seed, check_of(failure)
