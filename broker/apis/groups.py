"""Handles the APIs of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members; DescribeGroups,
ListGroups and DeleteGroups of admins.

Each request is handed to the coordinator on arrival, so requests of one connection take effect in their order. A
JoinGroup is answered when its generation begins, a SyncGroup when the leader has sent the assignments. Neither has a
time-out of its own here, because the group's timers end both.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from squall.broker.apis.coordinator_requests import answer_each, ask
from squall.broker.apis.describe import GROUP_OPERATIONS, NOT_ASKED
from squall.broker.apis.large_responses import FEW, PIECE, run_to_end
from squall.broker.coordinators.groups.values import (
    NO_MEMBER,
    ClassicHeartbeat,
    DeleteGroup,
    DescribeGroup,
    DescribeResult,
    GroupResponse,
    GroupState,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    SyncGroup,
    SyncResult,
)
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.errors import ErrorCode, cut_short
from squall.broker.protocol.schema import delete_groups as delete_wire
from squall.broker.protocol.schema import describe_groups as describe_wire
from squall.broker.protocol.schema import join_group as join_wire
from squall.broker.protocol.schema import leave_group as leave_wire
from squall.broker.protocol.schema import list_groups as list_wire
from squall.broker.protocol.schema.heartbeat import HeartbeatResponse
from squall.broker.protocol.schema.sync_group import SyncGroupResponse
from squall.broker.protocol.wire import LONGEST_STRING
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.apis.large_responses import LargeResponseLane, ResponseSteps
    from squall.broker.config import BrokerConfig
    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse
    from squall.broker.protocol.schema.heartbeat import HeartbeatRequest
    from squall.broker.protocol.schema.sync_group import SyncGroupRequest
    from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator

ID_REQUIRED_FROM = 4
"""Is the first version of JoinGroup whose clients know MEMBER_ID_REQUIRED (KIP-394)."""
NO_PROTOCOL_FROM = 7
"""Is the first version of JoinGroup whose response may leave the protocol out."""
SKIPS_FROM = 9
"""Is the first version of JoinGroup whose clients know that the leader may skip the assignment (KIP-814)."""
SEVERAL_LEAVE_FROM = 3
"""Is the first version of LeaveGroup that names several members."""
PROTOCOL_REQUIRED_FROM = 5
"""Is the first version of SyncGroup that must name the protocol's type and the protocol (KIP-559)."""
NOT_FOUND_FROM = 6
"""Is the first version of DescribeGroups that distinguishes an unknown group from a dead group (KIP-1043)."""
TIMED_OUT = GroupResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
REPEATED = GroupResponse(ErrorCode.INVALID_REQUEST)
"""Is the response for a group that the request has already named."""


def fresh_member_id(of: str, drawn: UUID) -> str:
    """Return a new member id, built as in Kafka from an instance id or client id (`of`) and a random UUID. A long id is
    cut: the group's leader, which gets the ids of all members, could not decode a longer string.
    """
    behind = f"-{drawn}"
    return of.encode()[: LONGEST_STRING - len(behind)].decode(errors="ignore") + behind


