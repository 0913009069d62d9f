"""Decides which transaction a producer does next, and when: drawn at a rate, or given by a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from squall.broker.env import Env
from squall.workloads.transactions.operations import PlannedTransaction, TransactionMix

if TYPE_CHECKING:
    from squall.workloads.scenario import ScenarioEnvironment

BEHIND_LIMIT_S = 1.0
"""Drawn transactions that are overdue by more than this number of seconds are skipped."""


class TransactionSchedule:
    """Yields one producer's transactions in order of time. `began` is env.mono() at the begin of the run."""

    def __init__(self, env: Env, around: ScenarioEnvironment, draw: TransactionMix, number: int, began: float) -> None:
        self._began = began
        if around.operations is None:
            self._coming = _drawn(env, draw, number, began)
        else:
            self._coming = iter(sorted(each for each in around.operations if each.producer == number))
        self._next = next(self._coming, None)

    @property
    def due_at(self) -> float:
        """Returns the time of the next transaction, by env.mono(); infinite if none is left."""
        return math.inf if self._next is None else self._began + self._next.at_s

    def take(self) -> PlannedTransaction:
        """Return the next transaction, and advance to the transaction after it."""
        taken = self._next
        assert taken is not None, "nothing is due"
        self._next = next(self._coming, None)
        return taken


def _drawn(env: Env, draw: TransactionMix, number: int, began: float) -> Iterator[PlannedTransaction]:
    at_s = 0.0
    while True:
        at_s = max(at_s + draw.interval_s(env.rng), env.mono() - began - BEHIND_LIMIT_S)
        yield draw.one(env.rng, at_s, number)
