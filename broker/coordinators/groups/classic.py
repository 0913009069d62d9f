"""Implements a classic group: the members of its generation, and the members that wait for a response (mechanism P6).

| state | Join of a new member | Sync | heartbeat | a member leaves |
|---|---|---|---|---|
| Empty | Preparing | 25 | 25 | |
| PreparingRebalance | joins this rebalance | 27 | 27 | may complete the rebalance |
| CompletingRebalance | Preparing | waits for the leader's | 0 | Preparing |
| Stable | Preparing | its assignment | 0 | Preparing |

25: UNKNOWN_MEMBER_ID. 27: REBALANCE_IN_PROGRESS. Members have to join again within the longest rebalance time-out of
all members. Then dynamic members that have not joined are removed. A static member is removed when its session ends.

Only the result of `record` is durable: it is appended when a generation has its assignments or loses its last member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.member import NEW_MEMBER_MS, ClassicGroupMember
from squall.broker.coordinators.groups.rules import LEGAL, ClassicGroupRules
from squall.broker.coordinators.groups.values import (
    NO_MEMBER,
    AppendCompletion,
    AppendRecords,
    ClassicHeartbeat,
    ClockReading,
    Effect,
    GroupCoordinatorSettings,
    GroupMetadataRecord,
    GroupRecord,
    GroupResponse,
    GroupState,
    JoinGroup,
    JoinResult,
    LeaveResult,
    SendResponse,
    SyncGroup,
    SyncResult,
    Token,
)
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.values import LeaveGroup

STATIC_WAIT_MS = 1000
"""Gives the shortest wait for static members that have not joined yet: their rebalance time-out may be 0 ms."""


class ClassicGroup(ClassicGroupRules):
    """Implements a classic group. Each call takes the current time, and adds responses and records to `effects`."""

    __slots__ = ("_grew", "_join_deadline_ms", "_joining_until_ms", "_settings", "_sync_deadline_ms", "effects")

    def __init__(
        self, group_id: str, settings: GroupCoordinatorSettings, now: ClockReading, record: GroupRecord | None = None
    ) -> None:
        """Create the group, from the latest `record` in the log if any. Its members get a whole session time-out."""
        self.group_id, self._settings = group_id, settings
        self.state, self.generation = GroupState.EMPTY, 0
        self.protocol_type, self.since_ms = "", now.wall_ms
        self.protocol, self.leader = None, None
        self.members, self.static, self.pending = {}, {}, {}
        self.effects: list[Effect] = []
        self._join_deadline_ms: int | None = None
        """Gives the time at which a rebalance stops waiting for members; None outside of a rebalance."""
        self._joining_until_ms: int | None = None
        """Gives the time until which a group's first rebalance may wait for more members; None for later rebalances."""
        self._grew = False
        """Is True if a member has joined during the first rebalance's delay: then the delay is repeated."""
        self._sync_deadline_ms: int | None = None
        """Gives the time at which members that have not fetched their assignment are removed."""
        if record is not None:
            self._load(record, now)

    def _load(self, record: GroupRecord, now: ClockReading) -> None:
        self.generation, self.protocol_type = record.generation, record.protocol_type
        self.protocol, self.since_ms = record.protocol, record.since_ms
        for found in record.members:
            member = ClassicGroupMember.loaded(found, record.protocol or "")
            self._add(member)
            self._wait_for(member, now)
        self.leader = record.leader if record.leader in self.members else next(iter(self.members), None)
        assert (self.leader is None) == (not self.members)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.check_members()
        if self.members and record.leader is None:
            self._rebalance(now)  # a downgraded consumer group has no assignments yet

    # ------------------------------------------------------------------------------------------------------------ time

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which `expire` has something to do, or None if nothing has a deadline."""
        found = [m.deadline_ms for m in self.members.values() if m.deadline_ms is not None]
        found += [at for at in (self._join_deadline_ms, self._sync_deadline_ms) if at is not None]
        found += self.pending.values()
        return min(found, default=None)

    def expire(self, now: ClockReading) -> None:
        """Remove members whose session has ended, and end rebalances whose time-out has passed."""
        for member_id, at in list(self.pending.items()):
            if at <= now.mono_ms:
                self._forget_pending(member_id, now)
        for member in list(self.members.values()):
            if member.deadline_ms is not None and member.deadline_ms <= now.mono_ms:
                self._remove(member)
                self._rebalance_after_removal(now)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now.mono_ms:
            self._sync_deadline_ms = None
            for member in [m for m in self.members.values() if m.unsynced]:
                self._remove(member)
            self._rebalance_after_removal(now)
        # Last, because the removals above may have begun the next generation already.
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now.mono_ms:
            self._join_phase_ends(now)
        self._check()

    def _wait_for(self, member: ClassicGroupMember, now: ClockReading) -> None:
        """Set the time at which the member is removed: when its session ends. While a JoinGroup or SyncGroup of it
        waits for a response, only a new member is removed, after NEW_MEMBER_MS.
        """
        if member.is_new and member.joining is not None:
            member.deadline_ms = now.mono_ms + NEW_MEMBER_MS
        elif member.joining is not None or member.syncing is not None:
            member.deadline_ms = None
        else:
            member.deadline_ms = now.mono_ms + member.session_ms

    # --------------------------------------------------------------------------------------------------------- joining

    def join(self, request: JoinGroup, token: Token, now: ClockReading) -> None:
        """Handle a JoinGroup. The member waits for the next generation until all members have joined."""
        assert request.group_id == self.group_id
        names = frozenset(name for name, _ in request.protocols)
        if not self.has_room(request.member_id, self._settings.max_size):
            self._refuse(token, request, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self.supports(request.protocol_type, names):
            self._refuse(token, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == NO_MEMBER:
            self._join_new(request, token, now)
        elif request.member_id in self.pending:
            if request.instance_id is not None:  # only dynamic members get an id first
                self.effects.append(SendResponse(token, JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, NO_MEMBER)))
                return
            del self.pending[request.member_id]
            self._admit(request, request.member_id, token, now)
        else:
            self._join_again(request, token, now)

    def _refuse(self, token: Token, request: JoinGroup, error: ErrorCode) -> None:
        self.effects.append(SendResponse(token, JoinResult(error, request.member_id)))

    def _join_new(self, request: JoinGroup, token: Token, now: ClockReading) -> None:
        if request.instance_id is not None:
            present = self.static.get(request.instance_id)
            if present is None:
                self._admit(request, request.fresh_id, token, now)
            else:
                self._take_over(self.members[present], request, token, now)
        elif request.needs_id:
            self.pending[request.fresh_id] = now.mono_ms + request.session_ms
            self.effects.append(SendResponse(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.fresh_id)))
        else:
            self._admit(request, request.fresh_id, token, now)

    def _admit(self, request: JoinGroup, member_id: str, token: Token, now: ClockReading) -> None:
        """Add a member to the group, which starts a rebalance."""
        assert member_id not in self.members
        assert member_id != NO_MEMBER
        assert member_id not in self.pending
        member = ClassicGroupMember(request, member_id)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._add(member)
        member.joining = token
        self._wait_for(member, now)
        self._grew = True
        self._rebalance(now)

    def _add(self, member: ClassicGroupMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        assert self.leader in self.members

    def _take_over(self, member: ClassicGroupMember, request: JoinGroup, token: Token, now: ClockReading) -> None:
        """Give a returning static member a new member id. A client with the old member id is fenced (KIP-345)."""
        assert member.instance_id is not None
        assert self.static[member.instance_id] == member.member_id
        leader_before = self.leader
        self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        assert request.fresh_id not in self.members
        place = list(self.members.values())
        member.member_id = request.fresh_id
        self.members = {m.member_id: m for m in place}  # keeps the order in which members joined
        if self.leader == self.static[member.instance_id]:
            self.leader = request.fresh_id
        self.static[member.instance_id] = request.fresh_id
        member.update(request)
        if not self.needs_no_rebalance():
            member.joining = token
            self._wait_for(member, now)
            self._rebalance(now)
            return
        self._wait_for(member, now)
        leads = member.member_id == self.leader
        # A client without KIP-814 gets its old id as the leader's id, so that it does not assign partitions.
        answer = JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            (self.leader if request.may_skip else leader_before) or NO_MEMBER,
            self._member_list() if leads and request.may_skip else (),
            leads and request.may_skip,
        )
        self._append(now, AppendCompletion(token, answer))

    def _join_again(self, request: JoinGroup, token: Token, now: ClockReading) -> None:
        refused = self.refusal_of(request.member_id, request.instance_id)
        if refused:
            self._refuse(token, request, refused)
            return
        member = self.members[request.member_id]
        if self.state == GroupState.PREPARING or self.asks_for_rebalance(member, request.protocols):
            if member.joining is not None:  # the client timed out and joins again
                again = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
                self.effects.append(SendResponse(member.joining, again))
            member.update(request)
            member.joining = token
            self._wait_for(member, now)
            self._rebalance(now)
        else:
            self._wait_for(member, now)
            self.effects.append(SendResponse(token, self._generation_of(member)))

    def _generation_of(self, member: ClassicGroupMember) -> JoinResult:
        # In a stable group the leader needs no member list, because the assignments exist.
        leads = member.member_id == self.leader and self.state == GroupState.COMPLETING
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or NO_MEMBER,
            self._member_list() if leads else (),
        )

    def _member_list(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple((m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    # ----------------------------------------------------------------------------------------------------- rebalancing

    def _rebalance(self, now: ClockReading) -> None:
        """Start a rebalance, or continue it after one more member has joined."""
        if self.state == GroupState.PREPARING:
            if self._joining_until_ms is None and self.all_joined():  # a first rebalance waits its delay out
                self._begin_generation(now)
            return
        first = self.state == GroupState.EMPTY
        if self.state == GroupState.COMPLETING:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._sync_deadline_ms = None
        self._become(GroupState.PREPARING, now)
        patience_ms = max((m.rebalance_ms for m in self.members.values()), default=0)
        if first and self._settings.initial_delay_ms > 0:
            # Members of one application start together: the first rebalance waits for them instead of one per member.
            self._grew = False
            self._joining_until_ms = now.mono_ms + patience_ms
            self._join_deadline_ms = now.mono_ms + min(self._settings.initial_delay_ms, patience_ms)
            return
        self._joining_until_ms = None
        self._join_deadline_ms = now.mono_ms + patience_ms
        if self.all_joined():
            self._begin_generation(now)

    def _join_phase_ends(self, now: ClockReading) -> None:
        assert self.state == GroupState.PREPARING
        if self._joining_until_ms is not None:
            remaining_ms = self._joining_until_ms - now.mono_ms
            if self._grew and remaining_ms > 0:
                self._grew = False
                self._join_deadline_ms = now.mono_ms + min(self._settings.initial_delay_ms, remaining_ms)
                return
            self._joining_until_ms = None
        for member in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._remove(member)
        if self.members and not self._joined():
            # Only static members are left and none has joined: wait for their sessions. Clients choose the time-out.
            wait_ms = max(m.rebalance_ms for m in self.members.values())
            self._join_deadline_ms = now.mono_ms + max(STATIC_WAIT_MS, wait_ms)
            return
        self._begin_generation(now)

    def _joined(self) -> list[ClassicGroupMember]:
        return [m for m in self.members.values() if m.joining is not None]

    def _begin_generation(self, now: ClockReading) -> None:
        """Begin the next generation, because all awaited members have joined, or no member is left."""
        assert self.state == GroupState.PREPARING
        self._join_deadline_ms = self._joining_until_ms = None
        self.generation += 1
        if not self.members:
            self.protocol = self.leader = None
            self._become(GroupState.EMPTY, now)
            self._append(now, AppendCompletion())
            return
        joined = self._joined()
        assert joined
        if self.leader is None or self.members[self.leader].joining is None:  # absent: it cannot assign
            self.leader = joined[0].member_id
        assert all(m.joining is not None or m.instance_id is not None for m in self.members.values())
        self.protocol = self.elected_protocol()
        self._become(GroupState.COMPLETING, now)
        self._sync_deadline_ms = now.mono_ms + max(m.rebalance_ms for m in self.members.values())
        for member in self.members.values():
            member.assignment = b""
            member.unsynced = member.joining is not None  # an absent static member has until its session ends
            if member.joining is not None:
                token, member.joining, member.is_new = member.joining, None, False
                self._wait_for(member, now)
                self.effects.append(SendResponse(token, self._generation_of(member)))
        self.check_generation()

    def _become(self, state: GroupState, now: ClockReading) -> None:
        assert (self.state, state) in LEGAL, f"{self.state} -> {state}"
        assert all(member.syncing is None for member in self.members.values())
        self.state, self.since_ms = state, now.wall_ms

    # ----------------------------------------------------------------------------------------------------- assignments

    def sync(self, request: SyncGroup, token: Token, now: ClockReading) -> None:
        """Handle a SyncGroup. Responses are sent once the assignments in the group leader's SyncGroup are committed."""
        refused = self.refusal_of_sync(request)
        if refused:
            self.effects.append(SendResponse(token, SyncResult(refused)))
            return
        member = self.members[request.member_id]
        member.unsynced = False
        if not any(m.unsynced for m in self.members.values()):
            self._sync_deadline_ms = None
        if self.state == GroupState.STABLE:
            self._wait_for(member, now)
            self.effects.append(SendResponse(token, self._assignment_of(member)))
            return
        assert self.state == GroupState.COMPLETING
        if member.syncing is not None:
            self.effects.append(SendResponse(member.syncing, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.syncing = token
        self._wait_for(member, now)
        if member.member_id == self.leader:
            given = dict(request.assignments)
            for one in self.members.values():
                one.assignment = given.get(one.member_id, b"")
            self._append(now, AppendCompletion(group=self, generation=self.generation))

    def assigned(self, generation: int, error: ErrorCode, now: ClockReading) -> None:
        """Answer waiting SyncGroups, because the assignments of a generation are committed or could not be appended."""
        assert generation <= self.generation
        if self.state != GroupState.COMPLETING or generation != self.generation:
            return
        if error:
            # The log's answer to a record that is too large. A member that is alone gets it.
            if error == ErrorCode.UNKNOWN_SERVER_ERROR and len(self.members) > 1:
                self._remove_largest_members()
                error = ErrorCode.REBALANCE_IN_PROGRESS
            self._drop_assignments(error, now)
            self._rebalance(now)
            return
        assert self.members
        assert all(member.joining is None for member in self.members.values())
        self.state = GroupState.STABLE  # since_ms stays as the record has it
        for member in self.members.values():
            if member.syncing is not None:
                token, member.syncing = member.syncing, None
                self._wait_for(member, now)
                self.effects.append(SendResponse(token, self._assignment_of(member)))

    def _remove_largest_members(self) -> None:
        """Remove the members that take most of a generation's record, because the record is too large for the log.
        Kafka answers UNKNOWN_SERVER_ERROR instead: its consumers fail, and so do those of the next generation.
        """
        newest_first = reversed([(member.recorded(self.protocol), member) for member in self.members.values()])
        largest_first = sorted(newest_first, key=lambda each: each[0], reverse=True)
        total, most = sum(size for size, _ in largest_first), self._settings.most_bytes()
        for n, (size, member) in enumerate(largest_first):
            if n and total <= most:
                break
            self._remove(member, ErrorCode.GROUP_MAX_SIZE_REACHED)
            total -= size
        assert total >= 0

    def _assignment_of(self, member: ClassicGroupMember) -> SyncResult:
        return SyncResult(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)

    def _drop_assignments(self, error: ErrorCode, now: ClockReading) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.syncing is not None:
                token, member.syncing = member.syncing, None
                self._wait_for(member, now)
                self.effects.append(SendResponse(token, SyncResult(error)))

    # ------------------------------------------------------------------------------------------------ living and going

    def beat(self, request: ClassicHeartbeat, token: Token, now: ClockReading) -> None:
        """Handle a Heartbeat: extend the session. Answer REBALANCE_IN_PROGRESS while members have to join again."""
        error = self.refusal_of(request.member_id, request.instance_id)
        if not error and not self.is_current(request.generation):
            error = ErrorCode.ILLEGAL_GENERATION
        if not error:
            self.extend_session(request.member_id, now)
            if self.state == GroupState.PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self.effects.append(SendResponse(token, GroupResponse(error)))

    def extend_session(self, member_id: str, now: ClockReading) -> None:
        """Extend a member's session, because a request of it has arrived."""
        member = self.members.get(member_id)
        if member is not None:
            self._wait_for(member, now)

    def leave(self, request: LeaveGroup, token: Token, now: ClockReading) -> None:
        """Remove members at once, without waiting for their sessions to end."""
        errors = [self._leave_one(member_id, instance_id, now) for member_id, instance_id in request.members]
        named = tuple((*who, error) for who, error in zip(request.members, errors, strict=True))
        self.effects.append(SendResponse(token, LeaveResult(members=named)))
        if ErrorCode.NONE in errors:
            self._rebalance_after_removal(now)
        self._check()

    def _check(self) -> None:
        """Assert that members, waiting requests and deadlines fit the group's state, as they must after each call."""
        self.check_members()
        assert all(member_id in self.members for member_id in self.static.values())
        assert self.pending.keys().isdisjoint(self.members)
        assert self.state == GroupState.PREPARING or all(m.joining is None for m in self.members.values())
        assert self.state == GroupState.COMPLETING or all(m.syncing is None for m in self.members.values())
        assert (self.leader is None) == (not self.members)
        assert self._join_deadline_ms is None or self.state == GroupState.PREPARING
        assert self._joining_until_ms is None or self._join_deadline_ms is not None
        assert self._sync_deadline_ms is None or self.state in (GroupState.COMPLETING, GroupState.STABLE)

    def _leave_one(self, member_id: str, instance_id: str | None, now: ClockReading) -> ErrorCode:
        if member_id == NO_MEMBER and instance_id is not None:
            member_id = self.static.get(instance_id, NO_MEMBER)
        elif member_id in self.pending:
            del self.pending[member_id]
            return ErrorCode.NONE
        refused = self.refusal_of(member_id, instance_id)
        if not refused:
            self._remove(self.members[member_id])
        return refused

    def _forget_pending(self, member_id: str, now: ClockReading) -> None:
        del self.pending[member_id]
        if self.state == GroupState.PREPARING:
            self._rebalance(now)

    def _remove(self, member: ClassicGroupMember, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member and answer its waiting requests with `error`. Call `_rebalance_after_removal` next."""
        assert self.members[member.member_id] is member
        self._answer_waiting(member, error)
        del self.members[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]  # a log may hold two members with one instance id
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        assert (self.leader is None) == (not self.members)

    def _rebalance_after_removal(self, now: ClockReading) -> None:
        """Rebalance after members were removed, so that the others get their partitions."""
        if self.state != GroupState.EMPTY:
            if self.state == GroupState.PREPARING and not self.members:
                self._joining_until_ms = None  # no member is left that would wait for others
            self._rebalance(now)

    def _answer_waiting(self, member: ClassicGroupMember, error: ErrorCode) -> None:
        if member.joining is not None:
            token, member.joining = member.joining, None
            self.effects.append(SendResponse(token, JoinResult(error, NO_MEMBER)))
        if member.syncing is not None:
            token, member.syncing = member.syncing, None
            self.effects.append(SendResponse(token, SyncResult(error)))

    def fail_waiting_requests(self, error: ErrorCode) -> None:
        """Answer all waiting requests with `error`, because this broker no longer coordinates the group."""
        for member in self.members.values():
            self._answer_waiting(member, error)
        self.state = GroupState.DEAD

    # --------------------------------------------------------------------------------------------------------- records

    def _append(self, now: ClockReading, completion: AppendCompletion) -> None:
        self.effects.append(AppendRecords((GroupMetadataRecord(self.group_id, self.record()),), completion))