class GroupApis:
    """Handles requests of members and admins of classic groups. Each request takes effect before the next request of
    its connection; its response may come later.
    """

    def __init__(self, env: Env, coordinator: GroupCoordinator, config: BrokerConfig, much: LargeResponseLane) -> None:
        self._env, self._coordinator, self._large = env, coordinator, much
        self._timeout_s = config.offsets_commit_timeout_ms / 1000

    def _ask_one(self, request: Any, respond: Any) -> Any:
        """Submit one request to the coordinator, and respond once it is answered, without a time-out."""
        return ask(self._env, self._coordinator.submit, [request], lambda answers: respond(answers[0]), TIMED_OUT)

    def _ask(self, requests: Sequence[Any], respond: Any, *, has_large_answers: bool = False) -> Any:
        submit = self._coordinator.submit
        return ask(
            self._env, submit, requests, respond, TIMED_OUT, self._timeout_s, has_large_answers=has_large_answers
        )

    # ---------------------------------------------------------------------------------------------------------- members

    def join_group(self, request: join_wire.JoinGroupRequest, slot: PendingResponse) -> Any:
        """Let a consumer join the next generation of its group."""
        version, client_id = slot.version, slot.conn.client_id or ""
        fresh_id = NO_MEMBER
        if not request.member_id:
            drawn = UUID(int=self._env.rng.getrandbits(128), version=4)
            fresh_id = fresh_member_id(request.group_instance_id or client_id, drawn)
        asked = JoinGroup(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            client_id,
            # With the slash that Java's InetAddress puts before an address: Kafka's tools show it so.
            "/" + slot.conn.link.peer.rpartition(":")[0],
            request.session_timeout_ms,
            # The first version had one time-out for both.
            request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
            request.protocol_type,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            fresh_id,
            needs_id=version >= ID_REQUIRED_FROM,
            may_skip=version >= SKIPS_FROM,
        )
        nothing = None if version >= NO_PROTOCOL_FROM else ""

        def respond(answer: GroupResponse) -> join_wire.JoinGroupResponse:
            if not isinstance(answer, JoinResult):
                answer = JoinResult(answer.error, request.member_id)
            members = [join_wire.JoinGroupResponseMember(*member) for member in answer.members]
            return join_wire.JoinGroupResponse(
                error_code=int(answer.error),
                generation_id=answer.generation,
                protocol_type=answer.protocol_type,
                protocol_name=nothing if answer.protocol is None else answer.protocol,
                leader=answer.leader,
                skip_assignment=answer.skip,
                member_id=answer.member_id,
                members=members,
            )

        return self._ask_one(asked, respond)

    def sync_group(self, request: SyncGroupRequest, slot: PendingResponse) -> Any:
        """Return a member's assignment once the leader has sent the assignments."""
        asked = SyncGroup(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            tuple((given.member_id, bytes(given.assignment)) for given in request.assignments),
        )

        if slot.version >= PROTOCOL_REQUIRED_FROM and None in (request.protocol_type, request.protocol_name):
            return SyncGroupResponse(error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

        def respond(answer: GroupResponse) -> SyncGroupResponse:
            if not isinstance(answer, SyncResult):
                return SyncGroupResponse(error_code=int(answer.error))
            return SyncGroupResponse(
                error_code=int(answer.error),
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol,
                assignment=answer.assignment,
            )

        return self._ask_one(asked, respond)

    def heartbeat(self, request: HeartbeatRequest, slot: PendingResponse) -> Any:
        """Extend the session of a member. The error says whether the member must join again."""
        asked = ClassicHeartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
        return self._ask_one(asked, lambda answer: HeartbeatResponse(error_code=int(answer.error)))

    def leave_group(self, request: leave_wire.LeaveGroupRequest, slot: PendingResponse) -> Any:
        """Remove members from their group."""
        several = slot.version >= SEVERAL_LEAVE_FROM
        who = tuple((m.member_id, m.group_instance_id) for m in request.members) if several else ()

        def respond(answer: GroupResponse) -> leave_wire.LeaveGroupResponse:
            if not isinstance(answer, LeaveResult):
                return leave_wire.LeaveGroupResponse(error_code=int(answer.error))
            if not several:
                return leave_wire.LeaveGroupResponse(error_code=int(answer.members[0][2]))
            members = [leave_wire.MemberResponse(one, static, int(error)) for one, static, error in answer.members]
            return leave_wire.LeaveGroupResponse(members=members)

        return self._ask_one(LeaveGroup(request.group_id, who if several else ((request.member_id, None),)), respond)

    # ----------------------------------------------------------------------------------------------------------- admins

    def describe_groups(self, request: describe_wire.DescribeGroupsRequest, slot: PendingResponse) -> Any:
        """Return state, protocol and members of each requested group, with the members' subscriptions and assignments.
        A group that is named again gets INVALID_REQUEST.
        """
        names, version = list(request.groups), slot.version

        async def wait() -> bytes | list[Any]:
            found = self._ask([DescribeGroup(name) for name in dict.fromkeys(names)], list, has_large_answers=True)
            answers = await found.wait() if isinstance(found, DeferredResponse) else found

            async def begin() -> ResponseSteps:
                operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
                return _all_described(names, answer_each(names, answers, REPEATED), version, operations)

            return await self._large.build(begin, slot)

        return DeferredResponse(wait, holds=True)

    def list_groups(self, request: list_wire.ListGroupsRequest, slot: PendingResponse) -> Any:
        """List the groups that this broker coordinates, filtered by state and type."""
        if self._coordinator.count_groups() <= FEW:
            return run_to_end(self._listed(request))

        async def begin() -> ResponseSteps:
            return self._listed(request)

        return DeferredResponse(partial(self._large.build, begin, slot), holds=True)

    def _listed(self, request: list_wire.ListGroupsRequest) -> ResponseSteps:
        states = [name.lower() for name in request.states_filter]
        types = [name.lower() for name in request.types_filter]
        error, found = self._coordinator.groups()
        groups = []
        for number, group in enumerate(found, 1):
            if number % PIECE == 0:
                yield
            DONE.entries += 1
            if (not states or group.state.value.lower() in states) and (not types or group.group_type in types):
                state, kind = group.state.value, group.group_type
                groups.append(list_wire.ListedGroup(group.group_id, group.protocol_type, state, kind))
        return list_wire.ListGroupsResponse(error_code=int(error), groups=groups)

    def delete_groups(self, request: delete_wire.DeleteGroupsRequest, slot: PendingResponse) -> Any:
        """Delete groups that have no members."""
        names = list(dict.fromkeys(request.groups_names))  # one result for each, as with Kafka

        def respond(answers: list[GroupResponse]) -> delete_wire.DeleteGroupsResponse:
            results = [
                delete_wire.DeletableGroupResult(name, int(answer.error))
                for name, answer in zip(names, answers, strict=True)
            ]
            return delete_wire.DeleteGroupsResponse(results=results)

        return self._ask([DeleteGroup(name) for name in names], respond)


def _all_described(
    names: Sequence[str], answers: Sequence[GroupResponse], version: int, operations: int
) -> ResponseSteps:
    groups = []
    for name, answer in zip(names, answers, strict=True):
        groups.append(_described(name, answer, version, operations))
        yield
    return describe_wire.DescribeGroupsResponse(groups=groups)


def _described(name: str, answer: GroupResponse, version: int, operations: int) -> describe_wire.DescribedGroup:
    if not isinstance(answer, DescribeResult) or answer.error:
        if answer.error == ErrorCode.GROUP_ID_NOT_FOUND:
            if version < NOT_FOUND_FROM:
                return describe_wire.DescribedGroup(group_id=name, group_state=GroupState.DEAD.value)
            message = (answer.message if isinstance(answer, DescribeResult) else "") or f"Group {name} not found."
            return describe_wire.DescribedGroup(int(answer.error), cut_short(message), name, GroupState.DEAD.value)
        return describe_wire.DescribedGroup(error_code=int(answer.error), group_id=name)
    stable = answer.state == GroupState.STABLE
    members = [
        describe_wire.DescribedGroupMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.subscription if stable else b"",
            m.assignment,
        )
        for m in answer.members
    ]
    return describe_wire.DescribedGroup(
        group_id=name,
        group_state=answer.state.value,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol,
        members=members,
        authorized_operations=operations,
    )
