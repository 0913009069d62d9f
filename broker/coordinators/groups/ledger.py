"""Holds the state that the log of one partition of __consumer_offsets describes: groups, committed offsets, and pending
offsets of open transactions (mechanisms P5 and P4 in docs/mechanisms.md).

Only `replay` and `end_transaction` change the state, with the log's records and markers in order. So a coordinator that
loads the log gets the same state as the coordinator that wrote it.
"""

# The record of a committed offset holds its topic id, and each fetch, deletion and load checks in the metadata image
# whether the topic still exists. Rejected: tombstones alone. They are written in turns, so a coordinator that loads
# after the topic's deletion would serve the offset.

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
from squall.broker.coordinators.groups.values import (
    NO_PRODUCER,
    NOTHING_WRITTEN,
    GroupLogRecord,
    GroupMetadataRecord,
    GroupRecord,
    OffsetAndMetadata,
    OffsetCommitRecord,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Offsets = dict[TopicPartition, OffsetAndMetadata]


class ReplayedGroupState:
    """Holds the durable state of one shard, as replayed from its log."""

    __slots__ = ("_forgotten", "_last", "consumers", "groups", "offsets", "pending")

    def __init__(self) -> None:
        self.groups: dict[str, GroupRecord] = {}
        """Maps a group id to the record of its classic group."""
        self.consumers: dict[str, ConsumerGroup] = {}
        """Maps a group id to its consumer group (KIP-848)."""
        self.offsets: dict[str, Offsets] = {}
        """Maps a group id to its committed offsets. Groups without offsets are left out."""
        self.pending: dict[int, dict[str, Offsets]] = {}
        """Maps a producer id, then a group id, to the offsets of the producer's open transaction."""
        self._last: dict[str, int] = {}
        """Maps a group id to the offset of its last record or marker."""
        self._forgotten = NOTHING_WRITTEN
        """Holds the offset of the newest record or marker that removed a group: one offset for all removed groups. A
        response about a group that does not exist waits until the record at this offset is committed.
        """

    def replay(self, written: GroupLogRecord, at: int, producer_id: int = NO_PRODUCER) -> None:
        """Apply the record at offset `at`. `producer_id` is the producer id of its transaction, or -1."""
        group_id = written.group_id
        assert at > self._last.get(group_id, NOTHING_WRITTEN)
        assert at > self._forgotten
        self._last[group_id] = at
        if isinstance(written, GroupMetadataRecord):
            if written.group is None:
                self.groups.pop(group_id, None)
            else:
                self.groups[group_id] = written.group
        elif not isinstance(written, OffsetCommitRecord):
            group = self.consumers.setdefault(group_id, ConsumerGroup(group_id))
            group.replay(written)
            if group.is_forgotten:
                del self.consumers[group_id]
        elif written.committed is None:
            self._forget(written)
        else:
            # The offset in the log decides, at the end of a transaction, which of two commits is newer.
            placed = replace(written.committed, written_at=at)
            if producer_id >= 0:
                self.pending.setdefault(producer_id, {}).setdefault(group_id, {})[written.partition] = placed
            else:
                self.offsets.setdefault(group_id, {})[written.partition] = placed
        self._drop_if_gone(group_id)
        assert self.offsets.get(group_id) != {}
        assert self.pending.get(producer_id) != {}
        assert self.required_offset(group_id) >= at

    def check(self) -> None:
        """Assert, once a log is loaded, that each group has an entry in `_last`, and that no map holds an empty entry.
        The time that this takes grows with the number of groups.
        """
        of_pending = [group_id for groups in self.pending.values() for group_id in groups]
        # A group without an offset in `_last` would be answered before its records are committed.
        assert self._last.keys() >= {*self.groups, *self.consumers, *self.offsets, *of_pending}
        assert all(self.offsets.values())
        assert all(self.pending.values())
        assert all(owed for groups in self.pending.values() for owed in groups.values())
        assert all(producer_id >= 0 for producer_id in self.pending)
        assert all(group.group_id == group_id for group_id, group in self.consumers.items())
        assert not any(group.is_forgotten for group in self.consumers.values())

    def _drop_if_gone(self, group_id: str) -> None:
        assert group_id in self._last
        known = group_id in self.groups or group_id in self.consumers or group_id in self.offsets
        if not known and not self.is_pending(group_id):
            # "No such group" is an answer, too: it may leave only once the tombstones are committed. One offset for all
            # removed groups is enough: for an older tombstone it only means a longer wait.
            self._forgotten = max(self._forgotten, self._last.pop(group_id))

    def _forget(self, written: OffsetCommitRecord) -> None:
        """Remove an offset. A tombstone also removes pending offsets of transactions, as Kafka's tombstones do."""
        group_id, partition = written.group_id, written.partition
        found = self.offsets.get(group_id)
        if found is not None:
            found.pop(partition, None)
            if not found:
                del self.offsets[group_id]
        for producer_id, groups in list(self.pending.items()):
            owed = groups.get(group_id)
            if owed is not None:
                owed.pop(partition, None)
                self._drop_empty(producer_id, group_id)
        assert not self.is_pending(group_id, partition)

    def _drop_empty(self, producer_id: int, group_id: str) -> None:
        groups = self.pending[producer_id]
        assert group_id in groups
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self.pending[producer_id]

    def end_transaction(self, producer_id: int, commit: bool, at: int) -> tuple[str, ...]:
        """Apply or drop the pending offsets of a transaction whose marker is at offset `at`. Return the groups that had
        pending offsets.

        An offset that was committed after the transaction's own record is kept, because it is newer (KAFKA-5547).
        """
        ended = self.pending.pop(producer_id, {})
        for group_id, owed in ended.items():
            assert owed
            # Also after an abort: later responses about the group's offsets depend on the marker.
            self._last[group_id] = max(at, self._last.get(group_id, NOTHING_WRITTEN))
            if commit:
                self._materialize(group_id, owed)
            self._drop_if_gone(group_id)
            assert self.required_offset(group_id) >= at
        return tuple(ended)

    def _materialize(self, group_id: str, owed: Offsets) -> None:
        found = self.offsets.setdefault(group_id, {})
        for partition, committed in owed.items():
            assert committed.written_at > NOTHING_WRITTEN
            present = found.get(partition)
            if present is None or present.written_at < committed.written_at:
                found[partition] = committed
            assert found[partition].written_at >= committed.written_at
        assert found

    def is_pending(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Return whether an undecided transaction may change this partition's offset, or any of the group's offsets if
        `partition` is None.
        """
        owed = (groups[group_id] for groups in self.pending.values() if group_id in groups)
        return any(partition is None or partition in found for found in owed)

    def has_offset(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether the group has a committed or a pending offset for this partition."""
        return partition in self.offsets.get(group_id, {}) or self.is_pending(group_id, partition)

    def group_ids(self) -> list[str]:
        """Return the groups that have offsets, including pending offsets."""
        return list(dict.fromkeys([*self.offsets, *(group for groups in self.pending.values() for group in groups)]))

    def places(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which a group has an offset or a pending offset."""
        owed = [where for groups in self.pending.values() for where in groups.get(group_id, ())]
        return list(dict.fromkeys([*self.offsets.get(group_id, ()), *owed]))

    def orphans(
        self,
        group_id: str,
        places: Iterable[TopicPartition],
        is_orphan: Callable[[TopicPartition, OffsetAndMetadata], bool],
    ) -> list[TopicPartition]:
        """Return the partitions among `places` whose offsets all belong to deleted topics. A partition without offsets
        is left out. So is a partition for which a transaction may commit an offset of a new topic with the same name,
        because the partition's tombstone would remove that pending offset, too.
        """
        pending = [groups[group_id] for groups in self.pending.values() if group_id in groups]
        kept = [self.offsets.get(group_id, {}), *pending]
        found = ((where, [offsets[where] for offsets in kept if where in offsets]) for where in places)
        return [where for where, here in found if here and all(is_orphan(where, each) for each in here)]

    def required_offset(self, group_id: str) -> int:
        """Return the offset of the last record that responses about this group depend on; NOTHING_WRITTEN if there is
        none.
        """
        return self._last.get(group_id, self._forgotten)

    def inspect_consumers(self) -> dict[str, tuple[object, ...]]:
        """Return everything that the records of each consumer group say, by group id, for invariants and tests."""
        return {group_id: group.facts() for group_id, group in self.consumers.items()}

    def inspect(self) -> tuple[dict[str, GroupRecord], dict[str, Offsets], dict[int, dict[str, Offsets]]]:
        """Return copies of groups, offsets and pending offsets, for comparisons with the log."""
        return (
            dict(self.groups),
            {group: dict(found) for group, found in self.offsets.items()},
            {pid: {g: dict(found) for g, found in groups.items()} for pid, groups in self.pending.items()},
        )
