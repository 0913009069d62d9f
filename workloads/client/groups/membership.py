"""Decides for a member of a classic group what it requests next and what each response means. The code is pure:
`GroupMember` sends the requests and passes in the responses.

It keeps mechanism P6 (docs/mechanisms.md): in each generation, a partition has one owner. Errors mean what KIP-345,
KIP-394 and KIP-429 say, and what Kafka's own consumer makes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from squall.broker.protocol.errors import ErrorCode, MalformedFrame, name_of
from squall.broker.protocol.schema.heartbeat import HeartbeatRequest
from squall.broker.protocol.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from squall.broker.protocol.schema.leave_group import LeaveGroupRequest, MemberIdentity
from squall.broker.protocol.schema.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.assignors import (
    ASSIGNORS,
    Counts,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from squall.workloads.client.settings import SettingsError

CLASSIC = "classic"
CONSUMER = "consumer"
"""Names the new group protocol (KIP-848). Classic members send the same word as protocol type."""
SERVER_ASSIGNORS = ("uniform", "range")
NO_MEMBER, NO_GENERATION = "", -1
START = "start"


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Configures one member. The time-outs are shorter than Kafka's defaults: no chaos run waits for five minutes."""

    group: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...] = ("range",)
    """Names the assignors, the preferred one first."""
    instance: str = ""
    """Holds the group.instance.id; empty for a dynamic member."""
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 1_000
    max_poll_interval_ms: int = 10_000
    """Limits the time between two polls; a member that exceeds it leaves. In a rebalance, the group waits for each
    member for at most this time.
    """
    protocol: str = CLASSIC
    """Selects the group protocol. With `consumer` the coordinator assigns, and sets session and heartbeat times."""
    server_assignor: str = SERVER_ASSIGNORS[0]
    """Names the server-side assignor of the protocol `consumer`, which replaces `assignors`."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise SettingsError(f"assignors={self.assignors}: some of {', '.join(ASSIGNORS)}")
        if len({ASSIGNORS[name].cooperative for name in self.assignors}) > 1:
            raise SettingsError(f"assignors={self.assignors}: cooperative and eager ones in one member")
        if self.protocol not in (CLASSIC, CONSUMER):
            raise SettingsError(f"protocol={self.protocol}: {CLASSIC} or {CONSUMER}")
        if self.server_assignor not in SERVER_ASSIGNORS:
            raise SettingsError(f"server_assignor={self.server_assignor}: one of {', '.join(SERVER_ASSIGNORS)}")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise SettingsError(f"heartbeat_interval_ms={self.heartbeat_interval_ms}: below session_timeout_ms")
        if self.max_poll_interval_ms < 1:
            raise SettingsError(f"max_poll_interval_ms={self.max_poll_interval_ms}: at least 1")

    @property
    def cooperative(self) -> bool:
        """Return whether the member keeps its partitions during a rebalance."""
        return ASSIGNORS[self.assignors[0]].cooperative


class ResponseAction(Enum):
    """Names what a member does after a response."""

    GO_ON = "it is as it should be"
    AGAIN = "ask the same again, in a while"
    ELSEWHERE = "ask who the coordinator is, then again"
    JOIN = "join the next generation"
    OUT = "its membership is over, for good"


_GROUPLESS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """Lists the partitions that a new assignment adds and removes."""

    added: tuple[Place, ...]
    removed: tuple[Place, ...]


class ClassicMembership:
    """Holds the state of one member of a classic group, from its client's first JoinGroup to its last heartbeat."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.member_id, self.generation = NO_MEMBER, NO_GENERATION
        self.protocol, self.leads = "", False
        self.owned: tuple[Place, ...] = ()
        """Holds the owned partitions, sorted. After a reset it holds the lost partitions until they were reported as
        lost.
        """
        self.rejoin = START
        """Says why the member has to join; empty if it need not."""
        self.out = ""
        """Names the error that ended the membership for good; empty if there was none."""
        self.counted: dict[str, int] = {}
        """Maps each topic to its number of partitions when this member, as group leader, last assigned."""

    @property
    def has_lost(self) -> bool:
        """Return whether the member has lost its partitions, because it is in no generation."""
        return self.generation == NO_GENERATION and bool(self.owned)

    def reset(self, why: str, *, keep_id: bool = False) -> None:
        """Leave the generation, so that the member joins again for the reason `why`. With `keep_id` the member keeps
        its member id, because the coordinator still knows that id.
        """
        self.generation, self.rejoin, self.leads = NO_GENERATION, why, False
        if not keep_id:
            self.member_id = NO_MEMBER

    # -------------------------------------------------------------------------------------------------- requests

    def join_request(self) -> JoinGroupRequest:
        """Return the JoinGroup request. An eager member has given up its partitions before."""
        settings = self.settings
        # Lost partitions must not be claimed: an assignor would give them back, and another member may own them by now.
        owned = self.owned if settings.cooperative and self.generation != NO_GENERATION else ()
        said = encode_subscription(settings.topics, owned, self.generation if owned else NO_GENERATION)
        return JoinGroupRequest(
            settings.group,
            settings.session_timeout_ms,
            settings.max_poll_interval_ms,
            self.member_id,
            settings.instance or None,
            CONSUMER,
            [JoinGroupRequestProtocol(name, said) for name in settings.assignors],
            # The reason for the broker's log (KIP-800), which Kafka's client cuts at 255 characters.
            self.rejoin[:200],
        )

    def sync_request(self, answer: JoinGroupResponse, counts: Counts) -> SyncGroupRequest:
        """Return the SyncGroup request for the generation that `answer` began. The group leader adds the assignments,
        computed from `counts`, the number of partitions of each topic.

        A static leader that comes back does not assign again (KIP-814), but stores `counts` as if it had assigned.
        Therefore it does not notice partitions that were added while it was away.
        """
        shares = []
        if self.leads:
            self.counted = dict(counts)
        if self.leads and not answer.skip_assignment:
            members = [decode_member(each.member_id, each.group_instance_id, each.metadata) for each in answer.members]
            found = ASSIGNORS[self.protocol].assign(members, counts)
            shares = [
                SyncGroupRequestAssignment(member_id, encode_assignment(places)) for member_id, places in found.items()
            ]
        return SyncGroupRequest(
            self.settings.group,
            self.generation,
            self.member_id,
            self.settings.instance or None,
            CONSUMER,
            self.protocol,
            shares,
        )

    def heartbeat_request(self) -> HeartbeatRequest:
        """Return a Heartbeat request with the member's ids and its present generation."""
        return HeartbeatRequest(self.settings.group, self.generation, self.member_id, self.settings.instance or None)

    def leave_request(self, why: str) -> LeaveGroupRequest:
        """Return a LeaveGroup request for this member alone. `why` is the reason for the broker's log (KIP-800)."""
        who = MemberIdentity(self.member_id, self.settings.instance or None, why)
        return LeaveGroupRequest(self.settings.group, members=[who])

    # --------------------------------------------------------------------------------------------------- answers

    def joined(self, answer: JoinGroupResponse) -> ResponseAction:
        """Handle the JoinGroup response. GO_ON means that there is a generation, and SyncGroup is next."""
        code = answer.error_code
        if code == ErrorCode.NONE:
            if answer.protocol_name not in self.settings.assignors:
                return self._end_for_good(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.protocol, self.leads = answer.protocol_name, answer.leader == answer.member_id
            return ResponseAction.GO_ON
        # KIP-394: a JoinGroup without an id adds no member, so a lost response leaves none behind.
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return ResponseAction.JOIN
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return ResponseAction.AGAIN
        return self.refused(code)

    def synced(self, answer: SyncGroupResponse) -> AssignmentChange | ResponseAction:
        """Handle the SyncGroup response. Return the change of the assignment, or what to do about the error."""
        if answer.error_code != ErrorCode.NONE:
            return self.refused(answer.error_code)
        try:
            places = decode_assignment(answer.assignment)
        except MalformedFrame:
            return self._end_for_good(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self.rejoin = ""
        before, self.owned = self.owned, tuple(places)
        return AssignmentChange(_without(places, before), _without(before, places))

    def refused(self, code: int) -> ResponseAction:
        """Return what to do about an error of any request of the member."""
        if code == ErrorCode.NONE:
            return ResponseAction.GO_ON
        if code in _GROUPLESS:
            return ResponseAction.ELSEWHERE
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ResponseAction.AGAIN
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin = self.rejoin or name_of(code)
            return ResponseAction.JOIN
        # The coordinator knows the id. With another id the old member would hold up the group until its session ends.
        if code == ErrorCode.ILLEGAL_GENERATION:
            self.reset(name_of(code), keep_id=True)
            return ResponseAction.JOIN
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.reset(name_of(code))
            return ResponseAction.JOIN
        return self._end_for_good(code)

    def update_partition_counts(self, counts: Counts) -> None:
        """Compare `counts` with those of the last assignment (`counted`). If they differ, the group leader joins again,
        to assign anew.
        """
        if self.leads and not self.rejoin and dict(counts) != self.counted:
            self.rejoin = "partitions"

    def _end_for_good(self, code: int) -> ResponseAction:
        self.out = name_of(code)
        self.generation = NO_GENERATION
        return ResponseAction.OUT


def _without(places: Sequence[Place], others: Collection[Place]) -> tuple[Place, ...]:
    return tuple(place for place in places if place not in others)
