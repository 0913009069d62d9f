"""Decides the rules of classic groups (mechanism P6 in docs/mechanisms.md) and their offsets (mechanism P5), with one
method for each rule. No rule changes any state.

The rules are methods so that a planted bug can replace exactly one rule (`chaos/mutants`), and so that tests can call
them directly. `ClassicGroup` adds the methods that change a group's members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.memory_budget import OF_EACH, size_of_names
from squall.broker.coordinators.groups.values import (
    NO_MEMBER,
    NO_TIME,
    CommitOffsets,
    GroupRecord,
    GroupState,
    OffsetAndMetadata,
    SyncGroup,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from squall.broker.coordinators.groups.member import ClassicGroupMember

CONSUMER: str = "consumer"
"""Is the protocol type of Kafka's own consumers, whose subscriptions a coordinator can decode."""
LEGAL = frozenset(
    {
        (GroupState.EMPTY, GroupState.PREPARING),
        (GroupState.PREPARING, GroupState.EMPTY),
        (GroupState.PREPARING, GroupState.COMPLETING),
        (GroupState.COMPLETING, GroupState.PREPARING),
        (GroupState.STABLE, GroupState.PREPARING),
    }
)
"""Lists the transitions of a classic group's state, (from, to), at which `since_ms` is set to the current time.

Two transitions are not in it. A group becomes Stable once the record of its assignments is committed, and keeps the
time of that record. A group becomes Dead when it is unloaded.
"""


def refusal(static: Mapping[str, str], members: Collection[str], member_id: str, instance_id: str | None) -> ErrorCode:
    """Return UNKNOWN_MEMBER_ID for an unknown member id, FENCED_INSTANCE_ID if another member has taken the instance id
    (KIP-345), or NONE for a member. `static` maps instance ids to member ids.
    """
    if instance_id is not None:
        current = static.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        assert current in members
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in members else ErrorCode.UNKNOWN_MEMBER_ID


