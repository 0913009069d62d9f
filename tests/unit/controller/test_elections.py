"""The rules for a change of a partition's leader and ISR, one by one."""

from __future__ import annotations

from typing import Any

from squall.broker.cluster.image import RECOVERING, PartitionImage
from squall.broker.cluster.replay import changed
from squall.broker.controller.elections import ElectionType, PartitionChange
from squall.broker.protocol.ids import NO_NODE

TOPIC = b"t" * 16


def a_partition(**changes: Any) -> PartitionImage:
    fields: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionImage(**{**fields, **changes})


def plan(before: PartitionImage, *dead: int, **wanted: Any) -> PartitionImage:
    """The partition after the change, with the dead brokers out of the ISR unless an ISR is given."""
    wanted.setdefault("isr", tuple(member for member in before.isr if member not in dead))
    change = PartitionChange(
        topic_id=TOPIC,
        index=0,
        before=before,
        acceptable=lambda broker: broker not in dead,
        min_isr=wanted.pop("min_isr", 2),
        **wanted,
    )
    record = change.plan()
    return before if record is None else changed(before, record)


def test_a_valid_leader_stays_and_keeps_its_epoch() -> None:
    after = plan(a_partition(), 3)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 10)
    assert after.isr == (1, 2)


def test_a_valid_leader_stays_although_the_preferred_one_could_lead() -> None:
    assert plan(a_partition(leader=2)).leader == 2


def test_the_first_live_isr_member_in_replica_order_is_elected() -> None:
    after = plan(a_partition(isr=(3, 2, 1)), 1)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 6, 10)
    assert after.isr == (3, 2)


def test_a_live_replica_outside_the_isr_is_not_elected() -> None:
    after = plan(a_partition(isr=(1, 2)), 1, 2)
    assert after.leader == NO_NODE


def test_the_last_isr_member_is_never_removed() -> None:
    after = plan(a_partition(isr=(1,)), 1)
    assert (after.leader, after.isr) == (NO_NODE, (1,))
    assert (after.leader_epoch, after.partition_epoch) == (6, 10)


def test_losing_the_whole_isr_at_once_keeps_it_until_somebody_returns() -> None:
    after = plan(a_partition(), 1, 2, 3)
    assert (after.leader, after.isr) == (NO_NODE, (1, 2, 3))


def test_nothing_is_written_where_nothing_changes() -> None:
    before = a_partition(isr=(1,), leader=NO_NODE)
    assert plan(before, 1) is before


def test_an_isr_member_that_returns_leads_again() -> None:
    after = plan(a_partition(isr=(2,), leader=NO_NODE), 1, 3)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (2,))


def test_an_unclean_election_takes_any_live_replica_alone_and_recovering() -> None:
    after = plan(a_partition(isr=(1,)), 1, election=ElectionType.UNCLEAN)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)
    assert after.leader_epoch == 6


def test_an_unclean_election_prefers_a_live_isr_member() -> None:
    after = plan(a_partition(isr=(1, 3)), 1, election=ElectionType.UNCLEAN)
    assert (after.leader, after.isr, after.leader_recovery_state) == (3, (3,), 0)


def test_an_unclean_election_without_a_live_replica_elects_nobody() -> None:
    after = plan(a_partition(isr=(1,)), 1, 2, 3, election=ElectionType.UNCLEAN)
    assert (after.leader, after.isr) == (NO_NODE, (1,))


def test_the_preferred_leader_takes_over_only_when_asked_and_only_from_the_isr() -> None:
    assert plan(a_partition(leader=2), election=ElectionType.PREFERRED).leader == 1
    assert plan(a_partition(leader=2, isr=(2, 3)), election=ElectionType.PREFERRED).leader == 2


def test_recovery_ends_when_the_leader_says_so() -> None:
    before = a_partition(isr=(1,), leader_recovery_state=RECOVERING)
    assert plan(before, isr=(1, 2), leader_recovery_state=0).leader_recovery_state == 0


def test_growing_and_shrinking_the_isr_leave_the_leader_epoch_alone() -> None:
    assert plan(a_partition(), isr=(1,)).leader_epoch == 5
    assert plan(a_partition(isr=(1,)), isr=(1, 2)).leader_epoch == 5


def test_a_reassignment_that_drops_a_replica_bumps_the_leader_epoch() -> None:
    after = plan(a_partition(), isr=(1, 2), replicas=(1, 2))
    assert (after.leader, after.leader_epoch, after.replicas) == (1, 6, (1, 2))


def test_a_reassignment_completes_when_every_added_replica_is_in_the_isr() -> None:
    moving = a_partition(replicas=(1, 2, 3, 4), isr=(1, 2, 3), adding=(4,), removing=(1,))
    still = plan(moving, isr=(1, 2, 3))
    assert still is moving
    done = plan(moving, isr=(1, 2, 3, 4))
    assert (done.replicas, done.isr, done.adding, done.removing) == ((2, 3, 4), (2, 3, 4), (), ())
    assert (done.leader, done.leader_epoch) == (2, 6)


# --------------------------------------------------------------------------------- eligible leader replicas (KIP-966)


def test_members_that_leave_below_the_minimum_stay_eligible() -> None:
    after = plan(a_partition(isr=(1, 2)), 2, elr_enabled=True)
    assert (after.isr, after.elr) == ((1,), (2,))


def test_members_that_leave_above_the_minimum_do_not() -> None:
    after = plan(a_partition(), 3, elr_enabled=True)
    assert (after.isr, after.elr) == ((1, 2), ())


def test_with_eligible_replicas_the_isr_may_become_empty() -> None:
    after = plan(a_partition(isr=(1,), elr=(2,)), 1, 2, elr_enabled=True)
    assert (after.leader, after.isr, after.elr) == (NO_NODE, (), (1, 2))
    assert after.last_known_elr == (1,)


def test_an_eligible_replica_is_elected_from_an_empty_isr() -> None:
    before = a_partition(isr=(), elr=(1, 2), leader=NO_NODE, last_known_elr=(1,))
    after = plan(before, 1, elr_enabled=True)
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))
    assert after.leader_recovery_state == 0
    assert after.last_known_elr == ()


def test_eligible_replicas_are_forgotten_when_the_isr_reaches_the_minimum() -> None:
    after = plan(a_partition(isr=(1,), elr=(2,)), isr=(1, 3), elr_enabled=True)
    assert (after.isr, after.elr) == ((1, 3), ())


def test_a_replica_that_lost_records_is_not_eligible() -> None:
    before = a_partition(isr=(2,), elr=(1,), leader=2)
    after = plan(before, 1, isr=(2,), elr_enabled=True, unclean_shutdown=(1,))
    assert (after.isr, after.elr) == ((2,), ())


def test_the_last_known_leader_leads_when_isr_and_eligible_replicas_are_gone() -> None:
    before = a_partition(isr=(), elr=(), leader=NO_NODE, last_known_elr=(3,))
    after = plan(before, 1, elr_enabled=True)
    assert (after.leader, after.isr, after.leader_recovery_state) == (3, (3,), RECOVERING)
    assert plan(before, 3, elr_enabled=True).leader == NO_NODE


def test_turning_the_feature_off_clears_what_it_left() -> None:
    after = plan(a_partition(isr=(1, 2), elr=(3,), last_known_elr=(3,)), isr=(1,))
    assert (after.elr, after.last_known_elr) == ((), ())
