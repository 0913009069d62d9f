"""Makes the value of a record: `process << 40 | sequence`, so that each value is unique and names its process."""

from __future__ import annotations

SEQUENCE_BITS = 40
"""Is the number of bits of a sequence: a trillion records of each of 8 million processes fit an int64."""
LIMIT = 1 << 23
"""Is the number of process ids, which begin at 0: a value has 23 bits for its process. Partition ids have the same
limit.
"""
AFTER_HEALING = "after_healing"
"""Is the key in a producer's settings that marks a producer of the harness, not of the workload: the harness wrote with
it after healing.
"""


def value_of(process: int, sequence: int) -> int:
    """Return the value of a record, from its number among the records of its process, from 0."""
    return process << SEQUENCE_BITS | sequence


def producer_of(value: int) -> int:
    """Return the process to which a value belongs."""
    return value >> SEQUENCE_BITS


def sequence_of(value: int) -> int:
    """Return the number of the record among the records of its process, from 0."""
    return value & ((1 << SEQUENCE_BITS) - 1)
