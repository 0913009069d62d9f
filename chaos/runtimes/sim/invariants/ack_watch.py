"""Compares acknowledgements that clients got with the replicas: which record is at the acknowledged offset, which
leader appended it, and on whose disks it is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.acks import Ack
from squall.chaos.runtimes.sim.invariants.durable import durable_end

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel


class ReplicaHost(Protocol):
    """Represents a node that hosts replicas, for the checks of acknowledgements."""

    @property
    def id(self) -> int:
        """Returns the node's id."""

    @property
    def sim(self) -> Any:
        """Returns the node as an `inspection.InspectedNode`."""

    @property
    def places(self) -> Mapping[tuple[bytes, int], Any]:
        """Returns the node's replicas by topic id and partition; empty while the node is down. Of each replica, `log`
        is the broker's log, and `copy` is the `LogCopy` that the checker keeps of it.
        """


def ack_of(
    nodes: Iterable[ReplicaHost], known: PartitionModel, offset: int, value: bytes | None, acks: int, min_isr: int
) -> Ack:
    """Return what the replicas hold for a record that was acknowledged at `offset`. `value`: the beginning of the
    record's value, unique to this record.
    """
    nodes = list(nodes)
    found = None if value is None else _found(nodes, known, offset, value)
    epoch = -1 if value is None or known.void_epoch < 0 else _epoch_of(nodes, known, offset, value)
    durable = _durable_on(nodes, known, offset) if known.always_durable else None
    return Ack(offset, acks, min_isr, found, value, epoch, durable)


def _found(nodes: Iterable[ReplicaHost], known: PartitionModel, offset: int, value: bytes) -> bytes | None:
    for seen in nodes:
        replica = seen.places.get((known.topic_id, known.partition))
        if replica is not None and known.holds(seen.id, offset + 1):
            found = inspection.record_at(replica.log, seen.sim.disk, offset)
            return found if found is None else found[: len(value)]
    return None


def _epoch_of(nodes: Iterable[ReplicaHost], known: PartitionModel, offset: int, value: bytes) -> int:
    """Return the newest leader epoch of a batch with this record at `offset`; -1 if no running node has it. (If a
    producer sends a record again after a loss, two epochs may have the record at the same offset. Then the leader of
    the newer epoch acknowledged the record.)
    """
    newest = -1
    for seen in nodes:
        replica = seen.places.get((known.topic_id, known.partition))
        batch = None if replica is None else replica.copy.at(offset)
        if replica is not None and batch is not None and batch.epoch > newest:
            found = inspection.record_at(replica.log, seen.sim.disk, offset)
            if found is not None and found.startswith(value):
                newest = batch.epoch
    return newest


def _durable_on(nodes: Iterable[ReplicaHost], known: PartitionModel, offset: int) -> tuple[int, ...]:
    """Return the nodes on whose disks a record is durable. A dead node counts, and so does a node whose disk was
    damaged since, because the record was flushed before it was acknowledged. (With acks=1 the record need not be
    committed.)
    """
    found = []
    for seen in nodes:
        replica = seen.places.get((known.topic_id, known.partition))
        if replica is None or seen.id in known.cluster.damaged:
            if known.held_once(seen.id, offset + 1) or known.has_uncommitted(seen.id, offset):
                found.append(seen.id)
        elif durable_end(replica.log, seen.sim.disk) > offset:
            found.append(seen.id)
    return tuple(found)
