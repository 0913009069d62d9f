"""Defines the tables of consumer groups: which member owned which partition, and which positions were committed and
reported.

As in `squall.checkers.history.tables`, all values are integers, times are ns of the run's clock, and -1 means "not
known".
"""

from __future__ import annotations

from typing import NamedTuple

HELD, REVOKED, LOST, CRASHED, LEFT = 0, 1, 2, 3, 4
"""Are the values of PartitionOwnership.how: owned to the end of the history; released in good order; taken away
(fenced, unknown, expired); the member crashed; the member left, or was assigned the partition again.
"""
ANY, DELETED = -1, -2
"""Are the values of GroupCommit.off for requests of administrators. ANY: the position was reset or deleted, and is not
known. DELETED: the group was deleted, and has no position.
"""
FROM_RESET, FROM_COMMITTED = 0, 1
"""Are the values of PartitionOwnership.begun: the member began by its `auto.offset.reset`, or at the group's committed
position.
"""


class PartitionOwnership(NamedTuple):
    """Describes the time in which a member owned a partition, as far as the member knew: from its assignment until it
    released the partition or learned of its loss.
    """

    proc: int
    group: int
    """Is the index of the group's name in History.names."""
    part: int
    gen: int
    """Is the generation, or member epoch (KIP-848), in which the partition was assigned; -1 if not known."""
    pos: int
    """Is the offset at which the member began to read."""
    begun: int
    """Says why the member began to read at `pos`: FROM_RESET (0) by its `auto.offset.reset`, or FROM_COMMITTED (1)
    because it is the group's committed position.
    """
    t0: int
    t1: int
    """Is when the ownership ended; -1 if it lasted to the end of the history."""
    how: int
    proved: int
    """Is when the member sent its last request that proves that the coordinator took it for the partition's owner; -1
    if none is known.

    A request proves it in one of two ways. It is a commit that the coordinator acknowledged for at least one partition,
    however late, unless the commit's generation is known not to assign this partition. Or it is a heartbeat that was
    answered without an error, and that was sent while no fault kept brokers apart
    (`squall.checkers.nemesis_log.apart`).
    """
    last_gen: int
    """Is the last generation or member epoch that assigned the partition to the member while it owned it."""
    told: int
    """Is when the member first learned that `last_gen`, its last generation with the partition, assigns the partition
    to it.
    """


class MemberPause(NamedTuple):
    """Describes a pause of a member's process that the load requested."""

    t0: int
    t1: int
    """Is when the pause was to end."""
    proc: int
    group: int
    silent: int
    """Is 1 if the member's heartbeats stopped too, 0 if only its application paused."""


class GenerationAssignment(NamedTuple):
    """Records when a member learned what a generation assigns to it."""

    t: int
    proc: int
    group: int
    gen: int
    parts: int
    """Counts the assigned partitions."""


class GroupCommit(NamedTuple):
    """Describes a request to commit a position for a group in one partition, or an administrator's request that changes
    positions.
    """

    op: int
    proc: int
    group: int
    part: int
    """Is the partition; -1: all partitions."""
    off: int
    """Is the next offset to be read; -1 if an administrator reset or deleted the position, so that it is not known; -2
    if an administrator deleted the group, so that no position is committed.
    """
    st: int
    """Is the result of the request: OK (done), FAIL (definitely not done) or INFO (may have been done). In a
    transaction OK only says that the coordinator keeps the position until the transaction ends.
    """
    t0: int
    t1: int
    gen: int
    txn: int
    """Is the operation id of the transaction of which the commit is part; -1 if it is in none."""
    late: int
    """Is 1 if a request for the commit was not answered, or if that is not known: it may arrive after the next commit
    was answered.
    """
    meta: int
    """Is the CRC-32 of the metadata that was committed with the position; -1 if it is not known."""


class ReportedCommittedOffset(NamedTuple):
    """Describes a committed position as a coordinator reported it."""

    op: int
    proc: int
    group: int
    part: int
    off: int
    """Is the reported position; -1 if none is committed."""
    stable: int
    """Is 1 if the coordinator had to wait for pending offsets of transactions (require_stable), else 0."""
    t0: int
    t1: int
    meta: int
    """Is the CRC-32 of the metadata that was reported with the position; -1 if the client does not record it."""


class PipelineOutput(NamedTuple):
    """Describes the send of an output: a record that a group's member made from a record that it had read, the input.
    """

    op: int
    proc: int
    group: int
    part: int
    val: int
    src: int
    """Is the value of the input."""
