"""Decides what a transactional producer does next, and when: drawn at a rate, or given."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from squall.broker.env import Env
from squall.workloads.transactions.operations import PlannedTransaction, TransactionMix

if TYPE_CHECKING:
    from squall.workloads.scenario import ScenarioEnvironment

BEHIND_LIMIT_S = 1.0
"""Of what came due longer ago than this, nothing is made up for, where it is drawn."""


class TransactionSchedule:
    """One producer's transactions to come, in order of time. `began`: when the run did, by its env.mono()."""

    def __init__(self, env: Env, around: ScenarioEnvironment, draw: TransactionMix, number: int, began: float) -> None:
        self._began = began
        if around.operations is None:
            self._coming = _drawn(env, draw, number, began)
        else:
            self._coming = iter(sorted(each for each in around.operations if each.producer == number))
        self._next = next(self._coming, None)

    @property
    def due_at(self) -> float:
        """Return when the next one is due, by env.mono(); infinite if there are no more."""
        return math.inf if self._next is None else self._began + self._next.at_s

    def take(self) -> PlannedTransaction:
        """The next one. The one after it becomes the next."""
        taken = self._next
        assert taken is not None, "nothing is due"
        self._next = next(self._coming, None)
        return taken


def _drawn(env: Env, draw: TransactionMix, number: int, began: float) -> Iterator[PlannedTransaction]:
    at_s = 0.0
    while True:
        at_s = max(at_s + draw.interval_s(env.rng), env.mono() - began - BEHIND_LIMIT_S)
        yield draw.one(env.rng, at_s, number)
