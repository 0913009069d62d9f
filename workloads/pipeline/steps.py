"""Defines what producers and instances of a pipeline do, and draws it from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

SEND, PAUSE, LEAVE, ABORT, HALT = "send", "pause", "leave", "abort", "halt"
POLLED, SENT, OFFSETS, ENDING, ENDED = "polled", "sent", "offsets", "ending", "ended"
STEPS = (POLLED, SENT, OFFSETS, ENDING, ENDED)
"""Of a transaction: records were polled; outputs were acknowledged; offsets are pending; the end is on its way; it was
answered."""
CRASHES = tuple(f"crash {step}" for step in STEPS)
OF_INSTANCES = (PAUSE, LEAVE, ABORT, HALT, *CRASHES)
MAX_MS = 60_000
FIRST_S = 1.5
"""Instances are left alone for so long, to come together."""


def transactional_id(instance: int) -> str:
    """Return the transactional id of the instance of this number."""
    return f"squall-{instance}"


class InstanceAction(NamedTuple):
    """One thing that a producer of inputs or an instance does."""

    at_s: float
    """In a plan: since the load with faults began, negative in the warm-up."""
    who: int
    """Number of a producer (send) or of an instance."""
    do: str
    """send: an input. pause: the application stands still between two transactions. leave: it goes in good order, and
    comes again. abort: its next transaction is aborted. halt: in its next transaction the whole process stands still
    behind the outputs, so that its group may go on without it: then only its generation fences it. crash STEP: in its
    next transaction it is gone without a word behind that step, and has a successor."""
    number: int
    """send: the partition. abort: 0. Else for how long, in ms."""
    bytes: int
    """Of an input's value; 0 for what instances do."""


@dataclass(frozen=True, slots=True)
class InstanceActionMix:
    """Holds the settings by which a load is drawn."""

    rate: int
    """Inputs a second, all producers together."""
    producers: int
    partitions: int
    record_bytes: int
    instances: int
    churn: int
    """What instances do a minute, all together."""
    poll_ms: int
    session_ms: int

    def records(self, rng: Random, producer: int, begin_s: float, end_s: float) -> Iterator[InstanceAction]:
        """Yield one producer's records, a fixed time apart on average."""
        interval_s = self.producers / self.rate
        for number in range(math.ceil((end_s - begin_s) / interval_s)):
            at_s = round(begin_s + (number + rng.random()) * interval_s, 4)
            if at_s < end_s:
                yield InstanceAction(at_s, producer, SEND, int(rng.random() * self.partitions), self.record_bytes)

    def steps(self, rng: Random, instance: int, begin_s: float, end_s: float) -> Iterator[InstanceAction]:
        """Yield one instance's steps."""
        if not self.churn:
            return
        mean_s, at_s = 60 * self.instances / self.churn, begin_s + FIRST_S
        while (at_s := at_s + rng.uniform(0.2, 1.8) * mean_s) < end_s:
            do = rng.choice((PAUSE, LEAVE, ABORT, HALT, *CRASHES, *CRASHES))
            longest = {PAUSE: self.poll_ms * 3 // 2, HALT: self.session_ms * 2}.get(do, 2000)
            yield InstanceAction(
                round(at_s, 4), instance, do, 0 if do == ABORT else min(rng.randint(100, longest), MAX_MS), 0
            )


def wrong(step: InstanceAction, draw: InstanceActionMix, sizes: tuple[int, int]) -> str:
    """Why this is no step of such a load; empty where it is one."""
    if step.do not in (SEND, *OF_INSTANCES):
        return f"do {step.do!r}: one of {', '.join((SEND, *OF_INSTANCES))}"
    of_record = step.do == SEND
    limits = (
        ("who", step.who, 0, (draw.producers if of_record else draw.instances) - 1),
        ("number", step.number, 0, draw.partitions - 1 if of_record else MAX_MS),
        ("bytes", step.bytes, *(sizes if of_record else (0, sizes[1]))),
    )
    for what, number, low, high in limits:
        if not low <= number <= high:
            return f"{what} {number} of {step.do}: between {low} and {high} are allowed"
    return ""
