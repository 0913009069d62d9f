"""Records of the metadata log and of the coordinators' logs, byte by byte."""

from __future__ import annotations

import pytest

from squall.broker.protocol import coordinator_frame, metadata_frame
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema import consumer_protocol, control_records, group_records, metadata_records
from squall.broker.protocol.schema import transaction_records as txn
from squall.broker.protocol.wire import Message

TOPIC_ID = bytes(range(16))


def test_a_feature_level_record_has_kafkas_bytes() -> None:
    record = metadata_records.FeatureLevelRecord("metadata.version", 20)
    raw = metadata_frame.encode_metadata_record(record, 0)
    assert raw == b"\x01\x0c\x00\x11metadata.version\x00\x14\x00"
    assert metadata_frame.decode_metadata_record(raw) == record


def test_a_partition_record_has_kafkas_bytes() -> None:
    record = metadata_records.PartitionRecord(
        partition_id=1, topic_id=TOPIC_ID, replicas=[2], isr=[2], leader=2, leader_epoch=3, partition_epoch=4
    )
    head, lists = "01 03 00 00000001 000102030405060708090a0b0c0d0e0f", "02 00000002 02 00000002 01 01"
    raw = metadata_frame.encode_metadata_record(record, 0)
    assert raw == bytes.fromhex(f"{head} {lists} 00000002 00000003 00000004 00")


def test_a_partition_change_carries_only_what_changed() -> None:
    change = metadata_records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[], leader=-1)
    raw = metadata_frame.encode_metadata_record(change, 2)
    assert raw[3 + 20 :] == bytes.fromhex("02 00 01 01 01 04 ffffffff")
    assert metadata_frame.decode_metadata_record(raw) == change


def test_tags_are_written_in_ascending_order() -> None:
    change = metadata_records.PartitionChangeRecord(
        directories=[TOPIC_ID], last_known_elr=[3], eligible_leader_replicas=[2], isr=[1]
    )
    raw = metadata_frame.encode_metadata_record(change, 2)
    parts = [b"\0\x05", b"\6\5", b"\7\5", b"\x08\x11"]  # tag and size
    assert sorted(parts, key=raw.index) == parts
    assert metadata_frame.decode_metadata_record(raw) == change


@pytest.mark.parametrize("found", metadata_frame.METADATA_RECORDS.values(), ids=lambda found: found.__name__)
def test_every_metadata_record_is_read_as_it_is_written(found: type[Message]) -> None:
    for version in range(found.MAX_VERSION + 1):
        raw = metadata_frame.encode_metadata_record(found(), version)
        assert metadata_frame.decode_metadata_record(raw) == found()


def test_metadata_records_have_kafkas_keys() -> None:
    keys = {found.__name__: key for key, found in metadata_frame.METADATA_RECORDS.items()}
    assert keys == {
        "RegisterBrokerRecord": 0,
        "UnregisterBrokerRecord": 1,
        "TopicRecord": 2,
        "PartitionRecord": 3,
        "ConfigRecord": 4,
        "PartitionChangeRecord": 5,
        "FenceBrokerRecord": 7,
        "UnfenceBrokerRecord": 8,
        "RemoveTopicRecord": 9,
        "DelegationTokenRecord": 10,
        "UserScramCredentialRecord": 11,
        "FeatureLevelRecord": 12,
        "ClientQuotaRecord": 14,
        "ProducerIdsRecord": 15,
        "BrokerRegistrationChangeRecord": 17,
        "AccessControlEntryRecord": 18,
        "RemoveAccessControlEntryRecord": 19,
        "NoOpRecord": 20,
        "ZkMigrationStateRecord": 21,
        "RemoveUserScramCredentialRecord": 22,
        "BeginTransactionRecord": 23,
        "EndTransactionRecord": 24,
        "AbortTransactionRecord": 25,
        "RemoveDelegationTokenRecord": 26,
        "RegisterControllerRecord": 27,
        "ClearElrRecord": 28,
        "UnregisterControllerRecord": 29,
    }


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01",
        b"\x00\x14\x00\x00",
        b"\x02\x14\x00\x00",
        b"\x01\x06\x00\x00",
        b"\x01\x14\x01\x00",
        b"\x01\x14\x00",
        b"\x01\x14\x00\x00\x00",
        b"\x01\xff\xff\xff\xff\x0f\x00\x00",
        b"\x01\x80\x80\x80\x80\x80\x00",
    ],
)
def test_values_that_are_no_metadata_record_are_malformed(value: bytes) -> None:
    with pytest.raises(MalformedFrame):
        metadata_frame.decode_metadata_record(value)


