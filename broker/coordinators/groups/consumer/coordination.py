"""Decides what a request changes in a consumer group: the records, and the response that waits for them (KIP-848).

A heartbeat is handled in three steps: the member's subscription may raise the group epoch; a new epoch gets a new
target assignment; the member reconciles one step towards its target. Only the records change the state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from squall.broker.coordinators.groups.consumer.answers import (
    ConsumerDescribeResult,
    DescribedMember,
    HeartbeatResult,
    generation_of,
)
from squall.broker.coordinators.groups.consumer.assignors import ASSIGNORS, AssignmentMemberSpec, elected_assignor
from squall.broker.coordinators.groups.consumer.draft import (
    GroupDraft,
    tombstones_of_group,
    tombstones_of_member,
    updated_subscription,
)
from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
from squall.broker.coordinators.groups.consumer.matching import RegexMatchCache
from squall.broker.coordinators.groups.consumer.members import (
    JOINS,
    LEAVES_FOR_NOW,
    ConsumerGroupLogRecord,
    ConsumerHeartbeat,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberSubscription,
    RegularExpressionRecord,
    ResolvedRegularExpression,
    SubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from squall.broker.coordinators.groups.consumer.migration import (
    DISABLED,
    DOWNWARDS,
    UPWARDS,
    downgraded,
    has_only_classic_members,
)
from squall.broker.coordinators.groups.consumer.reconciliation import Reconciliation
from squall.broker.coordinators.groups.consumer.rules import ConsumerGroupRules, heartbeat_error, leaves
from squall.broker.coordinators.groups.consumer.sessions import MemberSessions
from squall.broker.coordinators.groups.consumer.sizes import as_many_as_fit, of_downgrade, of_names, of_removal
from squall.broker.coordinators.groups.consumer.topics import metadata_hash
from squall.broker.coordinators.groups.values import (
    AppendCompletion,
    AppendRecords,
    ClockReading,
    Effect,
    GroupCoordinatorSettings,
    GroupLogRecord,
    GroupMetadataRecord,
    GroupResponse,
    GroupState,
    SendResponse,
    Token,
)
from squall.broker.coordinators.patterns import BadPattern
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from squall.broker.coordinators.groups.consumer.members import ClassicJoinMetadata, ConsumerDescribe, Place
    from squall.broker.coordinators.groups.consumer.topics import TopicLookup
    from squall.broker.coordinators.groups.ledger import ReplayedGroupState
    from squall.broker.coordinators.groups.values import JoinGroup

MOST_CHARACTERS_MATCHED: Final = 100_000
"""Limits the characters of topic names in a heartbeat's RegularExpressionRecords, so that a 1 MiB batch holds them."""
MOST_CHARACTERS_OF_KEYS: Final = 100_000
"""Limits the characters in the keys of a heartbeat's RegularExpressionRecords. The first record is always written."""
MOST_OF_MATCHED: Final = 3, 4
"""Limits an expression's topic names to 3/4 of the largest batch. If it matches more, it keeps its old topics."""
OF_REMOVALS: Final = 8
"""Limits the number of members that are removed at once: their tombstones take at most 1/8 of the largest batch."""


