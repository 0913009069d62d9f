"""Hand-made models of partitions and quorums, for tests of the simulation's invariants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from squall.broker.cluster.image import Broker, PartitionImage
from squall.chaos.runtimes.sim.invariants import TopicGuarantees
from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, CommittedBatches, LogCopy
from squall.chaos.runtimes.sim.invariants.metadata import NodeQuorumView, QuorumModel
from squall.chaos.runtimes.sim.invariants.models import (
    LEADER,
    ClusterModel,
    LostTail,
    PartitionModel,
    ReplicaSnapshot,
)

ALL = (1, 2, 3)


def one(base: int, epoch: int = 1, mark: int = 0, **more: Any) -> BatchIdentity:
    """Return a batch of one record. `mark` distinguishes it from other batches with the same offset and epoch."""
    return BatchIdentity(base, base + 1, epoch, 1000 + base + mark, **more)


def run(end: int, start: int = 0, epoch: int = 1, mark: int = 0) -> tuple[BatchIdentity, ...]:
    return tuple(one(base, epoch, mark) for base in range(start, end))


def view(
    node: int = 1,
    *,
    hw: int = 0,
    leo: int = 0,
    role: str = LEADER,
    epoch: int = 1,
    partition_epoch: int = 5,
    isr: tuple[int, ...] = ALL,
    maximal: tuple[int, ...] | None = None,
    replicas: tuple[int, ...] = ALL,
    start: int = 0,
    log_end: int | None = None,
    lso: int | None = None,
    generation: int = 0,
    epochs: Iterable[tuple[int, int]] = ((1, 0),),
) -> ReplicaSnapshot:
    return ReplicaSnapshot(
        node, 1, role, epoch, partition_epoch, isr, isr if maximal is None else maximal, replicas, -1, None, start, hw,
        leo, leo if log_end is None else log_end, hw if lso is None else lso, generation, tuple(epochs), role == LEADER,
    )  # fmt: skip


def decision(leader: int = 1, epoch: int = 1, partition_epoch: int = 5, isr: tuple[int, ...] = ALL, **more: Any) -> Any:
    return PartitionImage(ALL, isr, leader, epoch, partition_epoch, **more)


def known(
    committed: int | tuple[BatchIdentity, ...] = 0,
    *,
    copies: dict[int, int | tuple[BatchIdentity, ...]] | None = None,
    views: Iterable[ReplicaSnapshot] = (),
    truth: PartitionImage | None = None,
    fenced: Iterable[int] = (),
    promise: TopicGuarantees | None = None,
    lost: dict[int, LostTail] | None = None,
    **more: Any,
) -> PartitionModel:
    """Return a model of a partition. `committed` and each of `copies` are an end offset or the batches of the log.
    Brokers 1, 2 and 3 have the broker epochs 101, 102 and 103.
    """
    brokers = {node: Broker(node, 100 + node, b"", {}, node in tuple(fenced)) for node in ALL}
    cluster = ClusterModel(
        brokers, damaged=more.pop("damaged", set()), rotten=more.pop("rotten", set()), asked=more.pop("asked", None)
    )
    cluster.imaged = more.pop("imaged", {})
    low = more.pop("low", 0)
    promise = promise or TopicGuarantees(min_isr=2)
    made = PartitionModel(promise=promise, cluster=cluster, truth=truth, lost=lost or {}, **more)
    made.ledger = CommittedBatches(run(committed) if isinstance(committed, int) else committed)
    made.ledger.deleted(low)
    for node, batches in (copies or {}).items():
        copy = made.copies[node] = LogCopy(0, run(batches) if isinstance(batches, int) else batches)
        copy.compare(made.ledger)
    made.views = {each.node: each for each in views}
    return made


def seat(
    node: int = 1,
    *,
    leads: bool = True,
    epoch: int = 3,
    voted: int = -1,
    hw: int = 5,
    end: int = 5,
    life: int = 1,
    alone: float = 0,
) -> NodeQuorumView:
    return NodeQuorumView(node, life, leads, epoch, voted, node if leads else -1, hw, end, deserted=alone)


def quorum(committed: int = 5, ends: tuple[int, int, int] = (5, 5, 4), **more: Any) -> QuorumModel:
    made = QuorumModel(ALL, CommittedBatches(run(committed)), **more)
    for node, end in zip(ALL, ends, strict=True):
        made.copies[node] = LogCopy(0, run(end))
        made.copies[node].compare(made.ledger)
    return made


def sent(sequence: int, *, epoch: int = 0, records: int = 1, attributes: int = 0) -> BatchIdentity:
    """Return a batch of the idempotent producer 9."""
    return BatchIdentity(50, 50 + records, 1, 7, attributes, 9, epoch, sequence)
