"""Decides as a member of a classic group: what it knows, what it asks next, what each answer means for it (P6). Pure.

`GroupMember` is its edge: it sends what this says, and brings back the answers. Errors mean what KIP-345, KIP-394 and
KIP-429 say, and what Kafka's own consumer makes of them.
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
from squall.workloads.client.groups.assignors import ASSIGNORS, Counts, applicant, assigned, assignment, subscription
from squall.workloads.client.settings import SettingsError

CLASSIC = "classic"
CONSUMER = "consumer"
"""A group protocol (KIP-848), and what classic members give as the type of theirs."""
SERVER_ASSIGNORS = ("uniform", "range")
NO_MEMBER, NO_GENERATION = "", -1
START = "start"


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """Configures one member. The time-outs are shorter than Kafka's defaults: no chaos run waits for five minutes."""

    group: str
    topics: tuple[str, ...]
    assignors: tuple[str, ...] = ("range",)
    """Names, the preferred one first."""
    instance: str = ""
    """group.instance.id; empty: a dynamic member."""
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 1_000
    max_poll_interval_ms: int = 10_000
    """Without a poll for so long it leaves; and so long the group waits for it in a rebalance."""
    protocol: str = CLASSIC
    """With `consumer` the coordinator assigns, and says how long sessions and heartbeats are."""
    server_assignor: str = SERVER_ASSIGNORS[0]
    """Of the protocol `consumer`, in place of `assignors`."""

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
        """It keeps what it has while a generation begins."""
        return ASSIGNORS[self.assignors[0]].cooperative


class ResponseAction(Enum):
    """Names what a member does about an answer."""

    GO_ON = "it is as it should be"
    AGAIN = "ask the same again, in a while"
    ELSEWHERE = "ask who the coordinator is, then again"
    JOIN = "join the next generation"
    OUT = "its membership is over, for good"


_GROUPLESS = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """Lists what a new generation changes for a member."""

    added: tuple[Place, ...]
    removed: tuple[Place, ...]


class ClassicMembership:
    """Represents one member, from one process's first Join to its last heartbeat."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.member_id, self.generation = NO_MEMBER, NO_GENERATION
        self.protocol, self.leads = "", False
        self.owned: tuple[Place, ...] = ()
        """In order. After a reset: what it had, until it has been told that this is lost."""
        self.rejoin = START
        """Why it has to join; empty: it need not."""
        self.out = ""
        """The error that ended its membership for good."""
        self.counted: dict[str, int] = {}
        """What the leader assigned by: topic -> number of partitions."""

    @property
    def has_lost(self) -> bool:
        """Return whether its partitions are not its own any more: it is in no generation."""
        return self.generation == NO_GENERATION and bool(self.owned)

    def reset(self, why: str, *, keep_id: bool = False) -> None:
        """It is of no generation any more, and joins anew."""
        self.generation, self.rejoin, self.leads = NO_GENERATION, why, False
        if not keep_id:
            self.member_id = NO_MEMBER

    # -------------------------------------------------------------------------------------------------- requests

    def join_request(self) -> JoinGroupRequest:
        """JoinGroup. Eager members have given up what they had by now."""
        settings = self.settings
        owned = self.owned if settings.cooperative and self.generation != NO_GENERATION else ()
        said = subscription(settings.topics, owned, self.generation if owned else NO_GENERATION)
        return JoinGroupRequest(
            settings.group,
            settings.session_timeout_ms,
            settings.max_poll_interval_ms,
            self.member_id,
            settings.instance or None,
            CONSUMER,
            [JoinGroupRequestProtocol(name, said) for name in settings.assignors],
            self.rejoin[:200],
        )

    def sync_request(self, answer: JoinGroupResponse, counts: Counts) -> SyncGroupRequest:
        """SyncGroup of the generation that `answer` began. The leader brings what it assigns by these counts.

        A static leader that comes back assigns nothing anew, and goes on watching from these counts (KIP-814). So it
        does not see what was added while it was away.
        """
        shares = []
        if self.leads:
            self.counted = dict(counts)
        if self.leads and not answer.skip_assignment:
            members = [applicant(each.member_id, each.group_instance_id, each.metadata) for each in answer.members]
            found = ASSIGNORS[self.protocol].assign(members, counts)
            shares = [SyncGroupRequestAssignment(member_id, assignment(places)) for member_id, places in found.items()]
        return SyncGroupRequest(
            self.settings.group,
            self.generation,
            self.member_id,
            self.settings.instance or None,
            CONSUMER,
            self.protocol,
            shares,
        )

    def beat_request(self) -> HeartbeatRequest:
        """Heartbeat."""
        return HeartbeatRequest(self.settings.group, self.generation, self.member_id, self.settings.instance or None)

    def leave_request(self, why: str) -> LeaveGroupRequest:
        """LeaveGroup."""
        who = MemberIdentity(self.member_id, self.settings.instance or None, why)
        return LeaveGroupRequest(self.settings.group, members=[who])

    # --------------------------------------------------------------------------------------------------- answers

    def joined(self, answer: JoinGroupResponse) -> ResponseAction:
        """JoinGroup was answered. GO_ON: with a generation, for which SyncGroup is next."""
        code = answer.error_code
        if code == ErrorCode.NONE:
            if answer.protocol_name not in self.settings.assignors:
                return self._over(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.protocol, self.leads = answer.protocol_name, answer.leader == answer.member_id
            return ResponseAction.GO_ON
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return ResponseAction.JOIN
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return ResponseAction.AGAIN
        return self.refused(code)

    def synced(self, answer: SyncGroupResponse) -> AssignmentChange | ResponseAction:
        """SyncGroup was answered: what changes, or what to do about the error."""
        if answer.error_code != ErrorCode.NONE:
            return self.refused(answer.error_code)
        try:
            places = assigned(answer.assignment)
        except MalformedFrame:
            return self._over(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self.rejoin = ""
        before, self.owned = self.owned, tuple(places)
        return AssignmentChange(_without(places, before), _without(before, places))

    def refused(self, code: int) -> ResponseAction:
        """An error of any request of a member."""
        if code == ErrorCode.NONE:
            return ResponseAction.GO_ON
        if code in _GROUPLESS:
            return ResponseAction.ELSEWHERE
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ResponseAction.AGAIN
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin = self.rejoin or name_of(code)
            return ResponseAction.JOIN
        if code == ErrorCode.ILLEGAL_GENERATION:
            self.reset(name_of(code), keep_id=True)
            return ResponseAction.JOIN
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.reset(name_of(code))
            return ResponseAction.JOIN
        return self._over(code)

    def recounted(self, counts: Counts) -> None:
        """The topics have so many partitions. If that is news, the leader has to assign again."""
        if self.leads and not self.rejoin and dict(counts) != self.counted:
            self.rejoin = "partitions"

    def _over(self, code: int) -> ResponseAction:
        self.out = name_of(code)
        self.generation = NO_GENERATION
        return ResponseAction.OUT


def _without(places: Sequence[Place], others: Collection[Place]) -> tuple[Place, ...]:
    return tuple(place for place in places if place not in others)
