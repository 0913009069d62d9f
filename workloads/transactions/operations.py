"""What a transactional producer does: one transaction after the other, and how a seed draws them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

COMMIT, ABORT, LEAVE = "commit", "abort", "leave"
ENDS = (COMMIT, ABORT, LEAVE)
MAX_RECORDS, MAX_PAUSE_MS = 8, 60_000
DRAWN_RECORDS = 4
LEFT = 0.05
"""Share of transactions whose client ends before they do."""
PAUSED, PAUSE_MS = 0.2, 400
"""Share of transactions with a pause inside, and how long it is at most."""
AT_ONCE = 0.5
"""Share of transactions that begin as soon as the one before them has ended."""


class Transaction(NamedTuple):
    """One transaction of one producer: records to partitions in turn, a pause in the middle, and its end."""

    at_s: float
    """When it begins at the earliest. In a plan: since the load with faults began, negative in the warm-up."""
    producer: int
    records: int
    partition: int
    """Of the first record; the others follow by turns."""
    bytes: int
    """Of each record's value."""
    pause_ms: int
    end: str
    """commit, abort, or leave: the client ends without a word, and a successor takes over its transactional id."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How transactions are drawn."""

    rate: int
    """Transactions a second, all producers together."""
    producers: int
    partitions: int
    record_bytes: int
    aborts: float
    """Share of transactions that are aborted by choice."""

    def one(self, rng: Random, at_s: float, producer: int) -> Transaction:
        """One transaction."""
        records, partition = rng.randint(1, DRAWN_RECORDS), rng.randrange(self.partitions)
        pause_ms = rng.randint(1, PAUSE_MS) if rng.random() < PAUSED else 0
        drawn = rng.random()
        end = LEAVE if drawn < LEFT else ABORT if drawn < LEFT + self.aborts else COMMIT
        return Transaction(round(at_s, 4), producer, records, partition, self.record_bytes, pause_ms, end)

    def interval_s(self, rng: Random) -> float:
        """From one transaction of a producer to its next one."""
        return 0.0 if rng.random() < AT_ONCE else rng.uniform(1, 3) * self.producers / self.rate
