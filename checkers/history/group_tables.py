"""The tables of consumer groups: who held what, which positions were committed, and what was reported of them.

As in `squall.checkers.history.tables`, everything is an integer, times are ns of the run's clock, and -1 is "not
known".
"""

from __future__ import annotations

from typing import NamedTuple

HELD, REVOKED, LOST, CRASHED, LEFT = 0, 1, 2, 3, 4
"""Hold.how. Held to the end of the history; given up in good order; taken away (fenced, unknown, expired); its member
crashed; its member left, or was assigned it anew."""
ANY, DELETED = -1, -2
"""GroupCommit.off of what administrators ask for."""
FROM_RESET, FROM_COMMITTED = 0, 1
"""Hold.begun: the member began by its `auto.offset.reset`, or at the group's committed position."""


class PartitionOwnership(NamedTuple):
    """A member owned a partition, by what it knew: from its assignment until it gave it up or learnt of its loss."""

    proc: int
    group: int
    """Index into History.names."""
    part: int
    gen: int
    """Generation, or member epoch (KIP-848), in which it was assigned; -1 if not known."""
    pos: int
    """Where it began."""
    begun: int
    """FROM_RESET or FROM_COMMITTED."""
    t0: int
    t1: int
    """-1 where it held it to the end of the history."""
    how: int
    proved: int
    """When it sent the last request, while it owned the partition, that proves that it was a member that has it: a
    commit that the coordinator acknowledged, however late and for at least one partition, in no generation that is
    known not to assign it; or its last heartbeat that was answered well, if it sent that while no fault kept brokers
    apart (`squall.checkers.nemesis_log.apart`). -1 if none is known."""
    last_gen: int
    """The last generation or member epoch that assigned it to the member while it owned it."""
    told: int
    """When the member was first told so."""


class MemberPause(NamedTuple):
    """A member's process stood still because the load wanted that."""

    t0: int
    t1: int
    """When it was to go on."""
    proc: int
    group: int
    silent: int
    """1: its heartbeats stopped, too; 0: only its application."""


class GenerationAssignment(NamedTuple):
    """A member was told what a generation assigns to it."""

    t: int
    proc: int
    group: int
    gen: int
    parts: int
    """How many partitions."""


class GroupCommit(NamedTuple):
    """A position that somebody wanted to commit for a group, in one partition; or what an administrator asked for."""

    op: int
    proc: int
    group: int
    part: int
    """-1: all partitions."""
    off: int
    """The next offset to be read; -1: an administrator reset or deleted the position, to nobody knows which; -2: an
    administrator deleted the group: none is committed."""
    st: int
    """OK, FAIL or INFO. In a transaction OK says only that the coordinator keeps it until the transaction ends."""
    t0: int
    t1: int
    gen: int
    txn: int
    """Operation id of the transaction that it is part of, or -1."""
    late: int
    """1 where a request for it was not answered, or nobody knows: it may arrive after the answer to the next one."""
    meta: int
    """CRC-32 of the metadata that was committed with it; -1 where nobody says."""


class ReportedCommittedOffset(NamedTuple):
    """A committed position, as a coordinator reported it."""

    op: int
    proc: int
    group: int
    part: int
    off: int
    """-1: nothing is committed."""
    stable: int
    """1 where pending offsets of transactions were waited for (require_stable)."""
    t0: int
    t1: int
    meta: int
    """CRC-32 of the metadata that was reported with it; -1 where a client does not say."""


class PipelineOutput(NamedTuple):
    """A record that a member made of one that it had read: the send of a pipeline."""

    op: int
    proc: int
    group: int
    part: int
    val: int
    src: int
    """The value of the input."""