def test_only_metadata_records_are_framed_as_such() -> None:
    with pytest.raises(ValueError, match="no metadata record"):
        metadata_frame.encode_metadata_record(control_records.SnapshotFooterRecord(), 0)


def test_control_records_of_the_quorum_are_read_as_they_are_written() -> None:
    voter = control_records.LeaderChangeMessageVoter
    change = control_records.LeaderChangeMessage(version=1, leader_id=2, voters=[voter(1, TOPIC_ID), voter(2)])
    key, value = metadata_frame.encode_control_record(change, 1)
    assert key == b"\0\0\0\x02"
    assert value[:2] == b"\0\x01"
    assert metadata_frame.decode_control_record(key, value) == (metadata_frame.LEADER_CHANGE, change)
    for kind, found in metadata_frame.CONTROL_RECORDS.items():
        assert metadata_frame.decode_control_record(*metadata_frame.encode_control_record(found())) == (kind, found())


def test_types_of_control_records_that_are_not_the_quorums_have_no_message() -> None:
    assert metadata_frame.decode_control_record(b"\0\0\0\x01", bytes(6)) == (1, None)
    assert metadata_frame.decode_control_record(b"\0\0\0\x63", None) == (99, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0\0", b""),
        (b"\0\0\0\2", None),
        (b"\0\0\0\2", b"\0"),
        (b"\xff\xff\0\2", b"\0\0"),
        (b"\0\0\0\2", b"\xff\xff" + bytes(20)),
    ],
)
def test_control_records_that_are_none_are_malformed(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedFrame):
        metadata_frame.decode_control_record(key, value)


def test_an_offset_commit_has_kafkas_bytes() -> None:
    key = group_records.OffsetCommitKey("g", "t", 3)
    value = group_records.OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    raw = coordinator_frame.encode_key(key), coordinator_frame.encode_versioned(value, 3)
    assert raw[0] == b"\0\x01\0\x01g\0\x01t\0\0\0\x03"
    assert raw[1] == b"\0\x03" + (5).to_bytes(8, "big") + b"\0\0\0\x02\0\x01m" + (9).to_bytes(8, "big")
    assert coordinator_frame.decode_group_record(*raw) == (key, value)
    assert coordinator_frame.decode_group_record(raw[0], None) == (key, None)


@pytest.mark.parametrize("module", (group_records, txn))
def test_every_coordinator_record_is_read_as_it_is_written(module: object) -> None:
    decode = coordinator_frame.decode_transaction_record if module is txn else coordinator_frame.decode_group_record
    names = [name.removesuffix("Key") for name in vars(module) if name.endswith("Key")]
    assert names
    for name in names:
        key, value_class = getattr(module, name + "Key")(), getattr(module, name + "Value")
        for version in range(value_class.MAX_VERSION + 1):
            raw = coordinator_frame.encode_versioned(value_class(), version)
            assert decode(coordinator_frame.encode_key(key), raw) == (key, value_class())


def test_types_of_records_that_are_unknown_are_passed_over() -> None:
    assert coordinator_frame.decode_group_record(b"\0\x63more", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\1", None),
        (b"\0\2\0\1g", b""),
        (b"\0\2\0\1g", b"\xff\xff"),
        (b"\0\2\0\1g", b"\0\3\0"),
    ],
)
def test_coordinator_records_that_are_none_are_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedFrame):
        coordinator_frame.decode_group_record(key, value)


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    # KIP-915: from the flexible version on, only tagged fields are added.
    value = txn.TransactionLogValue(producer_id=4, transaction_partitions=None)
    raw = b"\0\x09" + value.encode(1)
    assert coordinator_frame.decode_versioned(txn.TransactionLogValue, raw) == value


def test_a_subscription_has_the_bytes_that_consumers_exchange() -> None:
    subscription = consumer_protocol.ConsumerProtocolSubscription(topics=["a"], user_data=None)
    raw = coordinator_frame.encode_versioned(subscription, 1)
    assert raw == b"\0\x01\0\0\0\x01\0\x01a\xff\xff\xff\xff\0\0\0\0"
    assert coordinator_frame.decode_versioned(consumer_protocol.ConsumerProtocolSubscription, raw) == subscription
