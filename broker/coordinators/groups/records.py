"""Encodes and decodes records of __consumer_offsets in Kafka's format: a key for each group, and a key for each
committed offset.
"""

from __future__ import annotations

from typing import Final

from squall.broker.coordinators.groups.consumer import records as of_consumers
from squall.broker.coordinators.groups.values import (
    NO_TIME,
    GroupLogRecord,
    GroupMetadataRecord,
    GroupRecord,
    MemberRecord,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from squall.broker.protocol.coordinator_frame import decode_group_record, encode_key, encode_versioned
from squall.broker.protocol.schema.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

GROUP_VERSION: Final = 3
OFFSET_VERSION: Final = 4
"""Is the version of an offset's record value that Kafka 4.3 writes: the first version that holds the topic id."""
EXPIRING_VERSION: Final = 1
"""Is the version of an offset's record value that is written for an offset with its own expiration time. No other
version holds this time.
"""


def encode(written: GroupLogRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record; the value is None for a tombstone."""
    if isinstance(written, GroupMetadataRecord):
        key = encode_key(GroupMetadataKey(group=written.group_id))
        return key, None if written.group is None else encode_versioned(_of_group(written.group), GROUP_VERSION)
    if not isinstance(written, OffsetCommitRecord):
        return of_consumers.encode(written)
    topic, index = written.partition
    key = encode_key(OffsetCommitKey(group=written.group_id, topic=topic, partition=index))
    found = written.committed
    if found is None:
        return key, None
    value = OffsetCommitValue(
        found.offset, found.leader_epoch, found.metadata, found.committed_ms, found.expires_ms, found.topic_id
    )
    return key, encode_versioned(value, OFFSET_VERSION if found.expires_ms == NO_TIME else EXPIRING_VERSION)


def _of_group(group: GroupRecord) -> GroupMetadataValue:
    members = [
        MemberMetadata(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.rebalance_ms,
            m.session_ms,
            m.subscription,
            m.assignment,
        )
        for m in group.members
    ]
    return GroupMetadataValue(
        group.protocol_type, group.generation, group.protocol, group.leader, group.since_ms, members
    )


def decode(key: bytes, value: bytes | None) -> GroupLogRecord | None:
    """Return the decoded record, or None for an unknown record type. Raises only MalformedFrame."""
    found = decode_group_record(key, value)
    if found is None:
        return None
    named, wire = found
    if isinstance(named, GroupMetadataKey):
        assert wire is None or isinstance(wire, GroupMetadataValue)
        return GroupMetadataRecord(named.group, None if wire is None else _to_group(wire))
    if isinstance(named, OffsetCommitKey):
        assert wire is None or isinstance(wire, OffsetCommitValue)
        committed = None if wire is None else _to_committed(wire)
        return OffsetCommitRecord(named.group, (named.topic, named.partition), committed)
    return of_consumers.decode(named, wire)


def _to_committed(wire: OffsetCommitValue) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        wire.offset, wire.leader_epoch, wire.metadata, wire.commit_timestamp, wire.expire_timestamp, wire.topic_id
    )


def _to_group(wire: GroupMetadataValue) -> GroupRecord:
    members = tuple(
        MemberRecord(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            # Version 0 of the record has one time-out for session and rebalance.
            m.rebalance_timeout if m.rebalance_timeout > 0 else m.session_timeout,
            m.session_timeout,
            bytes(m.subscription),
            bytes(m.assignment),
        )
        for m in wire.members
    )
    return GroupRecord(
        wire.protocol_type, wire.generation, wire.protocol, wire.leader, wire.current_state_timestamp, members
    )
