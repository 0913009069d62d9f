"""Checks what counts as durable of a record that was acknowledged, if the disk itself cannot be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from squall.chaos.runtimes.sim.invariants.ack_watch import ack_of
from squall.chaos.runtimes.sim.invariants.acks import acknowledged_is_durable
from squall.chaos.runtimes.sim.invariants.models import PartitionModel
from tests.support.clusters.known_partitions import decision, known, one, run


class Node(NamedTuple):
    """A node that is down: it has no replicas."""

    id: int
    sim: Any = None
    places: Mapping[tuple[bytes, int], Any] = {}


def told(partition: PartitionModel, offset: int, acks: int) -> str | None:
    nodes = [Node(1), Node(2)]
    return acknowledged_is_durable(ack_of(nodes, partition, offset, None, acks, 1), partition)


def partition(*ends: int) -> PartitionModel:
    """Five batches are committed; nodes 1 and 2 have as many as said."""
    return known(5, copies=dict(enumerate(ends, 1)), truth=decision())


def test_at_acks_1_a_leader_that_died_has_flushed_what_it_acknowledged_before_that_was_committed() -> None:
    assert told(partition(6, 5), 5, acks=1) is None


@pytest.mark.parametrize(("ends", "offset"), [((4, 3), 4), ((5, 5), 5)])
def test_what_is_on_no_disk_is_durable_nowhere(ends: tuple[int, int], offset: int) -> None:
    """Node 3, which is not compared, has it in its log."""
    held = known(5, copies={**dict(enumerate(ends, 1)), 3: 6}, truth=decision())
    assert told(held, offset, acks=1) is not None


def test_of_what_is_committed_another_batch_at_the_same_offset_does_not_count() -> None:
    other = known(5, copies={1: (*run(4), one(4, mark=7)), 2: 4, 3: 5}, truth=decision())
    assert told(other, 4, acks=1) is not None
