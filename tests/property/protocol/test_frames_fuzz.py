"""Decoding a header or a log record's frame from random bytes gives a value or MalformedFrame."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall.broker.protocol import coordinator_frame, header, metadata_frame
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema import consumer_protocol, control_records, group_records, metadata_records
from tests.property.protocol.hostile import mutations, noise, truncations
from tests.support.effort import examples

_PARTITION = metadata_records.PartitionRecord(replicas=[1, 2], isr=[1], eligible_leader_replicas=[2])
_VOTERS = control_records.VotersRecord(voters=[control_records.VotersRecordVoter(1)])
_OFFSET = group_records.OffsetCommitValue(offset=1, metadata="m")

READERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "request header": (
        lambda frame: header.decode_request_header(memoryview(frame)),
        header.encode_request(3, 12, 7, "client", b"")[4:],
    ),
    "response header": (
        lambda frame: header.decode_response_header(memoryview(frame), 3, 12),
        header.encode_response_header(3, 12, 7),
    ),
    "metadata record": (
        metadata_frame.decode_metadata_record,
        metadata_frame.encode_metadata_record(_PARTITION, 2),
    ),
    "control record": (
        lambda value: metadata_frame.decode_control_record(b"\0\0\0\x06", value),
        metadata_frame.encode_control_record(_VOTERS)[1],
    ),
    "group record's key": (
        lambda key: coordinator_frame.decode_group_record(key, None),
        coordinator_frame.encode_key(group_records.OffsetCommitKey("g", "t", 1)),
    ),
    "group record's value": (
        lambda value: coordinator_frame.decode_group_record(b"\0\x01\0\x01g\0\x01t\0\0\0\0", value),
        coordinator_frame.encode_versioned(_OFFSET, 4),
    ),
    "subscription": (
        lambda raw: coordinator_frame.decode_versioned(consumer_protocol.ConsumerProtocolSubscription, raw),
        coordinator_frame.encode_versioned(consumer_protocol.ConsumerProtocolSubscription(["a"], b"u"), 1),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_no_beginning_of_a_frame_is_a_frame(name: str) -> None:
    read, frame = READERS[name]
    read(frame)
    for cut in truncations(frame):
        with pytest.raises(MalformedFrame):
            read(cut)


@pytest.mark.parametrize("name", READERS)
def test_hostile_frames_are_malformed_or_values(name: str) -> None:
    read, frame = READERS[name]
    outcomes = set()
    for hostile in (*mutations(frame, examples(400), seed=1), *noise(examples(200), seed=2)):
        try:
            read(hostile)
        except MalformedFrame:
            outcomes.add("malformed")
        else:
            outcomes.add("value")
    assert outcomes == {"malformed", "value"}
