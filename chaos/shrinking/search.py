"""Holds the state of a search for a smaller plan: the best plan so far, the plans tried already, and the time left."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from squall.chaos.plans.mistakes import beyond_limits
from squall.chaos.plans.plan import Plan, PlanError, make_plan
from squall.workloads.registry import suited_brokers

Values = dict[str, Any]
"""Holds a plan as JSON values, which the passes of the search change."""

F = TypeVar("F")
"""Is the type that identifies a failure: equal values mean the same failure."""


class OutOfBudget(Exception):
    """Reports that the time for shrinking is over. The best plan found so far is the result."""


class ShrinkSearch(Generic[F]):
    """Searches for a smaller plan that fails in the same way. The function `run` returns how a plan fails, or None.
    `best` is the smallest plan found so far whose result is `failure`.

    Every plan is run once: results are cached, and values that make no valid plan are not run at all.
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
        """Return a copy of the best plan's values, which the caller may change."""
        values: Values = json.loads(self._best_key)
        return values

    def attempt(self, values: Values) -> bool:
        """Make and run a plan of `values`, unless it is invalid or was run before. Return whether it fails in the same
        way; if so, it becomes the best plan. Return False for the best plan itself. Raise OutOfBudget if the time is
        over.
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
        """Return whether a plan of `values` fails in the same way; True for the best plan itself. A failing plan
        becomes the best plan. Raise OutOfBudget if the time is over.
        """
        return self.attempt(values) or self._is_best(values)

    def _is_best(self, values: Values) -> bool:
        try:
            return _key(make_plan(_completed(values), as_recorded=self._as_recorded)) == self._best_key
        except (PlanError, ValueError):
            return False


def _completed(values: Values) -> Values:
    """Return the values with the broker settings that `squall run` adds for this workload
    (`squall.chaos.commands.run.plan_of`). Settings that the plan gives are kept. So a plan that fails here also fails
    under `squall run`.
    """
    cluster = values["cluster"]
    suited = {} if values["runtime"] == "external" else suited_brokers(values["workload"])
    return {**values, "cluster": {**cluster, "settings": {**suited, **cluster.get("settings", {})}}}


def _key(plan: Plan) -> str:
    return json.dumps(plan.model_dump(mode="json"), sort_keys=True)


def steps_of(plan: Plan) -> int:
    """Count the operations and faults of a plan, as a measure of its size. A load by rate, without listed operations,
    counts as one.
    """
    operations = getattr(plan, "operations", None)
    return len(plan.faults) + (1 if operations is None else len(operations))
