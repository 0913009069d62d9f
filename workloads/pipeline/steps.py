"""Defines the actions of producers and instances of a pipeline, and draws them from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

SEND, PAUSE, LEAVE, ABORT, HALT = "send", "pause", "leave", "abort", "halt"
POLLED, SENT, OFFSETS, ENDING, ENDED = "polled", "sent", "offsets", "ending", "ended"
STEPS = (POLLED, SENT, OFFSETS, ENDING, ENDED)
"""Lists the steps after which a planned crash may come. In a transaction: records were polled; outputs have their
outcomes; offsets are pending; the request to end the transaction is in flight; that request was answered. Without
transactions, the last three are: the commit of offsets was answered; it is in flight; everything is done.
"""
CRASHES = tuple(f"crash {step}" for step in STEPS)
OF_INSTANCES = (PAUSE, LEAVE, ABORT, HALT, *CRASHES)
MAX_MS = 60_000
FIRST_S = 1.5
"""Gives the seconds without actions at the begin of a load, in which the group forms."""


def transactional_id(instance: int) -> str:
    """Return the transactional id of the instance of this number."""
    return f"squall-{instance}"


class InstanceAction(NamedTuple):
    """Describes one planned action of a producer of inputs or of an instance."""

    at_s: float
    """Gives the time of the action in seconds. In a plan the time counts from the begin of the load with faults, and is
    negative in the warm-up; in a running load it counts from the begin of the run.
    """
    who: int
    """Gives the number of the producer, if the action is a send; otherwise that of the instance in its application."""
    do: str
    """Names the action: `send` of a producer, or one of the others of an instance.

    send: the producer sends an input. pause: the application pauses between two transactions. leave: the instance
    leaves its group in good order, and joins it again later. Abort, halt and crash happen in the instance's next
    transaction. abort: the transaction is aborted. halt: the whole process, heartbeats included, pauses after it has
    written the outputs. The group may remove the member meanwhile: then only its old generation fences its commit.
    crash STEP: the process ends after this step (one of `STEPS`) and sends no further request, and a successor begins.
    """
    number: int
    """Gives the partition of a send. For other actions, it gives a length in ms: of a pause or halt, or of the
    instance's absence after a leave or crash. It is 0 for an abort.
    """
    bytes: int
    """Gives the size of an input's value; 0 for the actions of instances."""


@dataclass(frozen=True, slots=True)
class InstanceActionMix:
    """Draws the random actions of a pipeline load: the sends of producers, and the pauses, leaves, aborts, halts and
    crashes of instances. The fields say how many there are, and how large or long they get.
    """

    rate: int
    """Gives the inputs per second of all producers together."""
    producers: int
    partitions: int
    record_bytes: int
    instances: int
    churn: int
    """Gives the actions per minute of all instances of an application together."""
    poll_ms: int
    session_ms: int

    def records(self, rng: Random, producer: int, begin_s: float, end_s: float) -> Iterator[InstanceAction]:
        """Yield one producer's sends: one at a random moment of each interval of `producers / rate` seconds."""
        interval_s = self.producers / self.rate
        for number in range(math.ceil((end_s - begin_s) / interval_s)):
            at_s = round(begin_s + (number + rng.random()) * interval_s, 4)
            if at_s < end_s:
                yield InstanceAction(at_s, producer, SEND, int(rng.random() * self.partitions), self.record_bytes)

    def steps(self, rng: Random, instance: int, begin_s: float, end_s: float) -> Iterator[InstanceAction]:
        """Yield one instance's pauses, leaves, aborts, halts and crashes, at random times."""
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
    """Return why a pipeline load with the settings `draw` cannot do this action; empty if it can. `sizes` is the least
    and the largest size of a record's value.
    """
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