def unknown_member(group_id: str) -> ErrorCode:
    """Return UNKNOWN_MEMBER_ID, or INVALID_GROUP_ID if the group id is empty."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


class ClassicGroupRules:
    """Holds the state of a classic group, with the rules over its members."""

    __slots__ = (
        "generation",
        "group_id",
        "leader",
        "members",
        "pending",
        "protocol",
        "protocol_type",
        "since_ms",
        "state",
        "static",
    )

    group_id: str
    state: GroupState
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    since_ms: int
    """Gives the wall-clock time, in ms, of the group's last change of state."""
    members: dict[str, ClassicGroupMember]
    """Maps a member id to its member, in the order in which the members joined."""
    static: dict[str, str]
    """Maps the instance id of each static member to its current member id (KIP-345)."""
    pending: dict[str, int]
    """Maps each member id that was handed out but not used yet to the time at which it is dropped."""

    def check_members(self) -> None:
        """Assert that the numbers of members and static members fit the group's state, such as no members in Empty. The
        time that this takes does not grow with the number of members.
        """
        assert self.members or self.state in (GroupState.EMPTY, GroupState.PREPARING, GroupState.DEAD)
        assert not self.members or self.state != GroupState.EMPTY
        assert len(self.static) <= len(self.members)

    def check_generation(self) -> None:
        """Assert that a new generation with members is consistent: its leader has joined, and only static members are
        absent. The time that this takes grows with the number of members.
        """
        assert all(member.member_id == member_id for member_id, member in self.members.items())
        assert all(self.members[one].instance_id == instance_id for instance_id, one in self.static.items())
        assert self.pending.keys().isdisjoint(self.members)
        # Only static members may be absent: their assignments are kept until their sessions end (KIP-345).
        assert all(member.unsynced or member.instance_id is not None for member in self.members.values())
        assert all(member.joining is None for member in self.members.values())
        # The leader assigns the partitions, and only a member that has joined learns that it is the leader.
        assert any(member.unsynced and member.member_id == self.leader for member in self.members.values())

    def record(self) -> GroupRecord:
        """Return the generation as it is written to the log."""
        members = tuple(member.record(self.protocol) for member in self.members.values())
        return GroupRecord(self.protocol_type, self.generation, self.protocol, self.leader, self.since_ms, members)

    def memory_bytes(self) -> int:
        """Return the memory, in bytes, for the group's name, its members' data, and the unused ids in `pending`."""
        of_members = sum(member.memory_bytes() for member in self.members.values())
        return of_members + OF_EACH * len(self.pending) + size_of_names(self.group_id, *self.pending)

    # ------------------------------------------------------------------------------------------------------- who is who

    def refusal_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a request with these ids: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or NONE for a member."""
        return refusal(self.static, self.members, member_id, instance_id)

    def is_current(self, generation: int) -> bool:
        """Return whether `generation` is the group's current generation."""
        return generation == self.generation

    # ---------------------------------------------------------------------------------------------------------- joining

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Return whether a consumer can join: it has the group's protocol type and a protocol that all members support.
        """
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and any(name in names for name in self.common_protocols())

    def common_protocols(self) -> tuple[str, ...]:
        """Return the protocols that every member supports, in the first member's order."""
        members = list(self.members.values())
        first = members[0].protocols if members else ()
        return tuple(name for name, _ in first if all(member.knows(name) for member in members))

    def elected_protocol(self) -> str:
        """Return the protocol that most members prefer, among the protocols that all members support."""
        common = self.common_protocols()
        assert common
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in votes)] += 1
        return max(common, key=lambda name: votes[name])

    def has_room(self, member_id: str, most: int) -> bool:
        """Return whether the member may join a group of at most `most` members; a member of the group always may."""
        if member_id in self.members:
            return True
        joined = [m for m in self.members.values() if m.joining is not None]
        # In a rebalance only those that have joined count: the others may not come back.
        return len(joined if self.state == GroupState.PREPARING else self.members) < most

    def all_joined(self) -> bool:
        """Return whether the next generation can begin: every member has joined, and no handed-out member id is unused.
        """
        return not self.pending and all(member.joining is not None for member in self.members.values())

    def needs_no_rebalance(self) -> bool:
        """Return whether a static member that returns needs no rebalance: the group is Stable, and with the member's
        new protocols it elects the same protocol as before (KIP-345, KIP-814).
        """
        return self.state == GroupState.STABLE and self.elected_protocol() == self.protocol

    def asks_for_rebalance(self, member: ClassicGroupMember, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether the JoinGroup of a current member asks for a rebalance. If not, the member only repeats a
        JoinGroup whose response got lost.
        """
        if self.state == GroupState.COMPLETING:
            return member.protocols != protocols
        # A leader also joins again when topics have changed, with the subscription that it had.
        return self.state == GroupState.STABLE and (member.member_id == self.leader or member.protocols != protocols)

    def refusal_of_sync(self, request: SyncGroup) -> ErrorCode:
        """Return the error of a SyncGroup, or NONE if it is accepted. It is refused if its sender is no member, is in
        another generation or protocol, or has to join again.
        """
        refused = self.refusal_of(request.member_id, request.instance_id)
        if refused:
            return refused
        if not self.is_current(request.generation):
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol is not None and request.protocol != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state == GroupState.PREPARING else ErrorCode.NONE

    # --------------------------------------------------------------------------------------------------------- offsets

    def refusal_of_commit(self, request: CommitOffsets | TxnOffsetCommit) -> ErrorCode:
        """Return the error of an offset commit, or NONE if it is accepted. It is refused if the sender may no longer
        own the partitions.

        A client that is no member may commit if the group has no members: an admin, or a consumer that uses `assign()`.
        A TxnOffsetCommit that names no member is accepted even if the group has members, because the producer epoch
        fences old producers.
        """
        in_transaction = isinstance(request, TxnOffsetCommit)
        if request.generation < 0 and self.state == GroupState.EMPTY:
            return ErrorCode.NONE
        if request.generation >= 0 or request.member_id != NO_MEMBER or request.instance_id is not None:
            refused = self.refusal_of(request.member_id, request.instance_id)
            if refused:
                return refused
            if not self.is_current(request.generation):
                return ErrorCode.ILLEGAL_GENERATION
        elif not in_transaction:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not in_transaction and self.state == GroupState.COMPLETING:
            # The member knows its generation, but not its assignment yet.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE


def is_expired(committed: OffsetAndMetadata, group: GroupRecord | None, retention_ms: int, wall_ms: int) -> bool:
    """Return whether an offset of a group without members is older than offsets.retention.minutes, counted from its
    commit or from the time at which the last member left (KIP-211).
    """
    assert retention_ms >= 0
    if committed.expires_ms != NO_TIME:
        return wall_ms >= committed.expires_ms
    # A group that never had members, or whose record lacks the time, never became empty: each offset ages by itself.
    base = committed.committed_ms
    if group is not None and group.protocol_type and group.since_ms != NO_TIME:
        base = group.since_ms
    return wall_ms - base >= retention_ms
