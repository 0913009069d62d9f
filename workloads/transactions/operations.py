"""Defines what a transactional producer does, one transaction after the other, and draws it from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

COMMIT, ABORT, LEAVE = "commit", "abort", "leave"
ENDS = (COMMIT, ABORT, LEAVE)
SEND, POLL, PAUSE = "send", "poll", "pause"
MAX_STEPS, MAX_PAUSE_MS = 16, 60_000
DRAWN_STEPS = 4
POLLS = 0.3
"""Share of polls among the sends and polls that are drawn."""
LEFT = 0.05
"""Share of transactions whose client ends before they do."""
PAUSED, PAUSE_MS = 0.2, 400
"""Share of transactions with a pause inside, and how long it is at most."""
OUTLIVING, LONGER_MS = 0.006, (1_500, 2_500)
"""Share of transactions that outlive their time-out, and by how much: a coordinator looks once a second."""
AT_ONCE = 0.5
"""Share of transactions that begin as soon as the one before them has ended."""


class MicroOp(NamedTuple):
    """One thing that is done inside a transaction."""

    do: str
    """send, poll or pause."""
    number: int = 0
    """Of the partition that a record is sent to; of a pause its ms."""

    def __str__(self) -> str:
        return self.do if self.do == POLL else f"{self.do} {self.number}"


def steps_of(text: str) -> tuple[MicroOp, ...]:
    """The steps in a transaction's text. ValueError says which is none."""
    return tuple(_step(each.strip()) for each in text.split(","))


def text_of(steps: Sequence[MicroOp]) -> str:
    """The reverse of `steps_of`."""
    return ", ".join(map(str, steps))


def _step(text: str) -> MicroOp:
    do, _, number = text.partition(" ")
    if do == POLL and not number:
        return MicroOp(POLL)
    if do in (SEND, PAUSE) and number.isascii() and number.isdigit() and len(number) < 10:
        return MicroOp(do, int(number))
    raise ValueError(f"{text!r} is no step: send PARTITION, poll and pause MS are, with commas between them")


class PlannedTransaction(NamedTuple):
    """Describes one transaction of one producer."""

    at_s: float
    """When it begins at the earliest. In a plan: since the load with faults began, negative in the warm-up."""
    producer: int
    steps: str
    """What is done, one after the other: "send 0, poll, pause 300, send 2"."""
    bytes: int
    """Of each record's value."""
    end: str
    """commit, abort, or leave: the client ends without a word, and a successor takes over its transactional id."""

    @property
    def partitions(self) -> list[int]:
        """Return the partitions that its records go to, in order. Raises ValueError as `steps_of` does."""
        return [step.number for step in steps_of(self.steps) if step.do == SEND]


STEPS = PlannedTransaction._fields.index("steps")


def wrong_steps(text: str, partitions: int) -> str:
    """Why these are no steps of a transaction that writes to so many partitions; empty where they are."""
    try:
        steps = steps_of(text)
    except ValueError as wrong:
        return f"steps: {wrong}"
    if len(steps) > MAX_STEPS:
        return f"{len(steps)} steps: between 1 and {MAX_STEPS} are allowed"
    for step in steps:
        if step.do == SEND and step.number >= partitions:
            return f"{step}: there are partitions 0 to {partitions - 1}"
        if step.do == PAUSE and step.number > MAX_PAUSE_MS:
            return f"{step}: at most {MAX_PAUSE_MS} ms"
    return ""


def lesser(operation: list[Any]) -> Iterator[list[Any]]:
    """The same transaction without one of its steps, as plans' files have it."""
    steps = steps_of(operation[STEPS])
    for number in range(len(steps) if len(steps) > 1 else 0):
        left = text_of([*steps[:number], *steps[number + 1 :]])
        yield [*operation[:STEPS], left, *operation[STEPS + 1 :]]


@dataclass(frozen=True, slots=True)
class TransactionMix:
    """Holds the settings by which transactions are drawn."""

    rate: int
    """Transactions a second, all producers together."""
    producers: int
    partitions: int
    record_bytes: int
    aborts: float
    """Share of transactions that are aborted by choice."""
    timeout_ms: int
    """After which coordinators abort them."""

    def one(self, rng: Random, at_s: float, producer: int) -> PlannedTransaction:
        """Draw one transaction."""
        steps = [self._step(rng) for _ in range(rng.randint(1, DRAWN_STEPS))]
        if rng.random() < PAUSED:
            steps.insert(rng.randint(0, len(steps)), MicroOp(PAUSE, rng.randint(1, PAUSE_MS)))
        drawn = rng.random()
        end = LEAVE if drawn < LEFT else ABORT if drawn < LEFT + self.aborts else COMMIT
        if rng.random() < OUTLIVING:
            steps, end = self._outliving(rng, steps), COMMIT
        return PlannedTransaction(round(at_s, 4), producer, text_of(steps), self.record_bytes, end)

    def _step(self, rng: Random) -> MicroOp:
        return MicroOp(POLL) if rng.random() < POLLS else MicroOp(SEND, rng.randrange(self.partitions))

    def _outliving(self, rng: Random, steps: list[MicroOp]) -> list[MicroOp]:
        """The same steps behind a record and a pause that is longer than the time-out, where that may be."""
        pause = MicroOp(PAUSE, self.timeout_ms + rng.randint(*LONGER_MS))
        first = MicroOp(SEND, rng.randrange(self.partitions))
        return [first, pause, *steps] if pause.number <= MAX_PAUSE_MS else steps

    def interval_s(self, rng: Random) -> float:
        """Return the seconds from one transaction of a producer to its next one."""
        return 0.0 if rng.random() < AT_ONCE else rng.uniform(1, 3) * self.producers / self.rate
