"""Defines the transactions of a producer, and draws them from a seed."""

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
"""Gives the share of polls among the sends and polls that are drawn."""
LEFT = 0.05
"""Gives the share of transactions that their client leaves open when it ends."""
PAUSED, PAUSE_MS = 0.2, 400
"""`PAUSED` is the share of transactions with a pause inside; a pause has at most `PAUSE_MS` ms."""
OUTLIVING, LONGER_MS = 0.006, (1_500, 2_500)
"""`OUTLIVING` is the share of transactions that outlive their time-out, by a random time between the two values of
`LONGER_MS`, in ms. A coordinator looks for timed-out transactions once a second, so it aborts them before they
continue.
"""
AT_ONCE = 0.5
"""Gives the share of transactions that begin as soon as the one before them has ended."""


class MicroOp(NamedTuple):
    """Describes one step inside a transaction: a send, a poll or a pause."""

    do: str
    """Names the step: send, poll or pause."""
    number: int = 0
    """Gives the partition of a send, or the length of a pause in ms."""

    def __str__(self) -> str:
        return self.do if self.do == POLL else f"{self.do} {self.number}"


def steps_of(text: str) -> tuple[MicroOp, ...]:
    """Return the parsed steps of a text such as "send 0, poll, pause 300". Raises ValueError if a part of the text is
    no step.
    """
    return tuple(_step(each.strip()) for each in text.split(","))


def text_of(steps: Sequence[MicroOp]) -> str:
    """Return steps as text, such as "send 0, poll, pause 300"."""
    return ", ".join(map(str, steps))


def _step(text: str) -> MicroOp:
    do, _, number = text.partition(" ")
    if do == POLL and not number:
        return MicroOp(POLL)
    if do in (SEND, PAUSE) and number.isascii() and number.isdigit() and len(number) < 10:
        return MicroOp(do, int(number))
    raise ValueError(f"{text!r} is no step: send PARTITION, poll and pause MS are, with commas between them")


class PlannedTransaction(NamedTuple):
    """Describes one planned transaction of one producer."""

    at_s: float
    """Gives the earliest begin in seconds. In a plan, 0 is the end of the warm-up, and the warm-up has negative times.
    In a `TransactionSchedule`, 0 is the begin of the run.
    """
    producer: int
    steps: str
    """Lists the steps in order. "send 0, poll, pause 300" sends a record to partition 0, polls, and pauses for 300 ms.
    """
    bytes: int
    """Gives the size of each record's value."""
    end: str
    """Says how the transaction ends: by a `commit` or an `abort`, or not at all (`leave`). In the last case the client
    ends without a request, and a successor takes over its transactional id.
    """

    @property
    def partitions(self) -> list[int]:
        """Returns the partitions of the transaction's records, in order. Raises ValueError as `steps_of` does."""
        return [step.number for step in steps_of(self.steps) if step.do == SEND]


STEPS = PlannedTransaction._fields.index("steps")


def wrong_steps(text: str, partitions: int) -> str:
    """Return why these are no valid steps of a transaction over this number of partitions; empty if they are valid."""
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


def simplifications(operation: list[Any]) -> Iterator[list[Any]]:
    """Yield variants of a transaction for shrinking, each without one of its steps. `operation` is the transaction as a
    list, as in a plan's file. A transaction with a single step has no variants.
    """
    steps = steps_of(operation[STEPS])
    for number in range(len(steps) if len(steps) > 1 else 0):
        left = text_of([*steps[:number], *steps[number + 1 :]])
        yield [*operation[:STEPS], left, *operation[STEPS + 1 :]]


@dataclass(frozen=True, slots=True)
class TransactionMix:
    """Holds the settings of random transactions of a load, and draws such transactions."""

    rate: int
    """Gives the transactions per second of all producers together."""
    producers: int
    partitions: int
    record_bytes: int
    aborts: float
    """Gives the share of transactions that are aborted by choice."""
    timeout_ms: int
    """Gives the transaction time-out in ms, after which coordinators abort a transaction."""

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
        """Return the steps of a transaction that outlives its time-out: a send and a pause longer than the time-out,
        then `steps`. If no pause may be that long, return `steps` alone.
        """
        pause = MicroOp(PAUSE, self.timeout_ms + rng.randint(*LONGER_MS))
        first = MicroOp(SEND, rng.randrange(self.partitions))
        return [first, pause, *steps] if pause.number <= MAX_PAUSE_MS else steps

    def interval_s(self, rng: Random) -> float:
        """Draw the seconds from the begin of one transaction of a producer to the earliest begin of its next one. If
        this is 0, the next one begins as soon as the first has ended.
        """
        return 0.0 if rng.random() < AT_ONCE else rng.uniform(1, 3) * self.producers / self.rate
