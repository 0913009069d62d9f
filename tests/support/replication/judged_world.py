"""Checks the simulation's invariants on `World`, the small world of replicas in the tests of replication."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from typing import Any

from squall.broker.cluster.image import Broker, PartitionImage
from squall.broker.replication import Partition
from squall.chaos.runtimes.sim.invariants import CheckTrigger, Invariant, TopicGuarantees
from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, LogCopy
from squall.chaos.runtimes.sim.invariants.models import FOLLOWER, IDLE, LEADER, PartitionModel, ReplicaSnapshot
from squall.chaos.runtimes.sim.invariants.partition_checks import Change, PartitionChecks
from tests.support.replication.replication_steps import Steps, _progress, _trouble
from tests.support.replication.replication_world import Node, World


class Judged:
    """Passes a `World` to `PartitionChecks` after every step. `broken` has the first message for each broken invariant.
    """

    def __init__(self, world: World, promise: TopicGuarantees | None = None) -> None:
        controller = world.controller
        self.world = world
        self.broken: dict[str, str] = {}
        self.judge = PartitionChecks(self._report)
        elr = controller.keeps_eligible
        self.known = PartitionModel(promise=promise or TopicGuarantees(min_isr=controller.min_isr, elr=elr))
        self.judged = dict.fromkeys(world.nodes, 0)
        """The incarnation of each node in the last check; 0 while it is down."""

    def _report(
        self, broken: Invariant, wrong: str, node: int | None, known: PartitionModel | None, details: Mapping[str, Any]
    ) -> None:
        self.broken.setdefault(broken.name, f"node {node}: {wrong}")

    def look(self) -> None:
        known, changes = self.known, []
        self._look_at_brokers()
        for node in self.world.nodes.values():
            if self.judged[node.id] not in (0, node.incarnation) or node.partition is None:
                self._died(node)
            if node.partition is not None:
                changes += self._look_at(node)
        self._look_at_controller()
        self.judge.settle(known, changes)

    def _look_at_brokers(self) -> None:
        controller = self.world.controller
        self.known.cluster.brokers = {
            b: Broker(b, epoch, b"", {}, b in controller.fenced) for b, epoch in controller.epochs.items()
        }

    def _died(self, node: Node) -> None:
        if self.judged[node.id]:
            self.judged[node.id] = 0
            self.judge.died(self.known, node.id, LogCopy(0, batches_of(node)))

    def _look_at(self, node: Node) -> list[Change]:
        known, batches = self.known, batches_of(node)
        before, now = known.views.get(node.id), view_of(node)
        known.views[node.id] = now
        copy = known.copies.get(node.id)
        if copy is None or self.judged[node.id] == 0:
            known.copies[node.id] = LogCopy(0, batches)
            if copy is not None:
                self.judge.shortened(CheckTrigger.RECOVERED, known, node.id, copy.compare(known.ledger))
            self.judged[node.id] = node.incarnation
        elif tuple(copy.batches) != batches:
            if tuple(copy.batches) == batches[: len(copy.batches)]:
                copy.add(batches[len(copy.batches) :])
            else:
                held = copy.compare(known.ledger)
                known.copies[node.id] = LogCopy(0, batches)
                self.judge.shortened(CheckTrigger.TRUNCATED, known, node.id, held)
        self.judge.wrote(known, now, known.copies[node.id].newest(len(batches)))
        return [(before, now)] if before != now else []

    def _look_at_controller(self) -> None:
        controller, known = self.world.controller, self.known
        state = controller.state
        now = PartitionImage(
            state.replicas, state.isr, state.leader, state.leader_epoch, state.partition_epoch, elr=controller.eligible
        )
        if known.truth is None or known.truth.partition_epoch != now.partition_epoch:
            self.judge.decided(known, now)
        known.truth = now


def batches_of(node: Node) -> tuple[BatchIdentity, ...]:
    """Return the records of a node's log as batches of one record."""
    return tuple(
        BatchIdentity(n, n + 1, epoch, zlib.crc32(value.encode())) for n, (epoch, value) in enumerate(node.log.entries)
    )


def view_of(node: Node) -> ReplicaSnapshot:
    """Return a node's replica as the invariants see it."""
    p: Partition = node.running
    role = LEADER if p.is_leader else FOLLOWER if p.is_follower else IDLE
    end, epochs = len(node.log), tuple(node.log.epochs)
    return ReplicaSnapshot(
        node.id, node.incarnation, role, p.leader_epoch, p.partition_epoch, p.isr, p.maximal_isr, p.replicas,
        -1, None, p.log_start_offset, p.high_watermark, p.log_end_offset, end, p.high_watermark, 0, epochs, p.is_leader,
    )  # fmt: skip


def judged_walk(seed: int, machine: type[Partition] = Partition, steps: int = 150, settings: Any = None) -> Judged:
    """Do a random walk as `replication_steps.walk` does, and check the invariants after every step. An AssertionError
    of the world ends the walk.
    """
    rng = random.Random(repr(("replication walk", seed)))
    life = Steps(rng.choice((1, 2, 2, 3)), rng.random() < 0.5, rng.choice((1, 2, 100)), machine, settings)
    judged = Judged(life.world)
    progress, trouble = _progress(life, rng), _trouble(life, rng)
    mixture = rng.choice(((0.5,), (0, 0.3, 1), (0, 0, 0.5, 2)))
    weights = [rng.choice((0.2, 1, 4)) for _ in progress] + [rng.choice(mixture) for _ in trouble]
    weights[0] = max(weights[0], 1)
    judged.look()
    for action in rng.choices(progress + trouble, weights, k=steps):
        try:
            action()
        except AssertionError:
            return judged
        judged.look()
        if judged.broken:
            return judged
    return judged
