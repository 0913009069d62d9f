"""Checks what the controller's answers mean, and what their absence means (KIP-497)."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import NO_EFFECTS, IsrChanged, Partition, ProposeIsr, RetryIsrProposal
from tests.support.replication.partitions import LAG_MS, fetched, leader, only, state


def _expanding() -> tuple[Partition, ProposeIsr]:
    partition = leader(isr=(1, 2))
    return partition, only(fetched(partition, 3, 0), ProposeIsr)


def test_accepted_proposal_becomes_the_committed_isr() -> None:
    partition, proposal = _expanding()
    effects = partition.isr_accepted(proposal, 5, 11, (1, 2, 3), 0)
    assert effects == (IsrChanged(5, 11, (1, 2, 3), (1, 2, 3)),)
    assert partition.pending is None
    assert (partition.isr, partition.partition_epoch) == ((1, 2, 3), 11)


def test_isr_that_the_controller_says_counts_not_the_one_that_was_asked_for() -> None:
    partition, proposal = _expanding()
    partition.isr_accepted(proposal, 5, 12, (1, 3), 0)
    assert partition.isr == partition.maximal_isr == (1, 3)


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_proposal_that_was_surely_not_applied_is_taken_back(error: ErrorCode) -> None:
    partition, proposal = _expanding()
    assert partition.isr_rejected(proposal, error, 0) == (IsrChanged(5, 10, (1, 2), (1, 2)),)
    assert partition.pending is None
    assert only(fetched(partition, 3, 0), ProposeIsr).members == (1, 2, 3)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_proposal_that_something_newer_overtook_stays_pending_until_metadata_comes(error: ErrorCode) -> None:
    partition, proposal = _expanding()
    assert partition.isr_rejected(proposal, error, 0) == NO_EFFECTS
    assert partition.pending is proposal
    assert partition.maximal_isr == (1, 2, 3)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.STALE_BROKER_EPOCH,
    ],
)
def test_proposal_that_may_have_been_applied_is_sent_again_as_it_was(error: ErrorCode) -> None:
    partition, proposal = _expanding()
    assert partition.isr_rejected(proposal, error, 0) == (RetryIsrProposal(proposal),)
    assert partition.pending is proposal
    assert partition.maximal_isr == (1, 2, 3)


def test_every_error_keeps_the_maximal_isr_unless_it_says_that_nothing_was_applied() -> None:
    for error in ErrorCode:
        if error in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA):
            continue
        partition, proposal = _expanding()
        partition.isr_rejected(proposal, error, 0)
        assert partition.maximal_isr == (1, 2, 3), error


def test_metadata_ends_the_wait_of_an_overtaken_proposal() -> None:
    partition, proposal = _expanding()
    partition.isr_rejected(proposal, ErrorCode.INVALID_UPDATE_VERSION, 0)
    partition.become_leader(state(partition_epoch=11, isr=(1,)), 0, 0)
    assert partition.pending is None
    assert partition.maximal_isr == (1,)


def test_answer_to_an_older_proposal_says_nothing_about_the_present_one() -> None:
    partition, old = _expanding()
    partition.isr_rejected(old, ErrorCode.OPERATION_NOT_ATTEMPTED, 0)
    new = only(fetched(partition, 3, 0), ProposeIsr)
    assert (new.isr, new.partition_epoch) == (old.isr, old.partition_epoch)
    assert partition.isr_rejected(old, ErrorCode.INELIGIBLE_REPLICA, 0) == NO_EFFECTS
    assert partition.isr_accepted(old, 5, 11, (1, 2, 3), 0) == NO_EFFECTS
    assert partition.pending is new


def test_acceptance_that_is_older_than_what_metadata_said_is_ignored() -> None:
    partition, proposal = _expanding()
    partition.become_leader(state(partition_epoch=12, isr=(1,)), 0, 0)
    assert partition.isr_accepted(proposal, 5, 11, (1, 2, 3), 0) == NO_EFFECTS
    assert partition.isr == (1,)


def test_acceptance_in_another_leader_epoch_waits_for_metadata() -> None:
    partition, proposal = _expanding()
    assert partition.isr_accepted(proposal, 6, 11, (1, 2, 3), 0) == NO_EFFECTS
    assert partition.pending is proposal


def test_answer_after_leadership_was_lost_is_ignored() -> None:
    partition, proposal = _expanding()
    partition.become_follower(state(leader=2, epoch=6, partition_epoch=11), 0, 0)
    assert partition.isr_accepted(proposal, 5, 11, (1, 2, 3), 0) == NO_EFFECTS
    assert partition.isr_rejected(proposal, ErrorCode.REQUEST_TIMED_OUT, 0) == NO_EFFECTS


def test_shrink_keeps_the_old_isr_as_the_maximal_one() -> None:
    partition = leader(log_end=1)
    fetched(partition, 2, 1, LAG_MS + 1)
    effects = partition.tick(LAG_MS + 1)
    assert only(effects, ProposeIsr).members == (1, 2)
    assert only(effects, IsrChanged) == IsrChanged(5, 10, (1, 2, 3), (1, 2, 3))


def test_metadata_that_tells_the_outcome_settles_the_proposal_before_the_answer_does() -> None:
    partition, proposal = _expanding()
    effects = partition.become_leader(state(partition_epoch=11), 0, 0)
    assert effects == (IsrChanged(5, 11, (1, 2, 3), (1, 2, 3)),)
    assert partition.isr_accepted(proposal, 5, 11, (1, 2, 3), 0) == NO_EFFECTS
