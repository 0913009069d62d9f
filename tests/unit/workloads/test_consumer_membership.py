"""Checks what each answer means for a member of a consumer group (KIP-848), and what its next heartbeat says."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from squall.workloads.client.groups.consumer_membership import ConsumerMembership
from squall.workloads.client.groups.membership import (
    CONSUMER,
    NO_GENERATION,
    AssignmentChange,
    MemberSettings,
    ResponseAction,
)
from squall.workloads.client.settings import SettingsError

T = "t"
ID, OTHER = b"t" * 16, b"u" * 16
NAMES = {ID: T}


def settings(instance: str = "", assignor: str = "uniform") -> MemberSettings:
    return MemberSettings("g", (T,), instance=instance, protocol=CONSUMER, server_assignor=assignor)


def answer(epoch: int, *indexes: int, topic_id: bytes = ID, interval_ms: int = 700) -> ConsumerGroupHeartbeatResponse:
    told = [ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, list(indexes))] if indexes else []
    return ConsumerGroupHeartbeatResponse(
        member_id="m-1", member_epoch=epoch, heartbeat_interval_ms=interval_ms, assignment=Assignment(told)
    )


def silence(epoch: int) -> ConsumerGroupHeartbeatResponse:
    """Return a heartbeat response without changes."""
    return ConsumerGroupHeartbeatResponse(member_id="m-1", member_epoch=epoch, heartbeat_interval_ms=700)


def refusal(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


def beats(one: ConsumerMembership, told: ConsumerGroupHeartbeatResponse) -> ResponseAction:
    """Send a heartbeat and deliver its answer; return the action that follows."""
    return one.answered(told, one.asked())


def settle(one: ConsumerMembership) -> AssignmentChange:
    """Settle as an application that takes and gives up what it was assigned."""
    change = one.change(NAMES.get)
    one.remove_owned(change.removed)
    one.add_owned(change.added)
    one.acknowledges()
    return change


def said(one: ConsumerMembership) -> list[tuple[bytes, list[int]]] | None:
    told = one.heartbeat_request().topic_partitions
    return None if told is None else [(each.topic_id, each.partitions) for each in told]


def member(*indexes: int, instance: str = "") -> ConsumerMembership:
    """Return a member of epoch 4 with these partitions, of which the coordinator knows."""
    one = ConsumerMembership(settings(instance), "m-1")
    assert beats(one, answer(4, *indexes)) is ResponseAction.GO_ON
    settle(one)
    assert beats(one, silence(4)) is ResponseAction.GO_ON
    return one


def test_the_first_heartbeat_joins_and_says_everything() -> None:
    request = ConsumerMembership(settings("i-1", "range"), "m-1").heartbeat_request()
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m-1", 0, "i-1")
    assert (request.subscribed_topic_names, request.topic_partitions) == ([T], [])
    assert (request.rebalance_timeout_ms, request.server_assignor) == (settings().max_poll_interval_ms, "range")


def test_later_ones_say_only_what_is_new() -> None:
    request = member(0).heartbeat_request()
    assert (request.member_epoch, request.rebalance_timeout_ms) == (4, -1)
    assert request.subscribed_topic_names is request.server_assignor is request.topic_partitions is None


def test_the_coordinator_says_how_long_until_the_next_one() -> None:
    one = ConsumerMembership(settings(), "m-1")
    assert one.interval_ms == settings().heartbeat_interval_ms
    beats(one, answer(1, 0, interval_ms=250))
    assert one.interval_ms == 250


def test_what_goes_is_its_own_until_it_says_that_it_gave_it_up() -> None:
    one = member(0, 1)
    beats(one, answer(4, 1))
    assert one.change(NAMES.get) == AssignmentChange(added=(), removed=((T, 0),))
    assert one.owned == ((T, 0), (T, 1))
    assert said(one) is None, "the application has not given it up yet: silence gives up nothing"
    one.remove_owned([(T, 0)])
    assert said(one) == [(ID, [1])]
    beats(one, answer(5, 1))
    assert one.generation == 5


def test_an_assignment_is_acknowledged_even_by_whom_it_changes_nothing_for() -> None:
    one = ConsumerMembership(settings(), "m-1")
    beats(one, answer(1, 0, 1))
    beats(one, answer(1, 1))  # the application never had 0
    assert settle(one) == AssignmentChange(((T, 1),), ())
    beats(one, silence(1))
    beats(one, answer(1, 1))
    assert settle(one) == AssignmentChange((), ())
    assert said(one) == [(ID, [1])]
    beats(one, silence(2))
    assert said(one) is None


def test_after_a_heartbeat_without_an_answer_the_next_one_says_everything() -> None:
    one = member(0, 2)
    one.unanswered(one.asked())
    request = one.heartbeat_request()
    assert request.member_epoch == 4
    assert request.subscribed_topic_names == [T]
    assert said(one) == [(ID, [0, 2])]


def test_what_was_given_up_while_a_heartbeat_was_under_way_is_said_in_the_next_one() -> None:
    one = member(0, 1)
    beats(one, answer(4, 1))
    asked = one.asked()
    one.remove_owned([(T, 0)])
    one.answered(silence(4), asked)
    assert said(one) == [(ID, [1])]


def test_a_topic_without_a_name_waits_for_metadata() -> None:
    one = ConsumerMembership(settings(), "m-1")
    beats(one, answer(1, 0, topic_id=OTHER))
    assert one.change(NAMES.get) == AssignmentChange((), ())
    assert one.unnamed
    assert not one.acknowledges(), "what it does not read yet is not acknowledged"
    assert one.change({OTHER: "u"}.get) == AssignmentChange((("u", 0),), ())
    assert not one.unnamed


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_who_is_fenced_has_lost_everything_and_joins_again_with_its_id_once_it_knows(code: ErrorCode) -> None:
    one = member(0)
    assert beats(one, refusal(code)) is ResponseAction.JOIN
    assert (one.generation, one.rejoin, one.out) == (NO_GENERATION, code.name, "")
    assert one.has_lost
    assert one.owned == ((T, 0),)
    with pytest.raises(AssertionError):
        one.heartbeat_request()
    one.owned = ()
    request = one.heartbeat_request()
    assert (request.member_id, request.member_epoch, request.topic_partitions) == ("m-1", 0, [])
    assert one.change(NAMES.get) == AssignmentChange((), ()), "what it was told before counts no more"


@pytest.mark.parametrize(
    ("code", "heed"),
    [
        (ErrorCode.NOT_COORDINATOR, ResponseAction.ELSEWHERE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ResponseAction.ELSEWHERE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ResponseAction.AGAIN),
    ],
)
def test_while_the_coordinator_is_away_it_stays_what_it_is(code: ErrorCode, heed: ResponseAction) -> None:
    one = member(0)
    assert beats(one, refusal(code)) is heed
    assert (one.generation, one.owned, one.has_lost, one.out) == (4, ((T, 0),), False, "")
    assert one.heartbeat_request().subscribed_topic_names == [T], "another coordinator may know less of it"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_errors_that_end_a_membership(code: ErrorCode) -> None:
    one = member(0, instance="i-1")
    assert beats(one, refusal(code)) is ResponseAction.OUT
    assert (one.out, one.generation, one.has_lost) == (code.name, NO_GENERATION, True)


def test_an_answer_to_what_it_asked_before_its_end_says_nothing() -> None:
    one = member(0)
    asked = one.asked()
    one.reset("poll interval")
    assert one.answered(answer(5, 0, 1), asked) is ResponseAction.GO_ON
    assert (one.generation, one.rejoin) == (NO_GENERATION, "poll interval")
    one.unanswered(asked)


@pytest.mark.parametrize(("instance", "epoch"), [("", -1), ("i-1", -2)])
def test_a_static_member_leaves_for_now_and_any_other_for_good(instance: str, epoch: int) -> None:
    request = member(0, instance=instance).leave_request()
    assert (request.member_id, request.member_epoch, request.instance_id) == ("m-1", epoch, instance or None)


@pytest.mark.parametrize("wrong", [{"protocol": "streams"}, {"server_assignor": "best"}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        MemberSettings("g", (T,), **wrong)  # type: ignore[arg-type]
