"""Checks what each answer means for a member of a classic group, and what it asks next."""

from __future__ import annotations

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.join_group import JoinGroupResponse, JoinGroupResponseMember
from squall.broker.protocol.schema.sync_group import SyncGroupResponse
from squall.workloads.client.groups.assignors import (
    SubscribedMember,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from squall.workloads.client.groups.membership import (
    AssignmentChange,
    ClassicMembership,
    MemberSettings,
    ResponseAction,
)
from squall.workloads.client.settings import SettingsError

T = "t"


def settings(*assignors: str, instance: str = "") -> MemberSettings:
    return MemberSettings("g", (T,), assignors or ("range",), instance)


def generation(
    number: int, leader: str, protocol: str = "range", *others: JoinGroupResponseMember
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=number, protocol_name=protocol, leader=leader, member_id="m-1", members=list(others)
    )


def member(*places: tuple[str, int], protocol: str = "range") -> ClassicMembership:
    """Return a member of generation 4 with these partitions."""
    found = ClassicMembership(settings(protocol))
    assert found.joined(generation(4, "m-9", protocol)) is ResponseAction.GO_ON
    assert found.synced(SyncGroupResponse(assignment=encode_assignment(places))) == AssignmentChange(tuple(places), ())
    return found


def test_a_new_member_is_given_its_id_first_and_joins_with_it() -> None:
    one = ClassicMembership(settings())
    assert one.join_request().member_id == ""
    asked = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")
    assert one.joined(asked) is ResponseAction.JOIN
    assert one.join_request().member_id == "m-1"
    assert one.rejoin


def test_the_leader_brings_what_everybody_gets_and_followers_bring_nothing() -> None:
    others = [JoinGroupResponseMember(name, None, encode_subscription((T,), (), -1)) for name in ("m-1", "m-2")]
    leader, answer = ClassicMembership(settings()), generation(1, "m-1", "range", *others)
    assert leader.joined(answer) is ResponseAction.GO_ON
    shares = leader.sync_request(answer, {T: 3}).assignments
    assert {share.member_id: decode_assignment(share.assignment) for share in shares} == {
        "m-1": [(T, 0), (T, 1)],
        "m-2": [(T, 2)],
    }
    follower = ClassicMembership(settings())
    follower.joined(generation(1, "m-2"))
    assert follower.sync_request(generation(1, "m-2"), {}).assignments == []


def test_a_static_leader_that_came_back_assigns_nothing_until_there_are_more_partitions() -> None:
    one = ClassicMembership(settings(instance="i-1"))
    answer = generation(1, "m-1")
    answer.skip_assignment = True
    one.joined(answer)
    assert one.sync_request(answer, {T: 3}).assignments == []
    one.synced(SyncGroupResponse())
    one.update_partition_counts({T: 3})
    assert not one.rejoin, "a return within the session is no rebalance"
    one.update_partition_counts({T: 4})
    assert one.rejoin == "partitions"


def test_only_a_cooperative_member_says_what_it_has_and_of_which_generation() -> None:
    cooperative = member((T, 1), protocol="cooperative-sticky")
    said = decode_member("m-1", None, cooperative.join_request().protocols[0].metadata)
    assert said == SubscribedMember("m-1", "", (T,), ((T, 1),), 4)
    eager = member((T, 1))
    assert decode_member("m-1", None, eager.join_request().protocols[0].metadata).owned == ()
    cooperative.reset("UNKNOWN_MEMBER_ID")
    assert decode_member("m-1", None, cooperative.join_request().protocols[0].metadata).owned == ()


def test_a_generation_tells_what_is_new_and_what_has_to_go() -> None:
    one = member((T, 0), (T, 1), protocol="cooperative-sticky")
    one.joined(generation(5, "m-9", "cooperative-sticky"))
    told = SyncGroupResponse(assignment=encode_assignment([(T, 1), (T, 2)]))
    assert one.synced(told) == AssignmentChange(added=((T, 2),), removed=((T, 0),))
    assert one.owned == ((T, 1), (T, 2))


@pytest.mark.parametrize(
    ("code", "heed", "keeps_generation", "keeps_id"),
    [
        (ErrorCode.NONE, ResponseAction.GO_ON, True, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, ResponseAction.JOIN, True, True),
        (ErrorCode.ILLEGAL_GENERATION, ResponseAction.JOIN, False, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, ResponseAction.JOIN, False, False),
        (ErrorCode.NOT_COORDINATOR, ResponseAction.ELSEWHERE, True, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ResponseAction.ELSEWHERE, True, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ResponseAction.AGAIN, True, True),
        (ErrorCode.FENCED_INSTANCE_ID, ResponseAction.OUT, False, True),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, ResponseAction.OUT, False, True),
    ],
)
def test_what_each_error_does_to_a_member(
    code: ErrorCode, heed: ResponseAction, keeps_generation: bool, keeps_id: bool
) -> None:
    one = member((T, 0))
    assert one.refused(code) is heed
    assert (one.generation == 4) is keeps_generation
    assert (one.member_id == "m-1") is keeps_id
    assert one.has_lost is not keeps_generation
    assert bool(one.rejoin) is (heed is ResponseAction.JOIN)
    assert one.out == (code.name if heed is ResponseAction.OUT else "")


def test_another_protocol_than_it_knows_ends_its_membership() -> None:
    one = ClassicMembership(settings())
    assert one.joined(generation(1, "m-9", "sticky")) is ResponseAction.OUT
    assert one.out == "INCONSISTENT_GROUP_PROTOCOL"


def test_nonsense_in_place_of_an_assignment_ends_its_membership() -> None:
    one = ClassicMembership(settings())
    one.joined(generation(1, "m-9"))
    assert one.synced(SyncGroupResponse(assignment=b"\0\1\x7f")) is ResponseAction.OUT


def test_the_leader_assigns_again_when_there_are_more_partitions() -> None:
    leader, answer = ClassicMembership(settings()), generation(1, "m-1")
    leader.joined(answer)
    leader.sync_request(answer, {T: 3})
    leader.synced(SyncGroupResponse())
    leader.update_partition_counts({T: 3})
    assert not leader.rejoin
    leader.update_partition_counts({T: 4})
    assert leader.rejoin == "partitions"
    follower = member()
    follower.update_partition_counts({T: 4})
    assert not follower.rejoin


@pytest.mark.parametrize(
    "wrong",
    [
        {"assignors": ()},
        {"assignors": ("best",)},
        {"assignors": ("range", "cooperative-sticky")},
        {"heartbeat_interval_ms": 6000},
        {"max_poll_interval_ms": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        MemberSettings("g", (T,), **wrong)  # type: ignore[arg-type]
