"""Checks what is taken into the books of a partition when a node dies, and which invariants are asked when."""

from __future__ import annotations

import pytest

from squall.chaos.runtimes.sim.invariants import TopicGuarantees
from squall.chaos.runtimes.sim.invariants.acks import Ack
from squall.chaos.runtimes.sim.invariants.batches import LogCopy
from squall.chaos.runtimes.sim.invariants.models import FOLLOWER, PartitionModel, ReplicaSnapshot
from squall.chaos.runtimes.sim.invariants.partition_checks import PartitionChecks
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger
from tests.support.clusters.known_partitions import decision, known, run, sent, view


def judge() -> PartitionChecks:
    def report(*wrong: object) -> None:
        pytest.fail(str(wrong))

    return PartitionChecks(report)


def left_with(start: int, *, end: int = 6, low: int = 0) -> PartitionModel:
    """Return a partition after node 1 died with all of 6 committed batches in its log. Its disk now has `start` to
    `end`.
    """
    partition = known(6, copies={1: 6, 2: 6}, promise=TopicGuarantees())
    partition.ledger.deleted(low)
    judge().died(partition, 1, LogCopy(start, run(end, start)))
    return partition


def test_what_a_dying_node_has_deleted_by_its_retention_counts_as_deleted() -> None:
    partition = left_with(4)
    assert partition.ledger.low == 4
    assert partition.holds(1, 6)
    assert partition.lost == {}


def test_a_whole_disk_moves_no_log_start() -> None:
    assert left_with(0).ledger.low == 0
    assert left_with(0, low=3).ledger.low == 3


def test_what_a_dying_node_has_not_at_its_end_is_lost_and_not_deleted() -> None:
    partition = left_with(0, end=4)
    assert partition.ledger.low == 0
    assert partition.lost[1].upto == 6


def names_of_what_is_found(before: ReplicaSnapshot | None, now: ReplicaSnapshot) -> list[str]:
    found: list[str] = []
    partition = known(6, copies={1: 6, 2: 6, 3: 6}, promise=TopicGuarantees())
    PartitionChecks(lambda broken, *_: found.append(broken.name)).settle(partition, [(before, now)])
    return found


@pytest.mark.parametrize(
    ("broken", "good", "bad"),
    [
        ("isr-of-replicas", view(hw=6, leo=6), view(hw=6, leo=6, isr=(1, 2, 9))),
        ("leader-in-isr", view(hw=6, leo=6), view(hw=6, leo=6, isr=(2, 3))),
        ("epochs-monotone", view(hw=6, leo=6, partition_epoch=5), view(hw=6, leo=6, partition_epoch=4)),
        (
            "one-fetcher",
            view(hw=6, leo=6, role=FOLLOWER),
            view(hw=6, leo=6, role=FOLLOWER)._replace(fetching=((3, 1),)),
        ),
    ],
)
def test_what_concerns_a_standing_is_asked_when_that_changes_and_of_a_new_replica(
    broken: str, good: ReplicaSnapshot, bad: ReplicaSnapshot
) -> None:
    assert broken in names_of_what_is_found(good, bad)
    assert (broken == "epochs-monotone") is not (broken in names_of_what_is_found(None, bad))
    assert broken not in names_of_what_is_found(bad, bad._replace(hw=5, lso=5))


def test_what_concerns_how_far_a_replica_has_got_is_asked_whenever_it_has_changed() -> None:
    assert names_of_what_is_found(view(hw=6, leo=6), view(hw=5, leo=6)) == ["hw-monotone"]


def test_every_kind_of_invariant_that_concerns_a_replica_is_asked_of_a_new_one() -> None:
    judge = PartitionChecks(lambda *_: None)
    assert {each.when for each in judge._of_leader + judge._of_standing} == {
        CheckTrigger.REPLICA,
        CheckTrigger.LEADER,
        CheckTrigger.STANDING,
    }
    assert set(judge._of_replica) < set(judge._of_leader)


@pytest.mark.parametrize("deleted", [False, True])
def test_of_a_deleted_topic_nothing_is_asked_but_what_is_committed_is_known(deleted: bool) -> None:
    """Its leader has not heard of it yet, and commits what others have dropped with their logs."""
    found: list[str] = []
    partition = known(5, copies={1: 6, 2: 6}, promise=TopicGuarantees(min_isr=1), truth=decision(), deleted=deleted)
    now = view(hw=6, leo=6)
    partition.views[1] = now
    watching = PartitionChecks(lambda broken, *_: found.append(broken.name))
    watching.settle(partition, [(None, now)])
    watching.acknowledged(partition, Ack(5, -1, 3, None, None))
    assert partition.ledger.end == 6
    assert ("strong-isr" in found and "acknowledged-is-replicated" in found) is not deleted
    assert bool(found) is not deleted


@pytest.mark.parametrize(("damaged", "found"), [(True, []), (False, ["producer-sequences"])])
def test_sequences_may_be_missing_with_a_segment_that_damage_took(damaged: bool, found: list[str]) -> None:
    """Swarm seed 90033: the only replica lost the file of a closed segment, and leads without it."""
    broken: list[str] = []
    partition = known(0, copies={1: 0}, promise=TopicGuarantees())
    if damaged:
        partition.cluster.damaged.add(1)
    checks = PartitionChecks(lambda invariant, *_: broken.append(invariant.name))
    for offset, sequence in ((0, 0), (4, 4)):
        checks._committed(partition, 1, sent(sequence)._replace(base=offset, end=offset + 1))
    assert broken == found
