"""The quorum's messages survive the conversion to Kafka's requests and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.broker.control.kraft import quorum_wire as wire
from squall.broker.control.kraft import snapshot_wire
from squall.broker.protocol.apis import ApiKey, request_class
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.header import encode_response_header
from squall.broker.protocol.hot import decode_fetch
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.quorum.messages import (
    BatchSpan,
    BeginEpoch,
    BeginEpochReply,
    Diverging,
    EndEpoch,
    EndEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Reply,
    Request,
    SnapshotId,
    Vote,
    VoteReply,
)

ids = st.integers(0, 1 << 31 - 1)
leaders = st.integers(-1, 1 << 20)
epochs = st.integers(0, (1 << 31) - 1)
offsets = st.integers(0, 1 << 62)
errors = st.sampled_from(ErrorCode)
snapshots = st.builds(SnapshotId, offsets, epochs)
requests = st.one_of(
    st.builds(FetchSnapshot, epochs, snapshots, offsets),
    st.builds(Vote, epochs, epochs, offsets, st.booleans()),
    st.builds(BeginEpoch, epochs),
    st.builds(EndEpoch, epochs, st.lists(ids, max_size=5).map(tuple)),
    st.builds(Fetch, epochs, offsets, epochs, offsets, st.integers(0, 60_000)),
)
diverging = st.none() | st.builds(Diverging, epochs, offsets)
READ: dict[ApiKey, Callable[[Any], tuple[int, Request]]] = {
    ApiKey.VOTE: wire.read_vote,
    ApiKey.BEGIN_QUORUM_EPOCH: wire.read_begin,
    ApiKey.END_QUORUM_EPOCH: wire.read_end,
}


def heard(request: Request, sender: int, cluster_id: str | None = "c") -> tuple[int, Request]:
    """Encode a message as a request to node 2 of cluster "c", and return what that node decodes."""
    api_key, version, body = wire.encode_request(request, sender, 2, cluster_id or "")
    if api_key == ApiKey.FETCH:
        fetch = decode_fetch(memoryview(body), 0, version)
        assert wire.fetch_refusal(fetch, "c") is None
        return wire.read_fetch(fetch)
    message: Any = request_class(api_key).decode(memoryview(body), 0, version)[0]
    if api_key == ApiKey.FETCH_SNAPSHOT:
        assert snapshot_wire.refusal(message, "c") is None
        return snapshot_wire.read_request(message)
    assert wire.refusal(message, "c", 2) is None
    return READ[ApiKey(api_key)](message)


def answered(request: Request, reply: Reply) -> Reply:
    """Encode a reply as the response to a request, and return what the requester decodes."""
    match reply:
        case VoteReply():
            key, version, body = ApiKey.VOTE, wire.VOTE_VERSION, wire.write_vote(reply).encode(wire.VOTE_VERSION)
        case BeginEpochReply():
            version = wire.EPOCH_VERSION
            key, body = ApiKey.BEGIN_QUORUM_EPOCH, wire.write_begin(reply).encode(version)
        case EndEpochReply():
            version = wire.EPOCH_VERSION
            key, body = ApiKey.END_QUORUM_EPOCH, wire.write_end(reply).encode(version)
        case FetchReply():
            version = wire.FETCH_VERSION
            records: Any = reply.payload
            key, body = ApiKey.FETCH, b"".join(map(bytes, wire.write_fetch(version, reply, records)))
        case FetchSnapshotReply():
            version, piece = snapshot_wire.SNAPSHOT_VERSION, (reply.size, reply.payload)
            key, body = ApiKey.FETCH_SNAPSHOT, snapshot_wire.write_reply(reply, piece).encode(version)  # type: ignore[arg-type]
    return wire.decode_reply(request, memoryview(encode_response_header(key, version, 5) + body))


@given(requests, ids)
def test_request_arrives_as_it_was_sent(request: Request, sender: int) -> None:
    assert heard(request, sender) == (sender, request)


@given(errors, epochs, leaders, st.booleans())
def test_reply_arrives_as_it_was_given(error: ErrorCode, epoch: int, leader_id: int, granted: bool) -> None:
    vote = VoteReply(error, epoch, leader_id, granted)
    assert answered(Vote(1, 1, 1, False), vote) == vote
    begun = BeginEpochReply(error, epoch, leader_id)
    assert answered(BeginEpoch(1), begun) == begun
    ended = EndEpochReply(error, epoch, leader_id)
    assert answered(EndEpoch(1, ()), ended) == ended


@given(errors, epochs, leaders, offsets, diverging, st.none() | snapshots)
def test_fetch_reply_arrives_as_it_was_given(
    error: ErrorCode,
    epoch: int,
    leader_id: int,
    high_watermark: int,
    apart: Diverging | None,
    snapshot: SnapshotId | None,
) -> None:
    reply = FetchReply(error, epoch, leader_id, high_watermark, 3, apart, snapshot, 7, 7, (), b"")
    assert answered(Fetch(1, 7, 1, 0, 500), reply) == reply


@given(errors, epochs, leaders, snapshots, offsets, st.binary(max_size=100))
def test_a_piece_of_a_snapshot_arrives_as_it_was_given(
    error: ErrorCode, epoch: int, leader_id: int, snapshot: SnapshotId, position: int, data: bytes
) -> None:
    reply = FetchSnapshotReply(error, epoch, leader_id, snapshot, position, position + 5, len(data), data)
    assert answered(FetchSnapshot(epoch, snapshot, position), reply) == reply


def batch(base_offset: int, count: int, epoch: int) -> bytes:
    records = [Record(base_offset + number, 0, None, b"x") for number in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)


def with_records(records: bytes) -> FetchReply:
    found = answered(Fetch(5, 7, 1, 0, 500), FetchReply(ErrorCode.NONE, 5, 1, 3, offset=7, limit=99, payload=records))
    assert isinstance(found, FetchReply)
    return found


def test_batches_are_told_apart_and_a_cut_off_one_is_left() -> None:
    whole = batch(7, 2, 4) + batch(9, 1, 5)
    found = with_records(whole + batch(10, 3, 5)[:-1])
    assert found.spans == (BatchSpan(7, 9, 4), BatchSpan(9, 10, 5))
    assert found.payload == whole


def test_damaged_batch_is_not_taken_in() -> None:
    damaged = bytearray(batch(7, 2, 4))
    damaged[-1] ^= 1
    with pytest.raises(MalformedFrame, match="CRC"):
        with_records(bytes(damaged))


def test_node_of_another_cluster_is_refused() -> None:
    for request in (Vote(1, 1, 1, False), BeginEpoch(1), EndEpoch(1, ()), Fetch(1, 0, 0, 0, 500)):
        with pytest.raises(AssertionError):
            heard(request, 1, "another")


def test_refused_request_has_no_reply() -> None:
    body = wire.write_vote(ErrorCode.INCONSISTENT_CLUSTER_ID).encode(wire.VOTE_VERSION)
    frame = encode_response_header(ApiKey.VOTE, wire.VOTE_VERSION, 5) + body
    with pytest.raises(MalformedFrame, match="104"):
        wire.decode_reply(Vote(1, 1, 1, False), memoryview(frame))
