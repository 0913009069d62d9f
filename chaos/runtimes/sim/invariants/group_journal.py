"""Replays one copy of a partition of __consumer_offsets: its records, its transaction markers, and the state of the
groups that results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from squall.broker.coordinators.groups.consumer import records as consumer_records
from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
from squall.broker.protocol.coordinator_frame import decode_group_record, decode_versioned
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import HEADER, BatchHeader, decode_batch
from squall.broker.protocol.schema.consumer_protocol import ConsumerProtocolAssignment
from squall.broker.protocol.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from squall.chaos.runtimes.sim.invariants.headers import BatchIdentity

Place = tuple[str | bytes, int]
"""Identifies a partition: its topic's name (or its topic's id, for members of consumer groups, KIP-848), and its index.
"""
CONSUMER = "consumer"
"""Is the protocol type of groups whose members are consumers: their assignments can be decoded."""


class CommittedOffset(NamedTuple):
    """Holds a committed offset of a group, as it is in its record in the log."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int
    at: int
    """Is the offset at which this record is in __consumer_offsets."""


class GenerationMember(NamedTuple):
    """Holds the subscription and assignment of one member of a classic group's generation."""

    member_id: str
    instance_id: str | None
    subscription: bytes
    assignment: bytes


class Generation(NamedTuple):
    """Describes one generation of a classic group, with the fields of its record in __consumer_offsets."""

    protocol_type: str
    number: int
    protocol: str | None
    leader: str | None
    members: tuple[GenerationMember, ...]


Positions = Mapping[tuple[str, int], CommittedOffset]


class GroupStateSnapshot(NamedTuple):
    """Holds the state of one group: either as replayed from the log, or as it is in the coordinator's memory."""

    generation: Generation | None
    """Is the newest generation of a classic group; None if the group is no classic group, or has no record."""
    offsets: Positions
    pending: Mapping[int, Positions]
    """Maps a producer id to the offsets that its unfinished transaction commits."""
    consumer: tuple[object, ...] | None = None
    """Holds the state of a consumer group (KIP-848) as plain values (`ConsumerGroup.facts`); None if the group is no
    consumer group.
    """


class PartitionOwners(NamedTuple):
    """Gives the owners of a group's partitions: those of one generation of a classic group, or, in a consumer group
    (KIP-848), those by the newest record of each member.
    """

    generation: int
    """Is the group's generation; -1 if each member has an epoch of its own (KIP-848)."""
    owners: Mapping[str, frozenset[Place]]
    """Maps a member, by its instance id if it has one, else by its member id, to its partitions. With KIP-848,
    partitions that are still to be revoked count as owned.
    """


class OwnershipChange(NamedTuple):
    """Records that a batch of records changed the owners of partitions in a group."""

    group: str
    before: PartitionOwners | None
    after: PartitionOwners


class AssignedPartition(NamedTuple):
    """Records that a batch of records assigned an unowned partition to a member of a consumer group (KIP-848)."""

    group: str
    member_id: str
    place: Place
    epoch: int
    """Is the partition's assignment epoch, as the record has it: the member epoch in which the partition was assigned.
    """
    member_epoch: int


