"""Regression tests by shrunk plans: each plan of this folder fails with its cause, and passes without.

A plan runs alone (`./squall sim --plan FILE`) and begins with comments that say what it shows:

    # title: a sentence
    # broken by: setting NAME=VALUE (in the plan), mutant ID (planted), or nothing (a bug of ours, fixed)
    # fails with: the anomaly or broken invariant that is found, or was; or `trouble of ours` or `a fault that is not
    #   proven`, which are no verdicts
    # else: a fault that is not proven (only if one is not, so that the verdict is unknown even without the cause)

What a seed leads to changes with the broker's timing. So a plan must fail under at least one of a batch of seeds, its
own first, and must pass under two without its cause. A plan that is broken by nothing must fail once the fix of its bug
is undone (`mends`).
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from squall.chaos.mutants import find
from squall.chaos.plans.plan import Plan, make_plan, read_plan
from squall.chaos.runs.simulation import SimResult, simulate
from squall.chaos.shrinking.search import steps_of
from tests.sim.plans.mends import MENDS

pytestmark = pytest.mark.gate

PLANS = Path(__file__).parent
NAMES = sorted(path.stem for path in PLANS.glob("*.toml"))
MENDED = [name for name in NAMES if "\n# broken by: nothing" in (PLANS / f"{name}.toml").read_text()]
STEPS_AT_MOST = 10
TROUBLE, NOT_PROVEN = "trouble of ours", "a fault that is not proven"
SEEDS, CLEAN_SEEDS = 30, 2
"""How many seeds are tried with the cause, and how many without."""
SAID = ("title", "broken by", "fails with")


class Shown(NamedTuple):
    """A plan of this folder, with its comments."""

    title: str
    breaker: tuple[str, str]
    """The cause: ("setting", "NAME=VALUE"), ("mutant", ID) or ("nothing", "")."""
    failure: str
    plan: Plan
    otherwise: str = "valid"
    """The verdict without the cause."""

    @property
    def mutant(self) -> str | None:
        return self.breaker[1] if self.breaker[0] == "mutant" else None

    @property
    def without(self) -> Plan:
        """Return the plan without its setting, which must pass."""
        if self.breaker[0] != "setting":
            return self.plan
        values = self.plan.model_dump(mode="json")
        name, _, value = self.breaker[1].partition("=")
        tables = [values["cluster"]["settings"], values["workload"]["topic_settings"]]
        assert [table.pop(name, None) for table in tables].count(value) == 1, f"{name}={value} is not in the plan"
        return make_plan(values)


def shown(name: str) -> Shown:
    """Read a plan and its comments."""
    path = PLANS / f"{name}.toml"
    said: dict[str, str] = {}
    for line in path.read_text().splitlines():
        key, _, value = line.removeprefix("# ").partition(": ")
        if line.startswith("# ") and key in (*SAID, "else"):
            said.setdefault(key, value)
    assert [key for key in said if key != "else"] == [*SAID], said
    assert said.get("else", NOT_PROVEN) == NOT_PROVEN
    kind, _, what = said["broken by"].partition(" ")
    breaker = (kind, what if kind != "nothing" else "")
    otherwise = "unknown" if "else" in said else "valid"
    return Shown(said["title"], breaker, said["fails with"], read_plan(path), otherwise)


def seeds(plan: Plan, count: int) -> list[Plan]:
    """Return the plan and copies of it with other seeds, `count` in all."""
    others = (seed for seed in range(count) if seed != plan.seed)
    values = plan.model_dump(mode="json")
    return [plan, *(make_plan({**values, "seed": seed}) for seed in islice(others, count - 1))]


def run(plan: Plan, mutant: str | None = None) -> SimResult:
    result = simulate(plan, mutant=mutant, stop_at_first=False)
    assert result.trouble is None, result.trouble
    return result


def found(result: SimResult) -> set[str]:
    """Return the names of all anomalies and broken invariants that are not permitted."""
    failure = {result.failure.name} if result.failure else set()
    return failure | set(result.anomalies) | {violation.name for violation in result.violations}


def _failure(result: SimResult) -> str:
    """Return how the run failed; empty if nothing was wrong."""
    if result.trouble is not None:
        assert result.verdict == "unknown"
        return TROUBLE
    if result.verdict == "unknown":
        return NOT_PROVEN
    return result.failure.name if result.failure is not None else ""


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_shows(name: str) -> None:
    what = shown(name)
    assert what.title
    assert what.breaker[0] in ("setting", "mutant", "nothing"), what.breaker
    assert what.mutant is None or find(what.mutant)
    assert what.plan.runtime == "sim"
    assert steps_of(what.plan) <= STEPS_AT_MOST
    assert what.without


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MENDED])
def test_is_broken_by_what_it_says(name: str) -> None:
    what = shown(name)
    assert any(what.failure in found(run(plan, what.mutant)) for plan in seeds(what.plan, SEEDS)), what.title


def test_each_mend_is_undone() -> None:
    assert sorted(MENDS) == MENDED


@pytest.mark.parametrize("name", MENDED)
def test_fails_without_its_mend(name: str) -> None:
    what = shown(name)
    for plan in seeds(what.plan, SEEDS):
        with pytest.MonkeyPatch.context() as undone:
            MENDS[name](undone)
            result = simulate(plan, stop_at_first=False)
        fails = _failure(result)
        if fails == what.failure:
            break
    assert fails == what.failure, (what.title, plan.seed, result.reasons)
    if plan.seed != what.plan.seed:  # its own is looked at below
        assert run(plan).verdict == what.otherwise, plan.seed


@pytest.mark.parametrize("name", NAMES)
def test_is_clean_without(name: str) -> None:
    what = shown(name)
    runs = [run(plan) for plan in seeds(what.without, CLEAN_SEEDS)]
    verdicts = {each.verdict for each in runs}
    assert "invalid" not in verdicts, [each.reasons for each in runs]
    assert what.otherwise in verdicts, [each.reasons for each in runs]
