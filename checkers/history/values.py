"""Makes the value of a record: `process << 40 | sequence`, so that each is unique and names its process."""

from __future__ import annotations

SEQUENCE_BITS = 40
"""A trillion records of each of 8 million processes fit an int64."""
LIMIT = 1 << 23
"""Of process and partition ids: a value has 23 bits for its process."""
AFTER_HEALING = "after_healing"
"""A setting of a producer that is none of the workload's: the harness wrote with it after healing."""


def value_of(process: int, sequence: int) -> int:
    """The value of a record, by its number among those of its process, from 0."""
    return process << SEQUENCE_BITS | sequence


def producer_of(value: int) -> int:
    """The process that a value belongs to."""
    return value >> SEQUENCE_BITS


def sequence_of(value: int) -> int:
    """The number of the record among those of its process, from 0."""
    return value & ((1 << SEQUENCE_BITS) - 1)
