"""Varints, tagged fields, and what a message does with fields that a version lacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall.broker.protocol import hot, wire
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema import alter_partition, fetch, metadata, produce, vote
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.heartbeat import HeartbeatRequest
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


@pytest.mark.parametrize("value", (0, 1, 127, 128, 300, 16383, 16384, (1 << 31) - 1, (1 << 32) - 1))
def test_varints_are_read_as_they_are_written(value: int) -> None:
    raw = memoryview(wire.UVARINT[value] + b"\xff")
    found, at = (raw[0], 1) if raw[0] < 128 else wire.more(raw, 1, raw[0])
    assert (found, at) == (value, len(raw) - 1)


def test_no_negative_number_is_an_unsigned_varint() -> None:
    with pytest.raises(ValueError, match="-1"):
        wire.UVARINT[-1]


def test_a_varint_has_five_bytes_at_most() -> None:
    assert wire.more(memoryview(b"\xff\xff\xff\xff\x0f"), 1, 0xFF) == ((1 << 32) - 1, 5)
    with pytest.raises(MalformedFrame, match="five"):
        wire.more(memoryview(b"\x80\x80\x80\x80\x80\x00"), 1, 0x80)


@pytest.mark.parametrize("length", [wire.LONGEST_STRING, wire.LONGEST_STRING + 1])
def test_a_string_is_no_longer_than_every_version_can_say(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_STRING_LENGTH", wire.UVARINT)  # as somebody who writes longer ones
    name = "x" * length
    for message, version in (
        (HeartbeatRequest(name), 4),
        (HeartbeatRequest("g", group_instance_id=name), 4),
        (DescribeGroupsRequest(["g", name]), 5),
    ):
        raw = memoryview(message.encode(version))
        if length <= wire.LONGEST_STRING:
            assert type(message).decode(raw, 0, version)[0] == message
        else:
            with pytest.raises(MalformedFrame, match="a string of 32768 bytes"):
                type(message).decode(raw, 0, version)
    produced = produce.ProduceRequest(transactional_id=name, topic_data=[produce.TopicProduceData(name=name)])
    for request in (produced, produced.replace(transactional_id=None)):
        raw = memoryview(request.encode(9))
        if length <= wire.LONGEST_STRING:
            assert hot.decode_produce(raw, 0, 9).topics[0][0] == name.encode()
        else:
            with pytest.raises(MalformedFrame, match="a string of 32768 bytes"):
                hot.decode_produce(raw, 0, 9)


@pytest.mark.parametrize("of", [wire.compact_string, wire.compact_nullable_string])
def test_a_string_that_nobody_can_read_is_not_written(of: Callable[[str], bytes]) -> None:
    assert of("") == b"\x01"
    assert of("a" * wire.LONGEST_STRING) == wire.UVARINT[wire.LONGEST_STRING + 1] + b"a" * wire.LONGEST_STRING
    with pytest.raises(ValueError, match="a string of 32768 bytes"):
        of("\u00e4" * 0x4000)


def test_the_body_that_ends_other_codecs_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="4294967294 elements"):
        MetadataRequest.decode(memoryview(b"\xff\xff\xff\xff\x0f"), 0, 12)


def test_unknown_tagged_fields_are_passed_over() -> None:
    raw = MetadataRequest(topics=None).encode(12)
    assert raw.endswith(b"\0")
    tagged = raw[:-1] + b"\x02\x07\x03abc\xff\x01\x00"
    assert MetadataRequest.decode(memoryview(tagged), 0, 12) == (MetadataRequest(topics=None), len(tagged))


def test_a_known_tagged_field_must_fill_its_size() -> None:
    raw = fetch.FetchRequest(cluster_id="abc").encode(12)
    assert raw.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(MalformedFrame, match="fill"):
        fetch.FetchRequest.decode(memoryview(raw[:-5] + b"\x05\x04abc\0"), 0, 12)


def test_a_field_with_its_default_is_left_out_where_a_version_lacks_it() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert request.encode(0) == b"\0\0\0\x01\0\x01t"


def test_a_field_with_a_value_is_refused_where_a_version_lacks_it() -> None:
    with pytest.raises(ValueError, match="include_topic_authorized_operations"):
        MetadataRequest(include_topic_authorized_operations=True).encode(7)
    with pytest.raises(ValueError, match="new_isr"):
        alter_partition.AlterPartitionRequest(
            topics=[
                alter_partition.AlterPartitionRequestTopicData(
                    partitions=[alter_partition.AlterPartitionRequestPartitionData(new_isr=[1])]
                )
            ]
        ).encode(3)


def test_an_ignorable_field_is_left_out_where_a_version_lacks_it() -> None:
    response = MetadataResponse(throttle_time_ms=5, cluster_id="c", controller_id=3)
    assert MetadataResponse.decode(memoryview(response.encode(0)), 0, 0)[0] == MetadataResponse()
    assert MetadataResponse.decode(memoryview(response.encode(3)), 0, 3)[0] == response


def test_fields_that_a_version_lacks_have_their_defaults_after_reading() -> None:
    decoded, _ = fetch.FetchRequest.decode(memoryview(fetch.FetchRequest(max_wait_ms=1).encode(4)), 0, 4)
    assert decoded == fetch.FetchRequest(max_wait_ms=1)
    assert (decoded.session_epoch, decoded.replica_id, decoded.rack_id) == (-1, -1, "")


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 0),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9),
        (MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short", name=None)]), 12),
        (MetadataResponse(throttle_time_ms=1 << 31), 9),
        (MetadataResponse(cluster_id="x" * 40_000), 8),
        (MetadataResponse(cluster_id="\ud800"), 9),
        (MetadataResponse(brokers=[None]), 9),  # type: ignore[list-item]
        (MetadataRequest(), 99),
        (MetadataRequest(), -1),
    ],
)
def test_values_that_the_wire_has_no_form_for_are_refused(message: wire.Message, version: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        message.encode(version)


def test_no_two_messages_share_a_default_list() -> None:
    MetadataResponse().brokers.append(metadata.MetadataResponseBroker())
    assert MetadataResponse().brokers == []
    assert produce.ProduceResponse().responses is not produce.ProduceResponse().responses


def test_messages_compare_by_value_and_show_their_fields() -> None:
    topic = MetadataRequestTopic(name="t")
    assert MetadataRequest([topic]) == MetadataRequest([MetadataRequestTopic(name="t")])
    assert MetadataRequest([topic]) != MetadataRequest([])
    assert MetadataRequest([topic]) != "MetadataRequest"
    assert "name='t'" in repr(MetadataRequest([topic]))
    assert topic.replace(name="u") == MetadataRequestTopic(name="u")
    with pytest.raises(TypeError):
        topic.replace(nme="u")
    with pytest.raises(TypeError):
        hash(topic)
    with pytest.raises(AttributeError):
        topic.nme = "u"  # type: ignore[attr-defined]


def test_structures_of_one_name_in_request_and_response_stay_apart() -> None:
    assert vote.VoteRequestTopicData is not vote.VoteResponseTopicData
    assert not hasattr(vote, "TopicData")


def test_records_are_views_of_what_was_received() -> None:
    part = produce.PartitionProduceData(index=0, records=b"batch")
    raw = bytearray(produce.ProduceRequest(topic_data=[produce.TopicProduceData("t", partition_data=[part])]).encode(9))
    request, _ = produce.ProduceRequest.decode(memoryview(raw), 0, 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:1] = b"B"
    assert b"Batch" in raw
