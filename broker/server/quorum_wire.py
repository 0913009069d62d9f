"""The quorum's messages in Kafka's own requests: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch of the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode, MalformedFrame
from broker.protocol.header import decode_response_header
from broker.protocol.hot import FetchIn, FetchPartOut, decode_fetch_response, encode_fetch_request
from broker.protocol.records import batches
from broker.protocol.schema import begin_quorum_epoch, end_quorum_epoch, vote
from broker.quorum.messages import (
    HIGH_WATERMARK_IRRELEVANT,
    NOBODY,
    BeginEpoch,
    BeginEpochReply,
    Diverging,
    EndEpoch,
    EndEpochReply,
    Fetch,
    FetchReply,
    Span,
    Vote,
    VoteReply,
)

if TYPE_CHECKING:
    from broker.log.slices import FileSlice
    from broker.quorum.messages import Reply, Request

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
VOTE_VERSION, EPOCH_VERSION, FETCH_VERSION = 2, 1, 18
MAX_BYTES = 8 << 20


# ------------------------------------------------------------------------------------------------ asking other nodes


def encode_request(request: Request, sender: int, receiver: int, cluster_id: str) -> tuple[int, int, bytes]:
    """(api key, version, body) of a request to another node."""
    match request:
        case Vote():
            asked = vote.VoteRequestPartitionData(
                replica_epoch=request.epoch,
                replica_id=sender,
                last_offset_epoch=request.last_epoch,
                last_offset=request.end_offset,
                pre_vote=request.pre_vote,
            )
            voting = vote.VoteRequestTopicData(METADATA_TOPIC, [asked])
            return ApiKey.VOTE, VOTE_VERSION, vote.VoteRequest(cluster_id, receiver, [voting]).encode(VOTE_VERSION)
        case BeginEpoch():
            begun = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
                leader_id=sender, leader_epoch=request.epoch
            )
            beginning = begin_quorum_epoch.BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [begun])
            begin = begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id, receiver, [beginning])
            return ApiKey.BEGIN_QUORUM_EPOCH, EPOCH_VERSION, begin.encode(EPOCH_VERSION)
        case EndEpoch():
            candidates = [end_quorum_epoch.ReplicaInfo(candidate_id=each) for each in request.successors]
            ended = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
                leader_id=sender, leader_epoch=request.epoch, preferred_candidates=candidates
            )
            ending = end_quorum_epoch.EndQuorumEpochRequestTopicData(METADATA_TOPIC, [ended])
            end = end_quorum_epoch.EndQuorumEpochRequest(cluster_id, [ending])
            return ApiKey.END_QUORUM_EPOCH, EPOCH_VERSION, end.encode(EPOCH_VERSION)
        case Fetch():
            return ApiKey.FETCH, FETCH_VERSION, _encode_fetch(request, sender, cluster_id)


def _encode_fetch(request: Fetch, sender: int, cluster_id: str) -> bytes:
    high_watermark = request.high_watermark
    part = (0, request.epoch, request.offset, request.last_epoch, 0, MAX_BYTES, high_watermark)
    asked = FetchIn(
        sender, -1, request.max_wait_ms, 1, MAX_BYTES, 0, 0, -1, cluster_id, [(METADATA_TOPIC_ID, [part])], [], ""
    )
    return encode_fetch_request(asked, FETCH_VERSION)


def decode_reply(request: Request, view: memoryview) -> Reply:
    """What another node answered, records copied out of `view`. MalformedFrame for what is no such answer."""
    match request:
        case Vote():
            answer = _only(vote.VoteResponse, ApiKey.VOTE, VOTE_VERSION, view)
            return VoteReply(_error(answer), answer.leader_epoch, answer.leader_id, answer.vote_granted)
        case BeginEpoch():
            kind = begin_quorum_epoch.BeginQuorumEpochResponse
            answer = _only(kind, ApiKey.BEGIN_QUORUM_EPOCH, EPOCH_VERSION, view)
            return BeginEpochReply(_error(answer), answer.leader_epoch, answer.leader_id)
        case EndEpoch():
            answer = _only(end_quorum_epoch.EndQuorumEpochResponse, ApiKey.END_QUORUM_EPOCH, EPOCH_VERSION, view)
            return EndEpochReply(_error(answer), answer.leader_epoch, answer.leader_id)
        case Fetch():
            return _decode_fetch_reply(request, view)


def _only(kind: Any, api_key: int, version: int, view: memoryview) -> Any:
    """The one partition of a response."""
    _, at = decode_response_header(view, api_key, version)
    response, _ = kind.decode(view, at, version)
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise MalformedFrame(f"{kind.__name__} with error {response.error_code} and {len(response.topics)} topics")
    return response.topics[0].partitions[0]


def _error(answer: Any) -> ErrorCode:
    try:
        return ErrorCode(answer.error_code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _decode_fetch_reply(request: Fetch, view: memoryview) -> FetchReply:
    _, at = decode_response_header(view, ApiKey.FETCH, FETCH_VERSION)
    response = decode_fetch_response(view, at, FETCH_VERSION)
    if response.error or len(response.topics) != 1 or len(response.topics[0][1]) != 1:
        raise MalformedFrame(f"Fetch of the metadata log answered with error {response.error}")
    part = response.topics[0][1][0]
    leader_id, epoch = part.current_leader or (NOBODY, -1)
    payload = bytes(part.records or b"")
    records = memoryview(payload)
    spans = [(h, end) for h, _, end in batches(records)]
    return FetchReply(
        ErrorCode(part.error),
        epoch,
        leader_id,
        part.high_watermark,
        max(part.log_start_offset, 0),
        Diverging(*part.diverging) if part.diverging is not None else None,
        Diverging(part.snapshot_id[1], part.snapshot_id[0]) if part.snapshot_id is not None else None,
        request.offset,
        request.offset,
        tuple(Span(h.base_offset, h.base_offset + h.last_offset_delta + 1, h.leader_epoch) for h, _ in spans),
        payload[: spans[-1][1]] if spans else b"",
    )


# ----------------------------------------------------------------------------------------------- being asked by them


def read_vote(request: vote.VoteRequest) -> tuple[int, Vote] | None:
    """(sender, message); None where it is not about the metadata log."""
    part = _metadata_part(request)
    if part is None:
        return None
    return part.replica_id, Vote(part.replica_epoch, part.last_offset_epoch, part.last_offset, part.pre_vote)


def read_begin(request: begin_quorum_epoch.BeginQuorumEpochRequest) -> tuple[int, BeginEpoch] | None:
    """As `read_vote`."""
    part = _metadata_part(request)
    return None if part is None else (part.leader_id, BeginEpoch(part.leader_epoch))


def read_end(request: end_quorum_epoch.EndQuorumEpochRequest) -> tuple[int, EndEpoch] | None:
    """As `read_vote`; either form of the successors."""
    part = _metadata_part(request)
    if part is None:
        return None
    named = tuple(each.candidate_id for each in part.preferred_candidates) or tuple(part.preferred_successors)
    return part.leader_id, EndEpoch(part.leader_epoch, named)


def read_fetch(request: FetchIn) -> tuple[int, Fetch] | None:
    """As `read_vote`; None also for a consumer."""
    if request.replica_id < 0 or len(request.topics) != 1 or len(request.topics[0][1]) != 1:
        return None
    index, epoch, offset, last_epoch, _, _, high_watermark = request.topics[0][1][0]
    if index != 0 or offset < 0:
        return None
    known = min(high_watermark, HIGH_WATERMARK_IRRELEVANT)
    return request.replica_id, Fetch(epoch, offset, max(last_epoch, 0), known, max(request.max_wait_ms, 0))


def _metadata_part(request: Any) -> Any:
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return None
    part = topics[0].partitions[0]
    return part if part.partition_index == 0 else None


def write_vote(reply: VoteReply) -> vote.VoteResponse:
    """The response to Vote."""
    part = vote.VoteResponsePartitionData(0, int(reply.error), reply.leader_id, reply.epoch, reply.granted)
    return vote.VoteResponse(0, [vote.VoteResponseTopicData(METADATA_TOPIC, [part])])


def write_begin(reply: BeginEpochReply) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    """The response to BeginQuorumEpoch."""
    part = begin_quorum_epoch.BeginQuorumEpochResponsePartitionData(0, int(reply.error), reply.leader_id, reply.epoch)
    topic = begin_quorum_epoch.BeginQuorumEpochResponseTopicData(METADATA_TOPIC, [part])
    return begin_quorum_epoch.BeginQuorumEpochResponse(0, [topic])


def write_end(reply: EndEpochReply) -> end_quorum_epoch.EndQuorumEpochResponse:
    """The response to EndQuorumEpoch."""
    part = end_quorum_epoch.EndQuorumEpochResponsePartitionData(0, int(reply.error), reply.leader_id, reply.epoch)
    topic = end_quorum_epoch.EndQuorumEpochResponseTopicData(METADATA_TOPIC, [part])
    return end_quorum_epoch.EndQuorumEpochResponse(0, [topic])


def write_fetch(reply: FetchReply, records: FileSlice | None) -> FetchPartOut:
    """The one partition of a response to Fetch."""
    diverging = (reply.diverging.epoch, reply.diverging.end_offset) if reply.diverging is not None else None
    snapshot = (reply.snapshot.end_offset, reply.snapshot.epoch) if reply.snapshot is not None else None
    return FetchPartOut(
        index=0,
        error=int(reply.error),
        high_watermark=reply.high_watermark,
        last_stable_offset=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        records=records if records is not None else b"",
        diverging=diverging,
        current_leader=(reply.leader_id, reply.epoch),
        snapshot_id=snapshot,
    )
