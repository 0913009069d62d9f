"""The hunt: is each planted bug found, how soon, by which check, and does a sound broker stay silent under that plan?

Plans are drawn seed by seed until one fails with the mutant planted. The same plan then runs without it: a plan that
fails there as well is a false alarm, or a bug of the broker itself, and finds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from chaos.errors import HarnessError
from chaos.mutants import Mutant, find
from chaos.plan import Plan, write_plan


class Failed(Protocol):
    """In what way a plan fails (`chaos.simulating.Failure`). Equal ones are the same."""

    @property
    def kind(self) -> str:
        """ "invariant", "anomaly", "liveness", "deadlock" or "crash"."""

    @property
    def name(self) -> str:
        """Which one."""


Run = Callable[[Plan, str | None], Failed | None]
"""Simulates a plan, with the mutant of that id or (None) without any. HarnessError where nothing could be judged."""
Shrink = Callable[[Plan, Failed, Callable[[Plan], Failed | None]], tuple[Plan, int]]
"""The smallest plan that fails in the same way, and its steps: operations and faults."""


@dataclass(frozen=True, slots=True)
class Hunted:
    """What a hunt for one mutant came to."""

    mutant: str
    tried: int
    """Seeds."""
    seconds: float
    """Of CPU time, until it was found or given up; shrinking apart."""
    seed: int | None = None
    """The one that found it; None: none did."""
    check: str = ""
    """What found it: kind and name."""
    false_alarms: tuple[tuple[int, str], ...] = ()
    """Seeds under whose plans a sound broker failed as well, and how."""
    troubles: tuple[tuple[int, str], ...] = ()
    """Seeds under whose plans nothing could be judged."""
    plan: str = ""
    """The plan that found it, as TOML; shrunk, where that was asked for."""
    steps: int | None = None
    """After shrinking."""

    @property
    def is_expected(self) -> bool:
        """True where one of the mutant's own checks found it."""
        return self.check.partition(" ")[2] in find(self.mutant).expected

    @property
    def is_well(self) -> bool:
        """Found, or known to be masked, and no false alarm on the way."""
        return (self.seed is not None or bool(find(self.mutant).masked)) and not self.false_alarms


def sound(mutant: Mutant, plan: Plan) -> Plan:
    """The plan under which nothing may be found: of a setting that is called safe, without that claim."""
    return plan.model_copy(update={"expect": "config"}) if mutant.is_setting else plan


def hunt(
    mutant: Mutant,
    seeds: Iterable[int],
    run: Run,
    *,
    budget_s: float,
    shrink: Shrink | None = None,
    clock: Callable[[], float] = time.process_time,
) -> Hunted:
    """Try plans until one finds the mutant, or `budget_s` of CPU time is spent."""
    began = clock()
    alarms: list[tuple[int, str]] = []
    troubles: list[tuple[int, str]] = []
    tried = 0
    for seed in seeds:
        if tried and clock() - began > budget_s:
            break
        tried += 1
        plan = mutant.plan(seed)
        try:
            failure = run(plan, mutant.id)
            if failure is None:
                continue
            alarm = run(sound(mutant, plan), None)
        except HarnessError as trouble:
            troubles.append((seed, str(trouble)))
            continue
        if alarm is not None:
            alarms.append((seed, told(alarm)))
            continue
        spent_s = clock() - began
        found = Hunted(mutant.id, tried, spent_s, seed, told(failure), tuple(alarms), tuple(troubles), write_plan(plan))
        return found if shrink is None else _shrunk(found, mutant, plan, failure, run, shrink)
    return Hunted(mutant.id, tried, clock() - began, false_alarms=tuple(alarms), troubles=tuple(troubles))


def told(failure: Failed) -> str:
    """ "invariant strong-isr"."""
    return f"{failure.kind} {failure.name}"


def _shrunk(found: Hunted, mutant: Mutant, plan: Plan, failure: Failed, run: Run, shrink: Shrink) -> Hunted:
    def same(candidate: Plan) -> Failed | None:
        """A candidate counts only where a sound broker stands it: else it would show something else."""
        try:
            failed = run(candidate, mutant.id)
            if failed != failure or run(sound(mutant, candidate), None) is not None:
                return None
        except HarnessError:
            return None
        return failed

    smallest, steps = shrink(plan, failure, same)
    return replace(found, plan=write_plan(smallest), steps=steps)


def alarms(mutant: Mutant, seeds: Iterable[int], run: Run) -> Iterator[tuple[int, str]]:
    """Seeds under whose plans a sound broker fails: there must be none."""
    for seed in seeds:
        try:
            failure = run(sound(mutant, mutant.plan(seed)), None)
        except HarnessError as trouble:
            yield seed, f"trouble {trouble}"
            continue
        if failure is not None:
            yield seed, told(failure)
