"""Checks which replicas are compared after an event: each that was written to; and a write that was not announced is
found.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from squall.broker.log.config import LogConfig
from squall.broker.log.durability import DurabilityTracker
from squall.broker.log.log import Log
from squall.broker.replication.partition import Partition
from squall.broker.replication.replica import FollowerReplicaState as Follower
from squall.broker.replication.values import ReplicationSettings
from squall.chaos.runtimes.sim.invariants.batches import LogCopy
from squall.chaos.runtimes.sim.invariants.models import BelievedFollowerEnds
from squall.chaos.runtimes.sim.invariants.watched import WatchedNode, WatchedReplica, WatchedReplicas
from squall.chaos.runtimes.sim.invariants.writes import BELIEVED, OF_LOG, OF_STATE, note_writes
from tests.support.clusters.known_partitions import known


class Seen:
    """A node with replicas of three partitions: it leads a and c."""

    def __init__(self, written: dict[Any, None] | None) -> None:
        broker = object()
        self.node = WatchedNode(SimpleNamespace(id=1, name="node-1", node=broker), 0)  # type: ignore[arg-type]
        self.node.broker = broker
        self.states = {name: state(name, leads=name != "b") for name in "abc"}
        self.logs = {name: log() for name in "abc"}
        hosted = [SimpleNamespace(state=self.states[name], log=self.logs[name]) for name in "abc"]
        self.replicas = WatchedReplicas(written)
        self.replicas.host(self.node, [WatchedReplica(self.node, each, known(), LogCopy()) for each in hosted])  # type: ignore[arg-type]
        self.replicas.changed([self.node], [self.node])

    def changed(self, *, anew: bool = False) -> tuple[list[str], list[str]]:
        """The topics of what has changed, and of who believes something else."""
        changed, believers = self.replicas.changed([self.node] if anew else [], [self.node])
        return [each.state.topic for each in changed], [each.state.topic for each in believers]


def state(topic: str, *, leads: bool) -> Partition:
    found = Partition(topic, 0, bytes(16), 1, ReplicationSettings())
    found.is_leader = leads
    if leads:
        found.followers = {node: follower(node, 5) for node in (2, 3)}
    return found


def follower(node: int, end: int) -> Follower:
    found = Follower(node)
    found.log_end_offset = end
    return found


def log() -> Log:
    found = Log.__new__(Log)
    found.log_end_offset, found.generation, found.log_start_offset = 9, 0, 0
    found.durability = DurabilityTracker(LogConfig(), 0)
    return found


@pytest.fixture
def seen() -> Iterator[Seen]:
    with note_writes() as written:
        yield Seen(written)


def test_what_nobody_wrote_to_is_not_looked_at(seen: Seen) -> None:
    assert seen.changed() == ([], [])


@pytest.mark.parametrize("name", sorted(OF_STATE))
def test_each_number_of_a_state_machine_that_changes_is_seen(seen: Seen, name: str) -> None:
    before = getattr(seen.states["b"], name)
    setattr(seen.states["b"], name, not before if isinstance(before, bool) else (1,) if before == () else before + 1)
    assert seen.changed() == (["b"], [])
    assert seen.changed() == ([], []), "it is told once"


@pytest.mark.parametrize("name", sorted(OF_LOG))
def test_each_number_of_a_log_that_changes_is_seen(seen: Seen, name: str) -> None:
    setattr(seen.logs["c"], name, 7)
    assert seen.changed() == (["c"], [])


def test_a_recovery_point_that_moves_alone_is_seen(seen: Seen) -> None:
    seen.logs["b"].durability.recovery_point = 4
    assert seen.changed() == (["b"], [])


def test_only_the_leader_whose_follower_moved_is_asked(seen: Seen) -> None:
    seen.states["c"].followers[3].log_end_offset = 6
    assert seen.changed() == ([], ["c"])


def test_followers_of_another_epoch_are_as_well_known(seen: Seen) -> None:
    seen.states["a"].followers = {2: follower(2, 5), 3: follower(3, 5)}
    seen.states["a"].partition_epoch += 1
    assert seen.changed() == (["a"], [])
    seen.states["a"].followers[2].log_end_offset = 8
    assert seen.changed() == ([], ["a"])


def test_what_was_written_and_taken_back_is_no_change(seen: Seen) -> None:
    seen.states["a"].high_watermark = 3
    seen.states["a"].high_watermark = 0
    assert seen.changed() == ([], [])


def test_many_are_told_in_their_order(seen: Seen) -> None:
    for name in "cab":
        seen.states[name].high_watermark = 2
    assert seen.changed() == (["a", "b", "c"], [])


def test_of_a_node_that_is_looked_at_anew_all_replicas_are_compared(seen: Seen) -> None:
    behind_its_back(seen.states["a"], "high_watermark", 4)
    assert seen.changed() == ([], [])
    assert seen.changed(anew=True) == (["a"], [])


def test_a_change_that_no_write_made_is_found(seen: Seen) -> None:
    seen.replicas.check([seen.node])
    behind_its_back(seen.states["a"], "high_watermark", 4)
    with pytest.raises(AssertionError, match="no write to it was seen"):
        seen.replicas.check([seen.node])


def test_so_is_a_belief(seen: Seen) -> None:
    behind_its_back(seen.states["a"].followers[2], BELIEVED, 4)
    with pytest.raises(AssertionError, match="no write to it was seen"):
        seen.replicas.check([seen.node])


def test_what_was_written_and_not_looked_at_yet_is_no_such_change(seen: Seen) -> None:
    seen.states["a"].high_watermark = 4
    seen.states["c"].followers[2].log_end_offset = 6
    seen.replicas.check([seen.node])


def test_where_nobody_notes_writes_every_look_compares_all() -> None:
    seen = Seen(None)
    seen.states["a"].high_watermark = 4
    seen.states["c"].followers[3].log_end_offset = 6
    assert seen.changed() == (["a"], ["c"])


def test_what_a_dead_incarnation_wrote_last_is_nobodys(seen: Seen) -> None:
    seen.states["a"].high_watermark = 4
    seen.node.sim.node = None  # type: ignore[misc]
    assert seen.changed() == ([], [])


@pytest.mark.parametrize("next_one", [None, object()], ids=["down", "another incarnation"])
def test_what_the_tasks_of_a_dead_incarnation_write_later_is_nobodys(seen: Seen, next_one: object) -> None:
    follower_of_a = seen.states["a"].followers[2]
    seen.node.sim.node = seen.node.broker = next_one  # type: ignore[misc]
    seen.replicas.host(seen.node, ())
    follower_of_a.log_end_offset = 8
    seen.states["b"].high_watermark = 3
    assert seen.changed() == ([], [])


def test_afterwards_the_brokers_classes_are_as_they_were() -> None:
    classes = Partition, Log, DurabilityTracker, Follower
    before = [dict(vars(owner)) for owner in classes]
    with note_writes():
        assert vars(Follower)[BELIEVED] is not before[3][BELIEVED]
    assert [dict(vars(owner)) for owner in classes] == before


def test_what_a_leader_of_the_past_believes_hides_nothing() -> None:
    about = known()

    def leader(end: int, epoch: int) -> Partition:
        found = state("t", leads=True)
        found.leader_epoch, found.followers = epoch, {2: follower(2, end)}
        return found

    assert about.note_beliefs(leader(7, epoch=2))
    assert not about.note_beliefs(leader(3, epoch=1))
    assert about.believed == BelievedFollowerEnds(1, 2, ((2, 7),))
    assert not about.note_beliefs(leader(7, epoch=2)), "that is no news"
    assert about.note_beliefs(leader(8, epoch=2))


def behind_its_back(one: Any, name: str, value: int) -> None:
    """Write to a slot as no assignment does."""
    descriptor = vars(Follower)[name] if isinstance(one, Follower) else getattr(type(one), name)
    if isinstance(descriptor, property):
        descriptor = slot_of(descriptor)
    descriptor.__set__(one, value)


def slot_of(hook: property) -> Any:
    return hook.fget.__self__  # type: ignore[union-attr]
