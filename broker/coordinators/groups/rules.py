"""The rules of groups (P6) and their offsets (P5), one method each. None of them changes anything.

They are methods so that a planted bug can replace exactly one (`chaos/mutants`), and so that tests can ask them
directly. `ClassicGroup` adds what changes a group's members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.values import (
    NO_MEMBER,
    NO_TIME,
    Commit,
    GroupRecord,
    GroupState,
    MemberRecord,
    OffsetAndMetadata,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from squall.broker.coordinators.groups.member import ClassicGroupMember

CONSUMER: str = "consumer"
"""Protocol type of Kafka's own consumers, whose subscriptions a coordinator can read."""


def refusal(static: Mapping[str, str], members: Collection[str], member_id: str, instance_id: str | None) -> ErrorCode:
    """Why this is no member, or none any more: its id is unknown, or another consumer has taken its instance id
    (KIP-345). NONE for a member. `static`: instance ids -> member ids.
    """
    if instance_id is not None:
        current = static.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in members else ErrorCode.UNKNOWN_MEMBER_ID


def unknown_member(group_id: str) -> ErrorCode:
    """Return UNKNOWN_MEMBER_ID, or INVALID_GROUP_ID if the group id is empty."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


class ClassicGroupRules:
    """A classic group, and the rules over its members."""

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
    """Wall clock: since when the group is in its state."""
    members: dict[str, ClassicGroupMember]
    """By member id, in the order in which they came."""
    static: dict[str, str]
    """Instance id to the member id that it has now (KIP-345)."""
    pending: dict[str, int]
    """Member ids that were given and not joined with yet, to the moment at which they are forgotten."""

    # ------------------------------------------------------------------------------------------------------- who is who

    def refusal_of(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a request with these ids, as `refusal`."""
        return refusal(self.static, self.members, member_id, instance_id)

    def is_current(self, generation: int) -> bool:
        """Return whether a request comes from the generation that owns the partitions now."""
        return generation == self.generation

    # ---------------------------------------------------------------------------------------------------------- joining

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Return whether a consumer can be in one group with its members: they have a protocol in common."""
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and any(name in names for name in self.common_protocols())

    def common_protocols(self) -> tuple[str, ...]:
        """The protocols that every member knows, in the first one's order."""
        members = list(self.members.values())
        first = members[0].protocols if members else ()
        return tuple(name for name, _ in first if all(member.knows(name) for member in members))

    def elected_protocol(self) -> str:
        """The protocol that most members prefer, among those that all know."""
        common = self.common_protocols()
        assert common
        votes = dict.fromkeys(common, 0)
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if name in votes)] += 1
        return max(common, key=lambda name: votes[name])

    def has_room(self, member_id: str, most: int) -> bool:
        """Return whether one more member may join; members of the group always may."""
        if member_id in self.members:
            return True
        joined = [m for m in self.members.values() if m.joining is not None]
        return len(joined if self.state == GroupState.PREPARING else self.members) < most

    def all_joined(self) -> bool:
        """Return whether the next generation can begin: every member has joined, and no member id is handed out and
        unused.
        """
        return not self.pending and all(member.joining is not None for member in self.members.values())

    def returns_unchanged(self) -> bool:
        """Return whether a static member that comes back leaves the generation as it is: no assignment depends on what
        it changed (KIP-345, KIP-814).
        """
        return self.state == GroupState.STABLE and self.elected_protocol() == self.protocol

    def joins_anew(self, member: ClassicGroupMember, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether a Join of a member of this generation asks for the next one. If not, its answer got lost."""
        if self.state == GroupState.COMPLETING:
            return member.protocols != protocols
        return self.state == GroupState.STABLE and (member.member_id == self.leader or member.protocols != protocols)

    # --------------------------------------------------------------------------------------------------------- offsets

    def refusal_of_commit(self, request: Commit | TxnOffsetCommit) -> ErrorCode:
        """Why these offsets must not be committed: their sender owns the partitions no more. NONE where it may.

        Who is no member may commit for a group that has none (admins, and consumers that assign themselves), and in a
        transaction always: its producer's epoch fences it.
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
            # It has been told of this generation, and not yet what it owns in it.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE


def is_expired(committed: OffsetAndMetadata, group: GroupRecord | None, retention_ms: int, wall_ms: int) -> bool:
    """Return whether an offset of a group without members has been left alone for offsets.retention.minutes: since it
    was committed, or since the last member went (KIP-211).
    """
    if committed.expires_ms != NO_TIME:
        return wall_ms >= committed.expires_ms
    base = committed.committed_ms
    if group is not None and group.protocol_type and group.since_ms != NO_TIME:
        base = group.since_ms
    return wall_ms - base >= retention_ms


def same_members(one: tuple[MemberRecord, ...], other: tuple[MemberRecord, ...]) -> bool:
    """Return whether two records have the same members with the same assignments, in any order."""
    return sorted(one, key=lambda m: m.member_id) == sorted(other, key=lambda m: m.member_id)