class ConsumerCoordination(ConsumerGroupRules):
    """Coordinates the consumer groups of one shard."""

    __slots__ = ("_ledger", "_matching", "_sessions", "_settings", "topics")

    def __init__(
        self,
        ledger: ReplayedGroupState,
        settings: GroupCoordinatorSettings,
        topics: TopicLookup,
        matching: RegexMatchCache | None = None,
    ) -> None:
        """Set up the coordination. A coordinator's shards may share `matching`, which caches matched expressions."""
        self._ledger, self._settings, self.topics = ledger, settings, topics
        self._matching = RegexMatchCache(topics) if matching is None else matching
        self._sessions: dict[str, MemberSessions] = {}

    # ------------------------------------------------------------------------------------------------------------ time

    def begin(self, now: ClockReading) -> None:
        """Give every member a whole session time-out, now that the whole log has been replayed."""
        assert not self._sessions
        for group_id, group in self._ledger.consumers.items():
            group.check()
            sessions = self._sessions[group_id] = MemberSessions()
            for member_id in group.members:
                sessions.extend_session(member_id, now.mono_ms + self._session_ms(group, member_id))
                sessions.track_revocation(group, member_id, now.mono_ms)

    def _session_ms(self, group: ConsumerGroup, member_id: str) -> int:
        """Return the member's session time-out in ms. A classic member chooses its own."""
        classic = group.members[member_id].classic
        if classic is not None:
            return classic.session_ms
        own = self._settings.own_session_ms(group.group_id)
        return self._settings.consumer_session_ms if own is None else own

    def replayed(self, written: ConsumerGroupLogRecord) -> None:
        """Drop the sessions of groups and members that a replayed record has removed."""
        if written.group_id not in self._ledger.consumers:
            self._sessions.pop(written.group_id, None)
        elif (
            isinstance(written, SubscriptionRecord)
            and written.subscription is None
            and written.group_id in self._sessions
        ):
            self._sessions[written.group_id].forget(written.member_id)

    def deadline_of(self, group_id: str) -> int | None:
        """Return the monotonic time, in ms, at which `expire` has something to do for a group; None if never."""
        sessions = self._sessions.get(group_id)
        return None if sessions is None else sessions.next_deadline_ms()

    def expire(self, group_id: str, now: ClockReading) -> list[Effect]:
        """Remove members whose session has ended, or that have not revoked partitions in time."""
        sessions, group = self._sessions.get(group_id), self._ledger.consumers.get(group_id)
        if sessions is None:
            return []
        if group is None:
            del self._sessions[group_id]
            return []
        gone = []
        for member_id in sessions.due(now.mono_ms):
            if member_id in group.members:
                gone.append(member_id)
            else:
                sessions.forget(member_id)  # its join could not be appended
        if not gone:
            return []
        # The other members are removed a little later: a batch cannot hold thousands, or ids of 32 KB.
        some = as_many_as_fit(group, gone, self._settings.most_bytes() // OF_REMOVALS)
        return [AppendRecords(self.remove_members(group, some, now), AppendCompletion())]

    # ------------------------------------------------------------------------------------------------------- heartbeats

    def beat(self, beat: ConsumerHeartbeat, token: Token, now: ClockReading, *, over_classic: bool) -> list[Effect]:
        """Handle the heartbeat of a member. `over_classic`: the group id is that of a non-empty classic group."""
        wrong, message = heartbeat_error(beat, self._settings.consumer_assignors)
        if not wrong and beat.regex:
            wrong, message = self._regex_error(beat.regex)
        if wrong:
            return [SendResponse(token, HeartbeatResult(wrong, message=message))]
        group_id, required_offset = beat.group_id, self._ledger.required_offset(beat.group_id)
        group = self._ledger.consumers.get(group_id)
        if over_classic or (group is None and beat.epoch != JOINS):
            message = f"Group {group_id} is not a consumer group." if over_classic else f"Group {group_id} not found."
            answer = HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, message=message)
            return [SendResponse(token, answer, required_offset)]
        draft = GroupDraft(ConsumerGroup(group_id) if group is None else group)
        refused = self.refusal_of_heartbeat(draft.group, beat)
        if (
            not refused
            and beat.epoch == JOINS
            and not self.has_room(draft.group, beat.member_id, self._settings.consumer_max_size)
        ):
            refused = ErrorCode.GROUP_MAX_SIZE_REACHED
        if refused:
            return [SendResponse(token, HeartbeatResult(refused), required_offset)]
        if leaves(beat):
            return self._leave(draft, beat, token, now)
        if group is None and group_id in self._ledger.groups:
            draft.records.append(GroupMetadataRecord(group_id, None))  # upgrades an empty classic group (KIP-848)
        before = tuple(draft.group.now_of(beat.member_id).assigned)
        self._step(draft, beat, None, now)
        return self._answer(draft, beat, before, token, now)

    def _step(
        self, draft: GroupDraft, beat: ConsumerHeartbeat, classic: ClassicJoinMetadata | None, now: ClockReading
    ) -> None:
        before = draft.group
        self._subscribe(draft, beat, classic, now)
        assert beat.member_id in draft.group.members
        self._retarget(draft, now)
        assert draft.group.epoch <= draft.group.target_epoch
        self._reconcile(draft, beat, before)

    def _regex_error(self, regex: str) -> tuple[ErrorCode, str]:
        try:
            self._matching.pattern(regex)
        except BadPattern as why:
            message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}."
            return ErrorCode.INVALID_REGULAR_EXPRESSION, message
        topics = self._matching.topics_of(regex)
        if topics is not None and not self._can_be_written(topics):
            message = (
                f"SubscribedTopicRegex `{regex}` matches {len(topics):,} topics, whose names are too long for the log."
            )
            return ErrorCode.INVALID_REGULAR_EXPRESSION, message
        return ErrorCode.NONE, ""

    def _can_be_written(self, topics: tuple[str, ...]) -> bool:
        """Return whether the names of the topics that an expression matches fit into one batch of the log."""
        part, whole = MOST_OF_MATCHED
        return of_names(topics) <= self._settings.most_bytes() * part // whole

    def _answer(
        self, draft: GroupDraft, beat: ConsumerHeartbeat, before: tuple[Place, ...], token: Token, now: ClockReading
    ) -> list[Effect]:
        group, member_id = draft.group, beat.member_id
        self.extend_session(group, member_id, now)
        current = group.now_of(member_id)
        assert current.epoch > JOINS
        after = tuple(sorted(current.assigned))
        full = self.is_answer_full(beat, tuple(sorted(before)), after)
        answer = HeartbeatResult(ErrorCode.NONE, member_id, current.epoch, after if full else None)
        return self._written(draft, token, answer)

    def _written(self, draft: GroupDraft, token: Token, answer: GroupResponse) -> list[Effect]:
        if not draft.records:
            return [SendResponse(token, answer, self._ledger.required_offset(draft.group.group_id))]
        return [AppendRecords(tuple(draft.records), AppendCompletion(token, answer), whole=draft.whole)]

    def extend_session(self, group: ConsumerGroup, member_id: str, now: ClockReading) -> MemberSessions:
        """Extend a member's session and return the deadlines of its group."""
        sessions = self._sessions.setdefault(group.group_id, MemberSessions())
        sessions.extend_session(member_id, now.mono_ms + self._session_ms(group, member_id))
        sessions.track_revocation(group, member_id, now.mono_ms)
        return sessions

    def _subscribe(
        self, draft: GroupDraft, beat: ConsumerHeartbeat, classic: ClassicJoinMetadata | None, now: ClockReading
    ) -> None:
        """Record a member's subscription. Raise the group epoch if the subscription or the cluster's topics change what
        members may read. A joining static member takes over the assignment of its instance id. `classic` is None for a
        member of the consumer protocol.
        """
        member_id = beat.member_id
        stays = classic is not None and draft.group.static.get(beat.instance_id or "") == member_id
        if beat.instance_id is not None and beat.epoch == JOINS and not stays:
            self._take_over(draft, beat.instance_id, member_id)
        known = draft.group.members.get(member_id)
        said = updated_subscription(known or MemberSubscription(), beat, classic)
        topics = draft.group.topics_of(known) if known is not None else ()
        if said != known:
            draft.add(SubscriptionRecord(beat.group_id, member_id, said))
        self._match(draft, now)
        changed = sorted(topics) != sorted(draft.group.topics_of(said))
        found = metadata_hash(self.topics, draft.group.subscribed())
        if changed or found != draft.group.metadata_hash:
            draft.add(GroupEpochRecord(beat.group_id, draft.group.epoch + 1, found))

    def _match(self, draft: GroupDraft, now: ClockReading) -> None:
        """Resolve the members' regular expressions to topics, and drop expressions that no member uses. While a match
        is pending, or does not fit into this heartbeat's batch, an expression keeps its old topics (a new expression
        has none) until a later heartbeat.
        """
        group_id = draft.group.group_id
        wanted = dict.fromkeys(one.regex for one in draft.group.members.values() if one.regex)
        for regex in list(draft.group.regexes):
            if regex not in wanted:
                draft.add(RegularExpressionRecord(group_id, regex, None))
        written = names = keys = 0
        for regex, topics in self._matching.of_each(wanted):
            known = draft.group.regexes.get(regex)
            if topics is not None and (known is None or known.topics != topics) and self._can_be_written(topics):
                more_names, more_keys = sum(map(len, topics)), len(group_id) + len(regex)
                too_many = names + more_names > MOST_CHARACTERS_MATCHED or keys + more_keys > MOST_CHARACTERS_OF_KEYS
                if written and too_many:
                    continue
                written, names, keys = written + 1, names + more_names, keys + more_keys
                draft.add(
                    RegularExpressionRecord(
                        group_id, regex, ResolvedRegularExpression(topics, self.topics.version(), now.wall_ms)
                    )
                )
        assert draft.group.regexes.keys() <= wanted.keys()

    def _take_over(self, draft: GroupDraft, instance_id: str, member_id: str) -> None:
        """Give a returning static member its old assignment, even under a new id, without a rebalance (KIP-345)."""
        group = draft.group
        before = group.static.get(instance_id)
        if before is None:
            return
        subscription, target = group.members[before], group.target.get(before)
        current = replace(group.now_of(before), epoch=0, previous_epoch=-1)  # `_reconcile` sets the epoch
        if before != member_id:
            for gone in tombstones_of_member(group.group_id, before):
                draft.add(gone)
            draft.add(SubscriptionRecord(group.group_id, member_id, subscription))
            if target is not None:
                draft.add(TargetAssignmentRecord(group.group_id, member_id, target))
        draft.add(CurrentAssignmentRecord(group.group_id, member_id, current))
        assert draft.group.static[instance_id] == member_id

    def _retarget(self, draft: GroupDraft, now: ClockReading) -> None:
        """Compute a target assignment for the group epoch, unless this epoch has one already."""
        group = draft.group
        if group.epoch <= group.target_epoch:
            return
        counts: dict[bytes, int] = {}
        wants = []
        for member_id, subscription in group.members.items():
            found = [topic for topic in map(self.topics.find, group.topics_of(subscription)) if topic is not None]
            counts.update(found)
            ids = tuple(topic_id for topic_id, _ in found)
            wants.append(
                AssignmentMemberSpec(member_id, subscription.instance_id, ids, group.target.get(member_id, ()))
            )
        targets = ASSIGNORS[self.assignor_of(group)](tuple(wants), counts)
        assert targets.keys() == group.members.keys()
        # Hundreds of members with long ids need several batches. If the log ends between two batches, the group epoch
        # is ahead of the target epoch, and the next heartbeat computes the target again.
        draft.whole = len(draft.records)
        for member_id, places in targets.items():
            if places != group.target.get(member_id):
                draft.add(TargetAssignmentRecord(group.group_id, member_id, places))
        draft.add(TargetEpochRecord(group.group_id, group.epoch, now.wall_ms))

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Return the name of the assignor that most members ask for; by default the first configured assignor."""
        return elected_assignor(group.members.values(), self._settings.consumer_assignors)

    def _reconcile(self, draft: GroupDraft, beat: ConsumerHeartbeat, before: ConsumerGroup) -> None:
        group, member_id = draft.group, beat.member_id
        current, topics = group.now_of(member_id), group.topics_of(group.members[member_id])
        read = before.topics_of(before.members.get(member_id, group.members[member_id]))
        # Kafka looks up a static member's last target by its instance id (ConsumerGroup.targetAssignment): a member
        # that becomes static has no target until the next group epoch.
        is_first = beat.instance_id is not None and beat.instance_id not in before.static
        lost = is_first and before.target_epoch == group.target_epoch
        after = Reconciliation(
            () if lost else group.target.get(member_id, ()),
            group.target_epoch,
            beat.owned,
            # The owners before this heartbeat: what it releases is free from the next heartbeat on, as with Kafka.
            lambda place: place in current.revoking or place not in before.owners,
            lambda place: topics == read or self.topics.name_of(place[0]) in topics,
        ).step(current)
        if after is not current:
            draft.add(CurrentAssignmentRecord(group.group_id, member_id, after))

    # ---------------------------------------------------------------------------------------------------------- leaving

    def _leave(self, draft: GroupDraft, beat: ConsumerHeartbeat, token: Token, now: ClockReading) -> list[Effect]:
        group_id, member_id = beat.group_id, beat.member_id
        if beat.epoch == LEAVES_FOR_NOW:
            # Its process has stopped, so it reads nothing that it had to revoke: these partitions are free.
            current = draft.group.now_of(member_id)
            draft.add(CurrentAssignmentRecord(group_id, member_id, replace(current, epoch=LEAVES_FOR_NOW, revoking={})))
            records = tuple(draft.records)
        else:
            records = self.remove_members(draft.group, [member_id], now)
        return [AppendRecords(records, AppendCompletion(token, HeartbeatResult(ErrorCode.NONE, member_id, beat.epoch)))]

    def remove_members(self, group: ConsumerGroup, gone: list[str], now: ClockReading) -> tuple[GroupLogRecord, ...]:
        """Return the records that remove the members `gone`, and then raise the group epoch. If only classic members
        are left, the records turn the group into a classic group instead, if that is permitted and fits into one batch.
        """
        assert group.members.keys() >= set(gone)
        draft = GroupDraft(group)
        group_id = group.group_id
        for member_id in gone:
            for tombstone in tombstones_of_member(group_id, member_id):
                draft.add(tombstone)
        assert draft.group.members.keys().isdisjoint(gone)
        if self.may_downgrade(draft.group) and self._downgrade_fits(group, draft.group, gone):
            return (*draft.records, *downgraded(draft.group, self.topics, now))
        self._match(draft, now)
        found = metadata_hash(self.topics, draft.group.subscribed())
        draft.add(GroupEpochRecord(group_id, draft.group.epoch + 1, found))
        return tuple(draft.records)

    def tombstones_of_group(self, group_id: str) -> list[GroupLogRecord]:
        """Return the tombstones of all records of a group without members; none if there is no such group."""
        group = self._ledger.consumers.get(group_id)
        return [] if group is None else tombstones_of_group(group)

    # -------------------------------------------------------------------------------------------------- classic members

    def required_offset(self, group_id: str) -> int:
        """Return the offset of the group's last record. Responses about the group wait for this record's commit."""
        return self._ledger.required_offset(group_id)

    def has_room_for(self, group: ConsumerGroup, member_id: str) -> bool:
        """Return whether the member may join: it is a member already, or the group is not full."""
        return self.has_room(group, member_id, self._settings.consumer_max_size)

    @property
    def admits_classic_members(self) -> bool:
        """Return whether consumer groups may have classic members: the migration policy is not "disabled"."""
        return self._settings.consumer_migration != DISABLED

    def may_upgrade(self, members: int) -> bool:
        """Return whether migration policy and maximum size permit the upgrade of a classic group of so many members."""
        return self._settings.consumer_migration in UPWARDS and members <= self._settings.consumer_max_size

    def may_downgrade(self, group: ConsumerGroup) -> bool:
        """Return whether all members are classic members, and migration policy and maximum size permit a downgrade."""
        allowed = self._settings.consumer_migration in DOWNWARDS and len(group.members) <= self._settings.max_size
        return allowed and has_only_classic_members(group)

    def start_sessions(self, group_id: str, sessions_ms: Mapping[str, int], now: ClockReading) -> None:
        """Start the members' sessions when a classic group becomes a consumer group."""
        sessions = self._sessions[group_id] = MemberSessions()
        for member_id, session_ms in sessions_ms.items():
            sessions.extend_session(member_id, now.mono_ms + session_ms)

    def reconcile_classic_member(
        self,
        group: ConsumerGroup,
        beat: ConsumerHeartbeat,
        classic: ClassicJoinMetadata,
        request: JoinGroup,
        token: Token,
        now: ClockReading,
    ) -> list[Effect]:
        """Handle a JoinGroup of a classic member, translated to `beat`: reconcile one step, and start its session."""
        draft, member_id = GroupDraft(group), beat.member_id
        self._step(draft, beat, classic, now)
        if self.may_downgrade(draft.group) and self._leaves_only_classic_members(group, beat):
            # The member replaced the last member of the consumer protocol, or the policy permits the downgrade only
            # now. It then joins the classic group.
            records = self.remove_members(group, self._replaced(group, beat), now)
            return [AppendRecords(records, AppendCompletion(token, then=request))]
        sessions = self.extend_session(draft.group, member_id, now)
        # The JoinGroup has come. The SyncGroup is due next.
        sessions.clear_expected_request(member_id)
        sessions.expect_request(member_id, now.mono_ms + beat.rebalance_ms)
        answer = generation_of(member_id, draft.group.now_of(member_id).epoch, request)
        return self._written(draft, token, answer)

    def _replaced(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> list[str]:
        """Return the member whose instance id the joining member takes over, as a list of at most one id."""
        holder = group.static.get(beat.instance_id or "", beat.member_id)
        return [holder] if holder != beat.member_id else []

    def _leaves_only_classic_members(self, group: ConsumerGroup, beat: ConsumerHeartbeat) -> bool:
        """Return whether one batch can hold a downgrade that removes the member whose instance id `beat` takes over."""
        gone, left = self._replaced(group, beat), group.copy()
        for member_id in gone:
            for record in tombstones_of_member(group.group_id, member_id):
                left.replay(record)
        return self._downgrade_fits(group, left, gone)

    def _downgrade_fits(self, before: ConsumerGroup, after: ConsumerGroup, gone: list[str]) -> bool:
        """Return whether one batch can hold the tombstones of the members `gone`, and the records that turn the rest of
        the group into a classic group. `before` is the group with these members, `after` the group without them. If the
        batch would be too large, the group stays a consumer group, because the log would refuse the batch.
        """
        size = of_downgrade(after, self.topics) + sum(of_removal(before, member_id) for member_id in gone)
        return size <= self._settings.most_bytes()

    def must_join(self, group: ConsumerGroup, member_id: str, now: ClockReading) -> None:
        """Set the deadline for a classic member to join again: its rebalance time-out, unless one is set already."""
        sessions = self._sessions.setdefault(group.group_id, MemberSessions())
        sessions.expect_request(member_id, now.mono_ms + group.members[member_id].rebalance_ms)

    def has_synced(self, group: ConsumerGroup, member_id: str, now: ClockReading) -> None:
        """Handle the SyncGroup of a classic member: extend its session, and clear the deadline for this request."""
        self.extend_session(group, member_id, now).clear_expected_request(member_id)

    # ------------------------------------------------------------------------------------------------------- describing

    def state_of(self, group_id: str) -> GroupState | None:
        """Return the state of a consumer group; None if there is no such group."""
        group = self._ledger.consumers.get(group_id)
        return None if group is None else self.state(group)

    def describe(self, request: ConsumerDescribe, token: Token) -> list[Effect]:
        """Return a description of the group with its members."""
        group_id, required_offset = request.group_id, self._ledger.required_offset(request.group_id)
        group = self._ledger.consumers.get(group_id)
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
            return [SendResponse(token, GroupResponse(error), required_offset)]
        members = tuple(
            DescribedMember(member_id, subscription, group.now_of(member_id), group.target.get(member_id, ()))
            for member_id, subscription in group.members.items()
        )
        described = ConsumerDescribeResult(
            ErrorCode.NONE, self.state(group), group.epoch, group.target_epoch, self.assignor_of(group), members
        )
        return [SendResponse(token, described, required_offset)]
