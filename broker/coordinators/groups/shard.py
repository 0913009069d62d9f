"""Coordinates the groups of one partition of __consumer_offsets.

Offsets, generations and consumer groups are in the log: a request only decides on records, which change the shard once
they are appended and replayed. Sessions, waiting requests and members without a generation are in memory only. A new
leader of the partition starts a new session for each member, and clients send their requests again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.consumer import classic_members
from squall.broker.coordinators.groups.consumer.answers import HeartbeatResult
from squall.broker.coordinators.groups.consumer.coordination import ConsumerCoordination
from squall.broker.coordinators.groups.consumer.members import (
    JOINS,
    ConsumerDescribe,
    ConsumerHeartbeat,
    GroupEpochRecord,
)
from squall.broker.coordinators.groups.consumer.migration import upgraded
from squall.broker.coordinators.groups.consumer.rules import EPOCHS_FROM
from squall.broker.coordinators.groups.consumer.topics import TopicTable
from squall.broker.coordinators.groups.deadlines import GroupDeadlines
from squall.broker.coordinators.groups.ledger import ReplayedGroupState
from squall.broker.coordinators.groups.memory_budget import OF_EACH, MemoryBudget, size_of, size_of_names
from squall.broker.coordinators.groups.rules import CONSUMER, is_expired, unknown_member
from squall.broker.coordinators.groups.subscriptions import topics_of
from squall.broker.coordinators.groups.values import (
    NO_MEMBER,
    NO_PRODUCER,
    AppendCompletion,
    AppendRecords,
    ClassicHeartbeat,
    ClockReading,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribeResult,
    Effect,
    ExpireOffsets,
    FetchOffsets,
    FetchOffsetsResult,
    GroupCoordinatorSettings,
    GroupListing,
    GroupLogRecord,
    GroupMetadataRecord,
    GroupResponse,
    GroupState,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    OffsetCommitRecord,
    PartitionErrors,
    Request,
    SendResponse,
    SyncGroup,
    Token,
    TopicPartition,
    TxnOffsetCommit,
)
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.consumer.matching import RegexMatchCache
    from squall.broker.coordinators.groups.consumer.topics import TopicLookup
    from squall.broker.coordinators.groups.values import OffsetAndMetadata

EXPIRED_AT_ONCE = 100
"""Limits the offsets of a group that are checked for expiry before other tasks may run. Their tombstones take 2 ms."""


class GroupCoordinatorShard:
    """Coordinates the groups of one partition, with the state of the records replayed so far."""

    __slots__ = ("_deadlines", "_held", "_now", "consumers", "groups", "ledger", "settings")

    def __init__(
        self,
        settings: GroupCoordinatorSettings,
        topics: TopicLookup | None = None,
        ledger: ReplayedGroupState | None = None,
        held: MemoryBudget | None = None,
        matching: RegexMatchCache | None = None,
    ) -> None:
        """Set up the shard. A coordinator's shards share `held` (memory budget) and `matching` (matched topics)."""
        self.settings = settings
        self._held = held or MemoryBudget(settings.max_held, lambda: (g.memory_bytes() for g in self.groups.values()))
        self.ledger = ReplayedGroupState() if ledger is None else ledger
        self.groups: dict[str, ClassicGroup] = {}
        """Maps a group id to its classic group. A group that has only offsets is left out."""
        self._deadlines = GroupDeadlines()
        self._now: ClockReading | None = None
        """Holds the latest time that was passed in; None while the log is being replayed."""
        known_topics = TopicTable() if topics is None else topics
        self.consumers = ConsumerCoordination(self.ledger, settings, known_topics, matching)

    # ------------------------------------------------------------------------------------------------------------ life

    def begin(self, now: ClockReading) -> None:
        """Start the sessions of all members, now that the whole log has been replayed."""
        assert not self.groups
        self.ledger.check()
        self._now = now
        for group_id, record in self.ledger.groups.items():
            self.groups[group_id] = ClassicGroup(group_id, self.settings, now, record)
        self.consumers.begin(now)
        for group_id in (*self.ledger.groups, *self.ledger.consumers):
            self._watch(group_id)

    def replay(self, written: GroupLogRecord, at: int, producer_id: int = NO_PRODUCER) -> None:
        """Apply a record of the log. Records must come in the log's order."""
        self.ledger.replay(written, at, producer_id)
        group = self.groups.get(written.group_id)
        if isinstance(written, GroupMetadataRecord):
            # A member may have joined since the tombstone was decided: then the group stays.
            if written.group is None and group is not None and group.state == GroupState.EMPTY and not group.pending:
                del self.groups[written.group_id]
            elif written.group is not None and group is None and self._now is not None:
                # Downgraded: its last member of the consumer protocol has left. (`begin` makes the groups of a load.)
                self.groups[written.group_id] = ClassicGroup(written.group_id, self.settings, self._now, written.group)
                self._watch(written.group_id)
        elif not isinstance(written, OffsetCommitRecord):
            self.consumers.replayed(written)
            if isinstance(written, GroupEpochRecord) and written.epoch is not None and group is not None:
                del self.groups[written.group_id]  # it is a consumer group from here on

    def fail_waiting_requests(self, error: ErrorCode) -> list[Effect]:
        """Answer all waiting requests with `error`, because this broker no longer leads the partition."""
        for group in self.groups.values():
            group.fail_waiting_requests(error)
        return [effect for group in self.groups.values() for effect in _pop_effects(group)]

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time at which `tick` has something to do; None if never."""
        return self._deadlines.next_ms(self._deadline_of)

    def deadline_of(self, group_id: str) -> int | None:
        """Return when `tick` has to check the group: at its deadline, or earlier. None if it has no deadline."""
        return self._deadlines.of(group_id)

    def _deadline_of(self, group_id: str) -> int | None:
        group = self.groups.get(group_id)
        both = (None if group is None else group.next_deadline_ms(), self.consumers.deadline_of(group_id))
        return min((at for at in both if at is not None), default=None)

    def _watch(self, group_id: str) -> None:
        """Update the group's deadline in `_deadlines`, because it may have changed."""
        self._deadlines.put(group_id, self._deadline_of(group_id))

    def tick(self, now: ClockReading) -> list[Effect]:
        """End the sessions and rebalances that are due."""
        self._now = now
        effects: list[Effect] = []
        for group_id in self._deadlines.due(now.mono_ms):
            group = self.groups.get(group_id)
            if group is not None:
                group.expire(now)
                effects += _pop_effects(group)
                self._drop_if_unused(group)
            effects += self.consumers.expire(group_id, now)
            self._watch(group_id)
        return effects

    def _drop_if_unused(self, group: ClassicGroup) -> None:
        """Drop a group that only handed out a member id which was never used."""
        assert not group.effects
        if group.generation == 0 and group.state == GroupState.EMPTY and not group.pending:
            assert not group.members
            del self.groups[group.group_id]

    def settle(self, completion: AppendCompletion, error: ErrorCode, now: ClockReading) -> list[Effect]:
        """Handle the end of an append. `error` is NONE if it is committed; otherwise it failed or may have failed."""
        self._now = now
        effects: list[Effect] = []
        if completion.group is not None:
            completion.group.assigned(completion.generation, error, now)
            effects = _pop_effects(completion.group)
            self._watch(completion.group.group_id)
        if completion.then is not None and not error:
            return effects + self.submit(completion.then, completion.token, now)
        if completion.token is not None:
            effects.append(SendResponse(completion.token, GroupResponse(error) if error else completion.answer))
        return effects

    def submit(self, request: Request, token: Token, now: ClockReading) -> list[Effect]:
        """Handle a request. The response is among the returned effects, or among later effects."""
        self._now = now
        effects: list[Effect] = self._HANDLERS[type(request)](self, request, token, now)
        group = self.groups.get(request.group_id)
        if group is not None:
            effects = _pop_effects(group) + effects
            self._drop_if_unused(group)
        self._watch(request.group_id)
        return effects

    # --------------------------------------------------------------------------------------------------------- members

    def _join(self, request: JoinGroup, token: Token, now: ClockReading) -> list[Effect]:
        settings, error = self.settings, ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not settings.min_session_ms <= request.session_ms <= settings.max_session_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        of_consumers = self.ledger.consumers.get(request.group_id)
        if not error and of_consumers is not None and of_consumers.members:
            return classic_members.join(self.consumers, of_consumers, request, token, now)
        if not error and request.group_id not in self.groups and request.member_id != NO_MEMBER:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error:
            return [SendResponse(token, JoinResult(error, request.member_id))]
        if of_consumers is not None:
            # The consumer group is empty: remove it first, then join a new classic group.
            tombstones = tuple(self.consumers.tombstones_of_group(request.group_id))
            return [AppendRecords(tombstones, AppendCompletion(token, then=request))]
        group = self.groups.get(request.group_id)
        if not self._has_room(group, request, now):
            return [SendResponse(token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id))]
        if group is None:
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, settings, now)
        group.join(request, token, now)
        return []

    def _has_room(self, group: ClassicGroup | None, request: JoinGroup, now: ClockReading) -> bool:
        """Return whether the member's data fits into the memory budget. Data no larger than before always fits."""
        known = None if group is None else group.members.get(request.member_id)
        member_id = request.member_id or request.fresh_id
        size = size_of(request.protocols, member_id, request.client_id, request.instance_id)
        if known is not None and size <= known.own_bytes():
            return True
        of_group = OF_EACH + size_of_names(request.group_id) if group is None else 0
        return self._held.admits(size + of_group, now.mono_ms)

    def _sync(self, request: SyncGroup, token: Token, now: ClockReading) -> list[Effect]:
        if (found := self.ledger.consumers.get(request.group_id)) is not None:
            return classic_members.sync(self.consumers, found, request, token, now)
        group = self.groups.get(request.group_id)
        if group is None:
            return [SendResponse(token, GroupResponse(unknown_member(request.group_id)))]
        given = sum(len(assignment) for _, assignment in request.assignments)
        if given and not self._held.admits(given, now.mono_ms):
            return [SendResponse(token, GroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))]
        group.sync(request, token, now)
        return []

    def _beat(self, request: ClassicHeartbeat, token: Token, now: ClockReading) -> list[Effect]:
        if (found := self.ledger.consumers.get(request.group_id)) is not None:
            return classic_members.beat(self.consumers, found, request, token, now)
        group = self.groups.get(request.group_id)
        if group is None:
            return [SendResponse(token, GroupResponse(unknown_member(request.group_id)))]
        group.beat(request, token, now)
        return []

    def _leave(self, request: LeaveGroup, token: Token, now: ClockReading) -> list[Effect]:
        if (found := self.ledger.consumers.get(request.group_id)) is not None:
            return classic_members.leave(self.consumers, found, request, token, now)
        group = self.groups.get(request.group_id)
        if not request.group_id:
            return [SendResponse(token, GroupResponse(ErrorCode.INVALID_GROUP_ID))]
        if group is None:
            refused = tuple((*member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members)
            return [SendResponse(token, LeaveResult(members=refused))]
        group.leave(request, token, now)
        return []

    def _beat_consumer(self, request: ConsumerHeartbeat, token: Token, now: ClockReading) -> list[Effect]:
        classic = self.groups.get(request.group_id)
        if classic is None or classic.state == GroupState.EMPTY:
            return self.consumers.beat(request, token, now, over_classic=False)
        if request.epoch == JOINS and self.consumers.may_upgrade(len(classic.members)):
            if classic.state != GroupState.STABLE:
                # The group is rebalancing: which partitions are free is known only when it is stable.
                return [SendResponse(token, HeartbeatResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))]
            if records := upgraded(classic, self.consumers.topics):
                sessions = {member.member_id: member.session_ms for member in classic.members.values()}
                self.consumers.start_sessions(request.group_id, sessions, now)  # `expire` drops those of no group
                return [AppendRecords(records, AppendCompletion(token, then=request))]
        return self.consumers.beat(request, token, now, over_classic=True)

    # --------------------------------------------------------------------------------------------------------- offsets

    def _commit(self, request: CommitOffsets | TxnOffsetCommit, token: Token, now: ClockReading) -> list[Effect]:
        group = self.groups.get(request.group_id)
        producer = (request.producer_id, request.epoch) if isinstance(request, TxnOffsetCommit) else None
        if group is not None:
            refused = group.refusal_of_commit(request)
        elif request.group_id in self.ledger.consumers:
            refused = self._refusal_of_consumer(self.ledger.consumers[request.group_id], request)
        elif request.generation < 0:
            refused = ErrorCode.NONE
        elif self._exists(request.group_id):
            refused = ErrorCode.UNKNOWN_MEMBER_ID  # the group has offsets but no members
        else:
            # Clients of earlier versions do not know GROUP_ID_NOT_FOUND here.
            knows = isinstance(request, CommitOffsets) and request.version >= EPOCHS_FROM
            refused = ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION
        if refused:
            return [SendResponse(token, GroupResponse(refused))]
        if group is not None:
            group.extend_session(request.member_id, now)
        if not request.offsets:
            return [SendResponse(token, GroupResponse())]
        records = tuple(OffsetCommitRecord(request.group_id, where, committed) for where, committed in request.offsets)
        return [AppendRecords(records, AppendCompletion(token, GroupResponse()), producer)]

    def _refusal_of_consumer(self, group: ConsumerGroup, request: CommitOffsets | TxnOffsetCommit) -> ErrorCode:
        found = ((self.consumers.topics.find(name), index) for (name, index), _ in request.offsets)
        places = tuple((b"" if topic is None else topic[0], index) for topic, index in found)
        return self.consumers.refusal_of_commit(group, request, places)

    def _fetch(self, request: FetchOffsets, token: Token, now: ClockReading) -> list[Effect]:
        group_id, ledger = request.group_id, self.ledger
        if group_id in ledger.consumers:
            refused = self.consumers.refusal_of_fetch(ledger.consumers[group_id], request)
            if refused:
                return [SendResponse(token, GroupResponse(refused), ledger.required_offset(group_id))]
        known = ledger.offsets.get(group_id, {})
        wanted = tuple(known) if request.partitions is None else request.partitions
        # Tombstones are written in turns, so offsets of deleted topics may still be here: do not return them.
        known = {w: known[w] for w in wanted if w in known and not self._is_orphan(w, known[w])}
        wanted = tuple(known) if request.partitions is None else wanted  # all: without the orphans
        found = tuple(
            (where, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if request.stable and ledger.is_pending(group_id, where)
            else (where, known.get(where), ErrorCode.NONE)
            for where in wanted
        )
        return [SendResponse(token, FetchOffsetsResult(offsets=found), ledger.required_offset(group_id))]

    def _delete_offsets(self, request: DeleteOffsets, token: Token, now: ClockReading) -> list[Effect]:
        group_id, ledger = request.group_id, self.ledger
        if not group_id:
            return [SendResponse(token, GroupResponse(ErrorCode.INVALID_GROUP_ID))]
        if not self._exists(group_id):
            return [SendResponse(token, GroupResponse(ErrorCode.GROUP_ID_NOT_FOUND), ledger.required_offset(group_id))]
        subscribed = self._subscribed(group_id)
        if subscribed is None:
            return [SendResponse(token, GroupResponse(ErrorCode.NON_EMPTY_GROUP))]
        errors = tuple(
            (where, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if where[0] in subscribed else ErrorCode.NONE)
            for where in request.partitions
        )
        held = [where for where, error in errors if not error and ledger.has_offset(group_id, where)]
        gone = tuple(OffsetCommitRecord(group_id, where, None) for where in held)
        answer = PartitionErrors(errors=errors)
        if not gone:
            return [SendResponse(token, answer, ledger.required_offset(group_id))]
        return [AppendRecords(gone, AppendCompletion(token, answer), whole=1)]

    def _subscribed(self, group_id: str) -> frozenset[str] | None:
        """Return the topics that a group's members read; None if they are unknown, and any topic may be read."""
        group = self.groups.get(group_id)
        if group_id in self.ledger.consumers:
            return frozenset(self.ledger.consumers[group_id].subscribed())
        if group is None or group.state == GroupState.EMPTY:
            return frozenset()
        if group.protocol_type != CONSUMER:
            return None
        return topics_of(metadata for member in group.members.values() for _, metadata in member.protocols)

    # -------------------------------------------------------------------------------------------------- groups as such

    def _exists(self, group_id: str) -> bool:
        ledger = self.ledger
        known = group_id in self.groups or group_id in ledger.consumers or group_id in ledger.offsets
        return known or ledger.is_pending(group_id)

    def state_of(self, group_id: str) -> GroupState:
        """Return the state of a group of either protocol; Empty if the group has only offsets."""
        group = self.groups.get(group_id)
        if group is not None:
            return group.state
        return self.consumers.state_of(group_id) or GroupState.EMPTY

    def _delete_group(self, request: DeleteGroup, token: Token, now: ClockReading) -> list[Effect]:
        group_id, ledger = request.group_id, self.ledger
        error = ErrorCode.NONE
        if not self._exists(group_id):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif self.state_of(group_id) != GroupState.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        if error:
            return [SendResponse(token, GroupResponse(error), ledger.required_offset(group_id))]
        records: list[GroupLogRecord] = [OffsetCommitRecord(group_id, where, None) for where in ledger.places(group_id)]
        if group_id in ledger.groups:
            records.append(GroupMetadataRecord(group_id, None))
        records += self.consumers.tombstones_of_group(group_id)
        if not records:
            self.groups.pop(group_id, None)  # the log has no record of it
            return [SendResponse(token, GroupResponse())]
        return [AppendRecords(tuple(records), AppendCompletion(token, GroupResponse()), whole=1)]

    def _describe(self, request: DescribeGroup, token: Token, now: ClockReading) -> list[Effect]:
        group_id, group = request.group_id, self.groups.get(request.group_id)
        if group is not None:
            protocol = (group.protocol or "") if group.state == GroupState.STABLE else ""
            answer = DescribeResult(ErrorCode.NONE, group.state, group.protocol_type, protocol, group.record().members)
            return [SendResponse(token, answer)]
        if group_id in self.ledger.consumers:
            message = f"Group {group_id} is not a classic group."
            described = DescribeResult(ErrorCode.GROUP_ID_NOT_FOUND, message=message)
        elif self._exists(group_id):
            described = DescribeResult(ErrorCode.NONE, GroupState.EMPTY)
        else:
            described = DescribeResult(ErrorCode.GROUP_ID_NOT_FOUND)
        return [SendResponse(token, described, self.ledger.required_offset(group_id))]

    def _describe_consumer(self, request: ConsumerDescribe, token: Token, now: ClockReading) -> list[Effect]:
        return self.consumers.describe(request, token)

    def listed(self) -> list[GroupListing]:
        """Return all groups, including groups that have only offsets."""
        ledger = self.ledger
        found = {name: GroupListing(name, group.protocol_type, group.state) for name, group in self.groups.items()}
        for group_id in ledger.consumers:
            found[group_id] = GroupListing(group_id, CONSUMER, self.state_of(group_id), CONSUMER)
        for group_id in ledger.offsets:
            found.setdefault(group_id, GroupListing(group_id, "", GroupState.EMPTY))
        return list(found.values())

    # ---------------------------------------------------------------------------------------------------------- expiry

    def expiring(self, wall_ms: int, *, retention: bool = True) -> Iterator[ExpireOffsets | None]:
        """Yield once per EXPIRED_AT_ONCE offsets of a group: an ExpireOffsets if any of them expires, else None."""
        for group_id in dict.fromkeys((*self.groups, *self.ledger.consumers, *self.ledger.group_ids())):
            places = tuple(self.ledger.places(group_id))
            for first in range(0, max(1, len(places)), EXPIRED_AT_ONCE):  # also once for a group without offsets
                request = ExpireOffsets(group_id, places[first : first + EXPIRED_AT_ONCE], retention)
                yield request if self._expired(request, wall_ms) else None

    def _expire(self, request: ExpireOffsets, token: Token, now: ClockReading) -> list[Effect]:
        records = self._expired(request, now.wall_ms)
        if not records:
            return [SendResponse(token, GroupResponse())]
        return [AppendRecords(tuple(records), AppendCompletion(token, GroupResponse()), whole=1)]

    def _is_orphan(self, where: TopicPartition, committed: OffsetAndMetadata) -> bool:
        """Return whether the topic of a committed offset was deleted, even if another topic has its name now."""
        found = self.consumers.topics.find(where[0])
        return found is None or committed.topic_id not in (ZERO_UUID, found[0])

    def _expired(self, request: ExpireOffsets, wall_ms: int) -> list[GroupLogRecord]:
        """Return tombstones for offsets of deleted topics; if there are none, for expired offsets of unread topics."""
        group_id, ledger = request.group_id, self.ledger
        # As Kafka's OffsetMetadataManager.onTopicsDeleted: at once, and whether or not a live group reads the topic.
        orphans = ledger.orphans(group_id, request.partitions, self._is_orphan)
        if orphans or not request.retention:
            return [OffsetCommitRecord(group_id, where, None) for where in orphans]
        group = self.groups.get(group_id)
        empty = self.state_of(group_id) == GroupState.EMPTY
        settled = empty or group is None or group.state == GroupState.STABLE
        spared = self._subscribed(group_id) if settled else None
        if spared is None:
            return []
        record = ledger.groups.get(group_id) if empty else None  # a live group's offsets age from their commits
        known = ledger.offsets.get(group_id, {})
        gone = [
            where
            for where in request.partitions
            if where in known
            and where[0] not in spared
            and not ledger.is_pending(group_id, where)
            and is_expired(known[where], record, self.settings.retention_ms, wall_ms)
        ]
        records: list[GroupLogRecord] = [OffsetCommitRecord(group_id, where, None) for where in gone]
        # Each request names some of the offsets. The one that removes the last of them removes the group as well.
        unused = empty and len(gone) == len(known) and not ledger.is_pending(group_id)
        if unused and group_id in ledger.groups and not (group and group.pending):  # pending: one is to join
            records.append(GroupMetadataRecord(group_id, None))
        return records + (self.consumers.tombstones_of_group(group_id) if unused else [])

    _HANDLERS: dict[type[Any], Callable[..., list[Effect]]] = {
        JoinGroup: _join,
        SyncGroup: _sync,
        ClassicHeartbeat: _beat,
        LeaveGroup: _leave,
        ConsumerHeartbeat: _beat_consumer,
        ConsumerDescribe: _describe_consumer,
        CommitOffsets: _commit,
        TxnOffsetCommit: _commit,
        FetchOffsets: _fetch,
        DeleteOffsets: _delete_offsets,
        DeleteGroup: _delete_group,
        DescribeGroup: _describe,
        ExpireOffsets: _expire,
    }


def _pop_effects(group: ClassicGroup) -> list[Effect]:
    group.check_members()
    effects, group.effects = group.effects, []
    return effects
