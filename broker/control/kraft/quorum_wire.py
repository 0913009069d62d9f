"""Encodes and decodes the quorum's messages as Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch and Fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.cluster.names import METADATA_TOPIC, METADATA_TOPIC_ID
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.header import decode_response_header
from squall.broker.protocol.hot import (
    FetchIn,
    FetchRequestPartition,
    FetchResponsePartition,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.records import batches, check_crc
from squall.broker.protocol.schema import begin_quorum_epoch, describe_quorum, end_quorum_epoch, vote
from squall.broker.quorum.messages import (
    HIGH_WATERMARK_IRRELEVANT,
    BatchSpan,
    BeginEpoch,
    BeginEpochReply,
    Diverging,
    EndEpoch,
    EndEpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    SnapshotId,
    Vote,
    VoteReply,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from squall.broker.config.settings import NodeAddress
    from squall.broker.log.slices import FileSlice
    from squall.broker.quorum.leadership import ReplicaState
    from squall.broker.quorum.messages import Reply, Request
    from squall.broker.quorum.raft import Raft

VOTE_VERSION, EPOCH_VERSION, FETCH_VERSION = 2, 1, 18
MAX_BYTES = 1 << 20
"""Limits the bytes of one Fetch of the metadata log (at least one batch), so that a slow link transfers them in time.
"""


# ------------------------------------------------------------------------------------------------ asking other nodes


def encode_request(request: Request, sender: int, receiver: int, cluster_id: str) -> tuple[int, int, bytes]:
    """Return (api key, version, body) of a request to another node."""
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
        case FetchSnapshot():
            from squall.broker.control.kraft import snapshot_wire  # rarely needed

            return snapshot_wire.encode_request(request, sender, cluster_id)


def _encode_fetch(request: Fetch, sender: int, cluster_id: str) -> bytes:
    high_watermark = request.high_watermark
    part = FetchRequestPartition(0, request.epoch, request.offset, request.last_epoch, 0, MAX_BYTES, high_watermark)
    # Session 0 and session epoch -1: without a fetch session, as there is only one partition.
    asked = FetchIn(
        sender, -1, request.max_wait_ms, 1, MAX_BYTES, 0, 0, -1, cluster_id, [(METADATA_TOPIC_ID, [part])], [], ""
    )
    return encode_fetch_request(asked, FETCH_VERSION)


def decode_reply(request: Request, view: memoryview) -> Reply:
    """Decode another node's reply, with records copied out of `view`. Raises MalformedFrame if it does not fit the
    request.
    """
    match request:
        case Vote():
            answer = _only(vote.VoteResponse, ApiKey.VOTE, VOTE_VERSION, view)
            return VoteReply(_error(answer.error_code), answer.leader_epoch, answer.leader_id, answer.vote_granted)
        case BeginEpoch():
            kind = begin_quorum_epoch.BeginQuorumEpochResponse
            answer = _only(kind, ApiKey.BEGIN_QUORUM_EPOCH, EPOCH_VERSION, view)
            return BeginEpochReply(_error(answer.error_code), answer.leader_epoch, answer.leader_id)
        case EndEpoch():
            answer = _only(end_quorum_epoch.EndQuorumEpochResponse, ApiKey.END_QUORUM_EPOCH, EPOCH_VERSION, view)
            return EndEpochReply(_error(answer.error_code), answer.leader_epoch, answer.leader_id)
        case Fetch():
            return _decode_fetch_reply(request, view)
        case FetchSnapshot():
            from squall.broker.control.kraft import snapshot_wire

            return snapshot_wire.decode_reply(view, _error)


def _only(kind: Any, api_key: int, version: int, view: memoryview) -> Any:
    """Decode a response of class `kind`, and return the data of its only partition. Raises MalformedFrame if the
    response has an error, or not exactly one partition.
    """
    _, at = decode_response_header(view, api_key, version)
    response, _ = kind.decode(view, at, version)
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise MalformedFrame(f"{kind.__name__} with error {response.error_code} and {len(response.topics)} topics")
    return response.topics[0].partitions[0]


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _decode_fetch_reply(request: Fetch, view: memoryview) -> FetchReply:
    _, at = decode_response_header(view, ApiKey.FETCH, FETCH_VERSION)
    response = decode_fetch_response(view, at, FETCH_VERSION)
    if response.error or len(response.topics) != 1 or len(response.topics[0][1]) != 1:
        raise MalformedFrame(f"Fetch of the metadata log answered with error {response.error}")
    part = response.topics[0][1][0]
    leader_id, epoch = part.current_leader or (NO_NODE, -1)
    payload = bytes(part.records or b"")
    spans, end = _spans(memoryview(payload))
    return FetchReply(
        _error(part.error),
        epoch,
        leader_id,
        part.high_watermark,
        max(part.log_start_offset, 0),
        Diverging(*part.diverging) if part.diverging is not None else None,
        SnapshotId(*part.snapshot_id) if part.snapshot_id is not None else None,
        request.offset,
        request.offset,
        spans,
        payload[:end],
    )


def _spans(records: memoryview) -> tuple[tuple[BatchSpan, ...], int]:
    """Return the spans of the complete batches in a Fetch response, and the position at which their bytes end.

    Raises MalformedFrame if the CRC of a batch is wrong. The leader sends the bytes from its log file. If it truncates
    the log while it sends, they may be bytes of other batches.
    """
    spans, stop = [], 0
    for header, start, stop in batches(records):
        if not check_crc(records, start, stop):
            raise MalformedFrame(f"the batch at offset {header.base_offset} of the metadata log has a wrong CRC")
        spans.append(BatchSpan(header.base_offset, header.next_offset, header.leader_epoch))
    return tuple(spans), stop


# ----------------------------------------------------------------------------------------------- being asked by them


def refusal(request: Any, cluster_id: str, node_id: int) -> ErrorCode | None:
    """Return the error for a Vote, BeginQuorumEpoch or EndQuorumEpoch that another quorum or voter should have got;
    None if the request belongs here.
    """
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if getattr(request, "voter_id", NO_NODE) not in (NO_NODE, node_id):
        return ErrorCode.INVALID_VOTER_KEY  # Otherwise a voter at a wrong address would be counted twice.
    topics = request.topics
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC or len(topics[0].partitions) != 1:
        return ErrorCode.INVALID_REQUEST
    return None if topics[0].partitions[0].partition_index == 0 else ErrorCode.INVALID_REQUEST


def fetch_refusal(request: FetchIn, cluster_id: str) -> ErrorCode | None:
    """Return the error for a Fetch that belongs to another quorum or comes from a consumer; None if the Fetch may be
    answered.
    """
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.replica_id < 0 or len(request.topics) != 1 or len(request.topics[0][1]) != 1:
        return ErrorCode.INVALID_REQUEST
    index, _, offset, *_ = request.topics[0][1][0]
    return None if index == 0 and offset >= 0 else ErrorCode.INVALID_REQUEST


def read_vote(request: vote.VoteRequest) -> tuple[int, Vote]:
    """Return the sender's id, and the Vote in the Raft core's form. The request must have passed `refusal`."""
    part = request.topics[0].partitions[0]
    return part.replica_id, Vote(part.replica_epoch, part.last_offset_epoch, part.last_offset, part.pre_vote)


def read_begin(request: begin_quorum_epoch.BeginQuorumEpochRequest) -> tuple[int, BeginEpoch]:
    """Return the sender's id, and the BeginQuorumEpoch in the Raft core's form. `refusal` must have accepted the
    request.
    """
    part = request.topics[0].partitions[0]
    return part.leader_id, BeginEpoch(part.leader_epoch)


def read_end(request: end_quorum_epoch.EndQuorumEpochRequest) -> tuple[int, EndEpoch]:
    """Return the sender's id, and the EndQuorumEpoch in the Raft core's form. The request must have passed `refusal`.
    Successors are read from `preferred_candidates` or, if these are empty as in version 0, from `preferred_successors`.
    """
    part = request.topics[0].partitions[0]
    named = tuple(each.candidate_id for each in part.preferred_candidates) or tuple(part.preferred_successors)
    return part.leader_id, EndEpoch(part.leader_epoch, named)


def read_fetch(request: FetchIn) -> tuple[int, Fetch]:
    """Return the sender's id, and the Fetch in the Raft core's form. The request must have passed `fetch_refusal`."""
    _, epoch, offset, last_epoch, _, _, high_watermark = request.topics[0][1][0]
    known = high_watermark if high_watermark >= 0 else HIGH_WATERMARK_IRRELEVANT
    return request.replica_id, Fetch(epoch, offset, max(last_epoch, 0), known, max(request.max_wait_ms, 0))


def write_vote(reply: VoteReply | ErrorCode) -> vote.VoteResponse:
    """Convert the Raft core's reply to Vote, or a top-level error, into Kafka's response."""
    if isinstance(reply, ErrorCode):
        return vote.VoteResponse(int(reply))
    part = vote.VoteResponsePartitionData(0, int(reply.error), reply.leader_id, reply.epoch, reply.granted)
    return vote.VoteResponse(0, [vote.VoteResponseTopicData(METADATA_TOPIC, [part])])


def write_begin(reply: BeginEpochReply | ErrorCode) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    """Convert the Raft core's reply to BeginQuorumEpoch, or a top-level error, into Kafka's response."""
    if isinstance(reply, ErrorCode):
        return begin_quorum_epoch.BeginQuorumEpochResponse(int(reply))
    part = begin_quorum_epoch.BeginQuorumEpochResponsePartitionData(0, int(reply.error), reply.leader_id, reply.epoch)
    topic = begin_quorum_epoch.BeginQuorumEpochResponseTopicData(METADATA_TOPIC, [part])
    return begin_quorum_epoch.BeginQuorumEpochResponse(0, [topic])


def write_end(reply: EndEpochReply | ErrorCode) -> end_quorum_epoch.EndQuorumEpochResponse:
    """Convert the Raft core's reply to EndQuorumEpoch, or a top-level error, into Kafka's response."""
    if isinstance(reply, ErrorCode):
        return end_quorum_epoch.EndQuorumEpochResponse(int(reply))
    part = end_quorum_epoch.EndQuorumEpochResponsePartitionData(0, int(reply.error), reply.leader_id, reply.epoch)
    topic = end_quorum_epoch.EndQuorumEpochResponseTopicData(METADATA_TOPIC, [part])
    return end_quorum_epoch.EndQuorumEpochResponse(0, [topic])


def write_fetch(version: int, reply: FetchReply, records: FileSlice | None) -> list[Any]:
    """Return the body of the response to Fetch, in chunks."""
    part = FetchResponsePartition(
        index=0,
        error=int(reply.error),
        high_watermark=reply.high_watermark,
        last_stable_offset=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        records=records if records is not None else b"",
        diverging=(reply.diverging.epoch, reply.diverging.end_offset) if reply.diverging is not None else None,
        current_leader=(reply.leader_id, reply.epoch),
        snapshot_id=(reply.snapshot.end_offset, reply.snapshot.epoch) if reply.snapshot is not None else None,
    )
    return encode_fetch_response(version, 0, 0, 0, [(METADATA_TOPIC_ID, [part])], [])


def write_fetch_error(version: int, error: ErrorCode) -> list[Any]:
    """Return the body of the response to a Fetch that is refused as a whole."""
    return encode_fetch_response(version, 0, int(error), 0, [], [])


def write_description(
    request: describe_quorum.DescribeQuorumRequest,
    raft: Raft,
    voters: Mapping[int, NodeAddress],
    now_ms: int,
    wall_ms: int,
) -> describe_quorum.DescribeQuorumResponse:
    """Return the response to DescribeQuorum. `now_ms` and `wall_ms` both give the present: by the Raft core's clock,
    and by the wall clock, which the response uses. The leader counts as caught up now (KIP-836).

    If the request names anything but the metadata log's only partition, or names it twice, every partition in the
    response has UNKNOWN_TOPIC_OR_PARTITION (KafkaRaftClient.handleDescribeQuorumRequest). Each voter has one listener,
    because all traffic between nodes uses it.
    """
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions]
    if asked != [(METADATA_TOPIC, 0)]:
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"Only {METADATA_TOPIC}-0 has a quorum."
        topics = [
            describe_quorum.DescribeQuorumResponseTopicData(
                topic.topic_name,
                [
                    describe_quorum.DescribeQuorumResponsePartitionData(part.partition_index, *unknown)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return describe_quorum.DescribeQuorumResponse(topics=topics)
    part = describe_quorum.DescribeQuorumResponsePartitionData(leader_id=raft.leader_id, leader_epoch=raft.epoch)

    since_wall_ms = wall_ms - now_ms

    def state(node_id: int, replica: ReplicaState) -> describe_quorum.ReplicaState:
        return describe_quorum.ReplicaState(
            replica_id=node_id,
            log_end_offset=replica.end_offset,
            last_fetch_timestamp=replica.fetched_ms + since_wall_ms,
            last_caught_up_timestamp=replica.caught_up_ms + since_wall_ms if replica.caught_up_ms >= 0 else -1,
        )

    if raft.leadership is None:
        part.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        own = describe_quorum.ReplicaState(
            replica_id=raft.node_id,
            log_end_offset=raft.log.end_offset,
            last_fetch_timestamp=wall_ms,
            last_caught_up_timestamp=wall_ms,
        )
        part.high_watermark = raft.high_watermark
        part.current_voters = [own, *(state(*found) for found in raft.leadership.voters.items())]
        part.observers = [state(*found) for found in raft.leadership.observers.items()]
    return describe_quorum.DescribeQuorumResponse(
        topics=[describe_quorum.DescribeQuorumResponseTopicData(METADATA_TOPIC, [part])],
        nodes=[
            describe_quorum.Node(node_id, [describe_quorum.Listener("CONTROLLER", address.host, address.port)])
            for node_id, address in voters.items()
        ],
    )
