"""Holds a consumer group as replayed from its records (KIP-848). Only `replay` changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from squall.broker.coordinators.groups.consumer.members import (
    FIRST_EPOCH,
    ConsumerGroupLogRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberState,
    MemberSubscription,
    Place,
    RegularExpressionRecord,
    ResolvedRegularExpression,
    SubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTHING = CurrentAssignment()
V = TypeVar("V")


class ConsumerGroup:
    """Holds a consumer group's members with their subscriptions, target assignments and current assignments."""

    __slots__ = (
        "current",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static",
        "target",
        "target_epoch",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = self.target_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, MemberSubscription] = {}
        """Maps a member id to its subscription, in the order in which the members joined."""
        self.static: dict[str, str] = {}
        """Maps the instance id of each static member to its current member id."""
        self.current: dict[str, CurrentAssignment] = {}
        self.target: dict[str, tuple[Place, ...]] = {}
        self.owners: dict[Place, str] = {}
        """Maps a partition to its owner: the member to which it is assigned, or which has not confirmed its revocation
        yet.
        """
        self.regexes: dict[str, ResolvedRegularExpression] = {}

    def copy(self) -> ConsumerGroup:
        """Return a copy of the group whose changes do not affect this group."""
        made = ConsumerGroup(self.group_id)
        made.epoch, made.metadata_hash, made.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        made.members, made.static = dict(self.members), dict(self.static)
        made.current, made.target = dict(self.current), dict(self.target)
        made.owners, made.regexes = dict(self.owners), dict(self.regexes)
        return made

    def facts(self) -> tuple[object, ...]:
        """Return everything that the group's records say, so that two groups can be compared."""
        return (
            (self.epoch, self.metadata_hash, self.target_epoch),
            dict(self.members),
            dict(self.static),
            dict(self.current),
            dict(self.target),
            dict(self.owners),
            dict(self.regexes),
        )

    def now_of(self, member_id: str) -> CurrentAssignment:
        """Return a member's current assignment; an empty one for a new member."""
        return self.current.get(member_id, NOTHING)

    def is_reconciled(self, member_id: str) -> bool:
        """Return whether a member has exactly its newest target assignment."""
        found = self.now_of(member_id)
        return found.state == MemberState.STABLE and found.epoch == self.target_epoch

    def topics_of(self, subscription: MemberSubscription) -> tuple[str, ...]:
        """Return the topic names that a member subscribes to, including those that its regular expression matches."""
        matched = self.regexes.get(subscription.regex) if subscription.regex else None
        return subscription.topics if matched is None else tuple(dict.fromkeys((*subscription.topics, *matched.topics)))

    def subscribed(self) -> tuple[str, ...]:
        """Return the topic names that the members subscribe to, by name or by a regular expression."""
        return tuple(dict.fromkeys(name for one in self.members.values() for name in self.topics_of(one)))

    # ---------------------------------------------------------------------------------------------------------- replay

    def replay(self, written: ConsumerGroupLogRecord) -> None:
        """Apply a record. A tombstone leaves the group as if the removed member or value had never been there."""
        assert written.group_id == self.group_id
        match written:
            case GroupEpochRecord(_, epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch or FIRST_EPOCH, metadata_hash
            case TargetEpochRecord(_, epoch, _):
                self.target_epoch = epoch or FIRST_EPOCH
            case SubscriptionRecord(_, member_id, subscription):
                self._subscribe(member_id, subscription)
            case TargetAssignmentRecord(_, member_id, places):
                _put(self.target, member_id, places)
            case CurrentAssignmentRecord(_, member_id, current):
                self._set_current(member_id, current)
            case RegularExpressionRecord(_, regex, resolved):
                _put(self.regexes, regex, resolved)
        assert self.current or not self.owners

    def check(self) -> None:
        """Assert that `static` agrees with `members`, and `owners` with `current`. They agree after any sequence of
        records, also after the records of a log whose start was deleted. The time that this takes grows with the number
        of members and partitions.
        """
        assert all(self.members[one].instance_id == instance_id for instance_id, one in self.static.items())
        assert all(self.current[one].holds(place) for place, one in self.owners.items())

    def _subscribe(self, member_id: str, subscription: MemberSubscription | None) -> None:
        # An update keeps the member's place in `members`; only a tombstone gives it up.
        before = self.members.pop(member_id, None) if subscription is None else self.members.get(member_id)
        if before is not None and before.instance_id is not None:
            # If another member has taken the instance id since, that member keeps it.
            if self.static.get(before.instance_id) == member_id:
                del self.static[before.instance_id]
        if subscription is not None:
            self.members[member_id] = subscription
            if subscription.instance_id is not None:
                self.static[subscription.instance_id] = member_id
        assert len(self.static) <= len(self.members)
        assert (member_id in self.members) == (subscription is not None)

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        before = self.now_of(member_id)
        # Another member may have got a partition since: only partitions that this member still owns become free.
        for place in (*before.assigned, *before.revoking):
            if self.owners.get(place) == member_id:
                del self.owners[place]
        if current is None:
            self.current.pop(member_id, None)
            return
        self.current[member_id] = current
        for place in (*current.assigned, *current.revoking):
            self.owners[place] = member_id

    @property
    def is_forgotten(self) -> bool:
        """Return whether the group has no members and no state, as if it had never existed."""
        kept = self.members or self.current or self.target or self.regexes
        return not kept and (self.epoch, self.metadata_hash, self.target_epoch) == (FIRST_EPOCH, 0, FIRST_EPOCH)


def _put(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    """Return the partition indexes by topic id, both sorted."""
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        found.setdefault(topic_id, []).append(index)
    return found