class GroupJournal:
    """Replays one copy of a partition of __consumer_offsets, record by record."""

    __slots__ = (
        *("_consumers", "_current", "_generations", "_offsets", "_owned", "_pending"),
        *("given", "news", "changed_groups", "unmarked"),
    )

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget everything, because the log is read again from its start."""
        self._generations: dict[str, Generation] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        """Maps a consumer group to its state. The broker's own code replays its records, from the first one on."""
        self._offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self._pending: dict[int, dict[str, dict[tuple[str, int], CommittedOffset]]] = {}
        self._current: dict[str, dict[str, frozenset[Place]]] = {}
        self._owned: dict[str, PartitionOwners] = {}
        self.unmarked: dict[int, int] = {}
        """Maps the log offset of a record to the producer id of its transaction. Holds the records that commit a
        group's offset in a transaction without a commit marker so far.
        """
        self.changed_groups: dict[str, None] = {}
        """Holds the groups with changes that are not checked yet."""
        self.given: list[AssignedPartition] = []
        """Lists the assignments of unowned partitions that are not checked yet."""
        self.news: list[OwnershipChange] = []
        """Lists the changes of owners that are not checked yet."""

    def groups(self) -> list[str]:
        """Return the names of all groups of which the log has a state."""
        pending = (group for groups in self._pending.values() for group in groups)
        return list(dict.fromkeys((*self._generations, *self._consumers, *self._offsets, *pending)))

    def states(self, names: Iterable[str]) -> dict[str, GroupStateSnapshot]:
        """Return the state of these groups, as replayed from the log."""
        return {
            name: GroupStateSnapshot(
                self._generations.get(name),
                self._offsets.get(name, {}),
                {producer: groups[name] for producer, groups in self._pending.items() if name in groups},
                self._consumers[name].facts() if name in self._consumers else None,
            )
            for name in names
        }

    def take(self, batch: BatchIdentity, data: memoryview) -> None:
        """Replay one more batch of the log."""
        if batch.is_control:
            if batch.marker is not None:
                self._end(batch.producer_id, batch.marker.commit)
            return
        producer = batch.producer_id if batch.is_transactional else -1
        owners: dict[str, None] = {}
        owned: dict[str, dict[tuple[bytes, int], str]] = {}
        try:
            for record in decode_batch(BatchHeader._make(HEADER.unpack_from(data)), data):
                found = decode_group_record(record.key or b"", record.value)
                if found is None:
                    continue
                if name := self._record(*found, record.offset, producer):
                    owners[name] = None
                if (written := consumer_records.decode(*found)) is not None:
                    group = self._consumers.setdefault(written.group_id, ConsumerGroup(written.group_id))
                    # The owners before the batch: within it, a partition may go through several hands.
                    owned.setdefault(written.group_id, dict(group.owners))
                    group.replay(written)
        except MalformedFrame:
            pass  # whoever loads this log says so
        for name in owners:  # in the middle of a batch a member may have another's partitions: it takes its place
            self._owners_changed(name, PartitionOwners(-1, dict(self._current.get(name, {}))))
        for name, before in owned.items():
            self._replayed(self._consumers[name], before)

    def _replayed(self, group: ConsumerGroup, owned: Mapping[tuple[bytes, int], str]) -> None:
        """Record that a batch has changed a consumer group, and which partitions without an owner it has assigned.
        `owned`: the owners of the group's partitions before that batch.
        """
        self.changed_groups[group.group_id] = None
        if group.is_forgotten:
            del self._consumers[group.group_id]
        for place, member_id in group.owners.items():
            current = group.now_of(member_id)
            if place not in owned and place in current.assigned:
                given = AssignedPartition(group.group_id, member_id, place, current.assigned[place], current.epoch)
                self.given.append(given)

    def _record(self, key: object, value: object, at: int, producer: int) -> str:
        """Replay one record. Returns the group's name if the record assigns partitions to a member of a consumer group
        (KIP-848), else "".
        """
        match key:
            case OffsetCommitKey():
                self.changed_groups[key.group] = None
                self._offset(key, value if isinstance(value, OffsetCommitValue) else None, at, producer)
            case GroupMetadataKey():
                self.changed_groups[key.group] = None
                if isinstance(value, GroupMetadataValue):
                    now = self._generations[key.group] = generation_of(value)
                    if (owned := owned_in(now)) is not None:
                        self._owners_changed(key.group, owned)
                else:
                    self._generations.pop(key.group, None)
            case ConsumerGroupCurrentMemberAssignmentKey():
                members = self._current.setdefault(key.group_id, {})
                members.pop(key.member_id, None)
                if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
                    members[key.member_id] = frozenset(
                        (topic.topic_id, index)
                        for topic in (*value.assigned_partitions, *value.partitions_pending_revocation)
                        for index in topic.partitions
                    )
                return key.group_id
        return ""

    def _offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None, at: int, producer: int) -> None:
        place = key.topic, key.partition
        if value is None:  # it takes what a transaction may still bring with it
            for found in (self._offsets, *self._pending.values()):
                found.get(key.group, {}).pop(place, None)
            self._tidy()
            return
        told = value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
        if producer < 0:
            self._offsets.setdefault(key.group, {})[place] = CommittedOffset(*told, at)
        else:
            self._pending.setdefault(producer, {}).setdefault(key.group, {})[place] = CommittedOffset(*told, at)
            self.unmarked[at] = producer

    def _end(self, producer: int, commit: bool) -> None:
        """Replay the marker that commits or aborts a producer's transaction. A commit turns the transaction's pending
        offsets into committed ones. Exception: a partition keeps its present committed offset if that offset's record
        is later in the log than the transaction's record for the partition (KAFKA-5547).
        """
        for group, owed in self._pending.pop(producer, {}).items():
            self.changed_groups[group] = None
            for place, position in owed.items() if commit else ():
                present = self._offsets.setdefault(group, {}).get(place)
                if present is None or present.at < position.at:
                    self._offsets[group][place] = position
        if commit:
            self.unmarked = {at: each for at, each in self.unmarked.items() if each != producer}

    def _tidy(self) -> None:
        """Remove empty entries: groups without committed offsets from `_offsets`, producers without pending offsets
        from `_pending`.
        """
        self._offsets = {group: found for group, found in self._offsets.items() if found}
        for producer, groups in list(self._pending.items()):
            left = {group: found for group, found in groups.items() if found}
            if left:
                self._pending[producer] = left
            else:
                del self._pending[producer]

    def _owners_changed(self, group: str, now: PartitionOwners) -> None:
        self.changed_groups[group] = None
        self.news.append(OwnershipChange(group, self._owned.get(group), now))
        self._owned[group] = now


def generation_of(value: GroupMetadataValue) -> Generation:
    """Return the generation that a record describes."""
    members = tuple(
        GenerationMember(each.member_id, each.group_instance_id, bytes(each.subscription), bytes(each.assignment))
        for each in value.members
    )
    return Generation(value.protocol_type, value.generation, value.protocol, value.leader, members)


def owned_in(generation: Generation) -> PartitionOwners | None:
    """Return the owners of partitions in a generation. None if only the members can decode its assignments."""
    if generation.protocol_type != CONSUMER:
        return None
    owners: dict[str, frozenset[Place]] = {}
    try:
        for each in generation.members:
            told = decode_versioned(ConsumerProtocolAssignment, each.assignment) if each.assignment else None
            topics = () if told is None else told.assigned_partitions
            places = frozenset((topic.topic, index) for topic in topics for index in topic.partitions)
            owners[each.instance_id or each.member_id] = places
    except MalformedFrame:
        return None
    return PartitionOwners(generation.number, owners)
