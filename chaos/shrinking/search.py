"""The search for a smaller plan: the best one so far, what was tried already, and how long there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from squall.chaos.plans.mistakes import beyond_limits
from squall.chaos.plans.plan import Plan, PlanError, make_plan
from squall.workloads.registry import suited_brokers

Values = dict[str, Any]
"""A plan as JSON values, which is what passes change."""

F = TypeVar("F")
"""What a failure is known by: equal ones are the same failure."""


class OutOfBudget(Exception):
    """The time for shrinking is over. What was found so far stands."""


class ShrinkSearch(Generic[F]):
    """`run` gives how a plan fails, or None; `best` is the smallest plan known that fails as `failure` says.

    Every plan is run once: what was tried is remembered, and what cannot be a plan is not tried at all.
    """

    def __init__(
        self,
        plan: Plan,
        failure: F,
        run: Callable[[Plan], F | None],
        *,
        budget_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.best = plan
        self.failure = failure
        self.tries = 0
        self._run = run
        self._clock = clock
        self._until = clock() + budget_s
        self._as_recorded = bool(beyond_limits(plan))
        self._best_key = _key(plan)
        self._known: dict[str, bool] = {self._best_key: True}

    def values(self) -> Values:
        """The best plan's values, to be changed by whoever asked."""
        values: Values = json.loads(self._best_key)
        return values

    def attempt(self, values: Values) -> bool:
        """Try a plan of `values`. Returns whether it fails in the same way; if so it is the best one now. OutOfBudget.
        """
        try:
            plan = make_plan(_completed(values), as_recorded=self._as_recorded)
        except (PlanError, ValueError):
            return False
        key = _key(plan)
        if key == self._best_key:
            return False
        if key not in self._known:
            if self._clock() >= self._until:
                raise OutOfBudget
            self.tries += 1
            failed = self._run(plan) == self.failure
            if self._clock() >= self._until:
                raise OutOfBudget  # the run may have been ended for want of time, and then proves nothing
            self._known[key] = failed
        if self._known[key]:
            self.best, self._best_key = plan, key
        return self._known[key]

    def still_fails(self, values: Values) -> bool:
        """Return whether a plan fails in the same way, as `attempt` does, and True for the best plan itself."""
        return self.attempt(values) or self._is_best(values)

    def _is_best(self, values: Values) -> bool:
        try:
            return _key(make_plan(_completed(values), as_recorded=self._as_recorded)) == self._best_key
        except (PlanError, ValueError):
            return False


def _completed(values: Values) -> Values:
    """With the settings that brokers get for this load where a plan names none: whoever runs the plan again runs it
    with these (`squall.chaos.commands.run.plan_of`), so it has to fail with them.
    """
    cluster = values["cluster"]
    suited = {} if values["runtime"] == "external" else suited_brokers(values["workload"])
    return {**values, "cluster": {**cluster, "settings": {**suited, **cluster.get("settings", {})}}}


def _key(plan: Plan) -> str:
    return json.dumps(plan.model_dump(mode="json"), sort_keys=True)


def steps_of(plan: Plan) -> int:
    """Operations and faults of a plan: what a person has to follow. A load by rate counts as one step."""
    operations = getattr(plan, "operations", None)
    return len(plan.faults) + (1 if operations is None else len(operations))
