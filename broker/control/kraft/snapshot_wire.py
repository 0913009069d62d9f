"""Encodes and decodes Kafka's FetchSnapshot, by which a node gets a snapshot once the leader's log has dropped the
records that the node lacks (KIP-630).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.names import METADATA_TOPIC
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.header import decode_response_header
from squall.broker.protocol.schema import fetch_snapshot as wire
from squall.broker.quorum.messages import FetchSnapshot, FetchSnapshotReply, SnapshotId

if TYPE_CHECKING:
    from collections.abc import Callable

SNAPSHOT_VERSION = 1
MAX_PIECE_BYTES = 1 << 18
"""Limits the bytes in one response, so that a slow link transfers them in time."""


def encode_request(request: FetchSnapshot, sender: int, cluster_id: str) -> tuple[int, int, bytes]:
    """Return (api key, version, body) of a FetchSnapshot request to another node."""
    asked = wire.FetchSnapshotRequestPartitionSnapshot(
        0,
        request.epoch,
        wire.FetchSnapshotRequestSnapshotId(request.snapshot.end_offset, request.snapshot.epoch),
        request.position,
    )
    topic = wire.FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [asked])
    body = wire.FetchSnapshotRequest(cluster_id, sender, MAX_PIECE_BYTES, [topic])
    return ApiKey.FETCH_SNAPSHOT, SNAPSHOT_VERSION, body.encode(SNAPSHOT_VERSION)


def decode_reply(view: memoryview, error_of: Callable[[int], ErrorCode]) -> FetchSnapshotReply:
    """Decode another node's reply, with bytes copied out of `view`. `error_of` maps a number to its ErrorCode. Raises
    MalformedFrame if the reply is invalid.
    """
    _, at = decode_response_header(view, ApiKey.FETCH_SNAPSHOT, SNAPSHOT_VERSION)
    response, _ = wire.FetchSnapshotResponse.decode(view, at, SNAPSHOT_VERSION)
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise MalformedFrame(f"FetchSnapshot answered with error {response.error_code}")
    part = response.topics[0].partitions[0]
    payload = bytes(part.unaligned_records or b"")
    return FetchSnapshotReply(
        error_of(part.error_code),
        part.current_leader.leader_epoch,
        part.current_leader.leader_id,
        SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.position,
        part.size,
        len(payload),
        payload,
    )


def refusal(request: wire.FetchSnapshotRequest, cluster_id: str) -> ErrorCode | None:
    """Return the error for a request that belongs to another quorum; None if it belongs to this quorum."""
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    topics = request.topics
    if request.replica_id < 0 or len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return ErrorCode.INVALID_REQUEST
    part = topics[0].partitions[0]
    return None if part.partition == 0 and part.position >= 0 else ErrorCode.INVALID_REQUEST


def read_request(request: wire.FetchSnapshotRequest) -> tuple[int, FetchSnapshot]:
    """Return the sender's id, and the FetchSnapshot in the Raft core's form. The request must have passed `refusal`."""
    part = request.topics[0].partitions[0]
    snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
    return request.replica_id, FetchSnapshot(part.current_leader_epoch, snapshot, part.position)


def write_reply(
    reply: FetchSnapshotReply | ErrorCode, piece: tuple[int, bytes] | None = None
) -> wire.FetchSnapshotResponse:
    """Convert the Raft core's reply to FetchSnapshot, or a top-level error, into Kafka's response. `piece`: the size of
    the snapshot and its bytes from the requested position on.
    """
    if isinstance(reply, ErrorCode):
        return wire.FetchSnapshotResponse(error_code=int(reply))
    size, data = piece if piece is not None else (-1, b"")
    part = wire.FetchSnapshotResponsePartitionSnapshot(
        0,
        int(reply.error),
        wire.FetchSnapshotResponseSnapshotId(reply.snapshot.end_offset, reply.snapshot.epoch),
        wire.LeaderIdAndEpoch(reply.leader_id, reply.epoch),
        size,
        reply.position,
        data,
    )
    return wire.FetchSnapshotResponse(topics=[wire.FetchSnapshotResponseTopicSnapshot(METADATA_TOPIC, [part])])
