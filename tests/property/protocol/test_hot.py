"""The hand-written codec of Produce and Fetch agrees with the generated classes, which were compared with kio's bytes.
"""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from squall.broker.protocol import hot
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema import fetch, produce
from tests.property.protocol.hostile import LENGTHS, mutations, noise, truncations
from tests.support.effort import examples

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
DECODERS = {
    "produce": (hot.decode_produce, PRODUCE_VERSIONS, produce.ProduceRequest),
    "fetch": (hot.decode_fetch, FETCH_VERSIONS, fetch.FetchRequest),
    "fetch_response": (hot.decode_fetch_response, FETCH_VERSIONS, fetch.FetchResponse),
}

int16, int32, int64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))
text = st.one_of(st.text(max_size=5), st.just("long" * 40))
records = st.one_of(st.none(), st.binary(max_size=9), st.sampled_from((127, 128, 5000)).map(bytes))
topic_ids = st.binary(min_size=16, max_size=16)


def few(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, max_size=3)


def named(version: int, topic: bytes, first_with_ids: int = 13, name: str = "name") -> dict[str, Any]:
    """Return the fields by which a generated structure names a topic in this version: its name or its id."""
    return {"topic_id": topic} if version >= first_with_ids else {name: topic.decode()}


def topics(version: int, parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    name = topic_ids if version >= 13 else text.map(str.encode)
    return few(st.tuples(name, few(parts)))


pairs = st.tuples(int64, int64)
faults = st.lists(st.tuples(int32, text), max_size=3)
leaders = st.one_of(st.none(), st.tuples(int32, int32))
endpoints = few(st.tuples(int32, text, int32, st.one_of(st.none(), text)))


# ------------------------------------------------------------------------------------------------------- Produce


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_produce_requests_are_read_as_the_generated_class_writes_them(version: int, data: st.DataObject) -> None:
    transactional_id, acks, timeout_ms = data.draw(st.tuples(st.one_of(st.none(), text), int16, int32))
    sent = data.draw(topics(version, st.tuples(int32, records)))
    size = sum(1 + len(parts) for _, parts in sent)
    wanted = hot.ProduceIn(transactional_id, acks, timeout_ms, sent, size)
    raw = produce.ProduceRequest(
        transactional_id=wanted.transactional_id,
        acks=wanted.acks,
        timeout_ms=wanted.timeout_ms,
        topic_data=[
            produce.TopicProduceData(
                partition_data=[produce.PartitionProduceData(index, batch) for index, batch in parts],
                **named(version, topic),
            )
            for topic, parts in wanted.topics
        ],
    ).encode(version)
    assert hot.decode_produce(memoryview(b"\xee" * 3 + raw), 3, version) == wanted


def test_records_of_a_produce_request_are_views_of_the_receive_buffer() -> None:
    part = produce.PartitionProduceData(index=0, records=b"batch")
    raw = bytearray(produce.ProduceRequest(topic_data=[produce.TopicProduceData("t", partition_data=[part])]).encode(9))
    ((_, ((_, view),)),) = hot.decode_produce(memoryview(raw), 0, 9).topics
    assert view is not None
    assert not view.readonly
    view[:5] = b"BATCH"
    assert b"BATCH" in raw


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_produce_responses_are_written_as_the_generated_class_does(version: int, data: st.DataObject) -> None:
    part = st.tuples(int32, int16, int64, int64, int64, st.one_of(st.none(), text), leaders, faults)
    answers = data.draw(topics(version, part))
    throttle_ms, nodes = data.draw(int32), data.draw(endpoints)
    wanted = produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                partition_responses=[_produced(version, *answer) for answer in parts], **named(version, topic)
            )
            for topic, parts in answers
        ],
        throttle_time_ms=throttle_ms,
        node_endpoints=[produce.NodeEndpoint(*node) for node in nodes] if version >= 10 else [],
    ).encode(version)
    written = hot.encode_produce_response(version, answers, throttle_ms, nodes)
    assert _without_default_tags(written, wanted, version, produce.ProduceResponse)


def _produced(
    version: int,
    index: int,
    error: int,
    base_offset: int,
    time_ms: int,
    start: int,
    message: str | None,
    leader: tuple[int, int] | None,
    faults: list[tuple[int, str]],
) -> produce.PartitionProduceResponse:
    return produce.PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=base_offset,
        log_append_time_ms=time_ms,
        log_start_offset=start if version >= 5 else -1,
        record_errors=[produce.BatchIndexAndErrorMessage(*fault) for fault in faults] if version >= 8 else [],
        error_message=message if version >= 8 else None,
        current_leader=produce.LeaderIdAndEpoch(*leader) if leader and version >= 10 else produce.LeaderIdAndEpoch(),
    )


def _without_default_tags(written: bytes, wanted: bytes, version: int, cls: type[Any]) -> bool:
    """Return whether the bytes are equal, except that one of them may write a tagged field that has its default."""
    return written == wanted or cls.decode(memoryview(written), 0, version)[0].encode(version) == wanted


# --------------------------------------------------------------------------------------------------------- Fetch


def _fetch_in(version: int, data: st.DataObject) -> hot.FetchIn:
    def since(first: int, values: st.SearchStrategy[Any], default: Any) -> Any:
        return data.draw(values) if version >= first else default

    def part(first: int, values: st.SearchStrategy[Any], default: Any) -> st.SearchStrategy[Any]:
        return values if version >= first else st.just(default)

    high_watermarks = st.one_of(st.just(hot.NO_HIGH_WATERMARK), int64)
    parts = st.tuples(
        int32,
        part(9, int32, -1),
        int64,
        part(12, int32, -1),
        part(5, int64, -1),
        int32,
        part(18, high_watermarks, hot.NO_HIGH_WATERMARK),
    )
    replica_epoch = since(15, int64, -1)
    return hot.FetchIn(
        replica_id=data.draw(int32),
        replica_epoch=replica_epoch,
        max_wait_ms=data.draw(int32),
        min_bytes=data.draw(int32),
        max_bytes=data.draw(int32),
        isolation=data.draw(st.integers(-128, 127)),
        session_id=since(7, int32, 0),
        session_epoch=since(7, int32, -1),
        cluster_id=since(12, st.one_of(st.none(), text), None),
        topics=data.draw(topics(version, parts)),
        forgotten=since(7, topics(version, int32), []),
        rack=since(11, text, ""),
    )


def _fetch_request(asked: hot.FetchIn, version: int) -> bytes:
    by_state = version >= 15
    state = fetch.ReplicaState(asked.replica_id, asked.replica_epoch) if by_state else fetch.ReplicaState()
    return fetch.FetchRequest(
        cluster_id=asked.cluster_id,
        replica_id=-1 if by_state else asked.replica_id,
        replica_state=state,
        max_wait_ms=asked.max_wait_ms,
        min_bytes=asked.min_bytes,
        max_bytes=asked.max_bytes,
        isolation_level=asked.isolation,
        session_id=asked.session_id,
        session_epoch=asked.session_epoch,
        topics=[
            fetch.FetchTopic(
                partitions=[
                    fetch.FetchPartition(
                        partition=index,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=start,
                        partition_max_bytes=max_bytes,
                        high_watermark=high_watermark,
                    )
                    for index, leader_epoch, offset, last_epoch, start, max_bytes, high_watermark in parts
                ],
                **named(version, topic, name="topic"),
            )
            for topic, parts in asked.topics
        ],
        forgotten_topics_data=[
            fetch.ForgottenTopic(partitions=indexes, **named(version, topic, name="topic"))
            for topic, indexes in asked.forgotten
        ],
        rack_id=asked.rack,
    ).encode(version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=examples(12))
@given(data=st.data())
def test_fetch_requests_are_read_as_the_generated_class_writes_them(version: int, data: st.DataObject) -> None:
    wanted = _fetch_in(version, data)
    raw = _fetch_request(wanted, version)
    assert hot.decode_fetch(memoryview(b"\xee" * 3 + raw), 3, version) == wanted


@pytest.mark.parametrize("version", (17, 18))
@settings(max_examples=examples(12))
@given(data=st.data())
def test_fetch_requests_are_written_as_the_generated_class_does(version: int, data: st.DataObject) -> None:
    asked = _fetch_in(version, data)
    assert hot.encode_fetch_request(asked, version) == _fetch_request(asked, version)


def test_a_directory_id_is_passed_over_and_the_high_watermark_behind_it_is_found() -> None:
    part = fetch.FetchPartition(partition=4, replica_directory_id=b"d" * 16, high_watermark=77)
    raw = fetch.FetchRequest(topics=[fetch.FetchTopic(topic_id=b"t" * 16, partitions=[part])]).encode(18)
    ((_, ((index, *_, high_watermark),)),) = hot.decode_fetch(memoryview(raw), 0, 18).topics
    assert (index, high_watermark) == (4, 77)


@pytest.mark.parametrize("version", range(13, 18))
def test_a_tag_that_means_the_high_watermark_only_later_is_passed_over(version: int) -> None:
    part = fetch.FetchPartition(partition=4, high_watermark=77)
    raw = fetch.FetchRequest(topics=[fetch.FetchTopic(topic_id=b"t" * 16, partitions=[part])]).encode(18)
    if version < 15:
        raw = b"\xff\xff\xff\xff" + raw
    ((_, (asked,)),) = hot.decode_fetch(memoryview(raw), 0, version).topics
    assert asked[-1] == hot.NO_HIGH_WATERMARK


@dataclass
class Slice:
    """Replaces a part of a file that a response would send by sendfile."""

    length: int


def _part_out(version: int) -> st.SearchStrategy[hot.FetchResponsePartition]:
    flexible = version >= 12
    maybe = st.one_of(st.none(), st.tuples(int32, int64))
    return st.builds(
        hot.FetchResponsePartition,
        index=int32,
        error=int16,
        high_watermark=int64,
        last_stable_offset=int64,
        log_start_offset=int64 if version >= 5 else st.just(-1),
        aborted=st.one_of(st.none(), few(pairs)),
        preferred_read_replica=int32 if version >= 11 else st.just(-1),
        records=records,
        diverging=maybe if flexible else st.none(),
        current_leader=leaders if flexible else st.none(),
        snapshot_id=maybe.map(lambda pair: pair and pair[::-1]) if flexible else st.none(),
    )


def _fetched(part: hot.FetchResponsePartition) -> fetch.PartitionData:
    return fetch.PartitionData(
        partition_index=part.index,
        error_code=part.error,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        aborted_transactions=None
        if part.aborted is None
        else [fetch.AbortedTransaction(*pair) for pair in part.aborted],
        preferred_read_replica=part.preferred_read_replica,
        records=part.records,
        diverging_epoch=fetch.EpochEndOffset(*part.diverging or ()),
        current_leader=fetch.LeaderIdAndEpoch(*part.current_leader or ()),
        snapshot_id=fetch.SnapshotId(*part.snapshot_id or ()),
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=examples(12))
@given(data=st.data())
def test_fetch_responses_are_written_and_read_as_by_the_generated_class(version: int, data: st.DataObject) -> None:
    answers = data.draw(topics(version, _part_out(version)))
    head = data.draw(int32), *(data.draw(st.tuples(int16, int32)) if version >= 7 else (0, 0))
    nodes = data.draw(endpoints) if version >= 16 else []
    wanted = fetch.FetchResponse(
        throttle_time_ms=head[0],
        error_code=head[1],
        session_id=head[2],
        responses=[
            fetch.FetchableTopicResponse(
                partitions=[_fetched(part) for part in parts], **named(version, topic, name="topic")
            )
            for topic, parts in answers
        ],
        node_endpoints=[fetch.NodeEndpoint(*node) for node in nodes],
    ).encode(version)
    chunks = hot.encode_fetch_response(version, *head, answers, nodes)
    written = b"".join(chunks)
    assert _without_default_tags(written, wanted, version, fetch.FetchResponse)
    assert hot.decode_fetch_response(memoryview(written), 0, version) == hot.FetchOut(*head, answers, nodes)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_file_slices_travel_as_chunks_of_their_own(version: int) -> None:
    topic = b"t" * 16
    parts = [
        hot.FetchResponsePartition(0, records=Slice(7)),
        hot.FetchResponsePartition(1),
        hot.FetchResponsePartition(2, records=Slice(300)),
    ]
    chunks = hot.encode_fetch_response(version, 0, 0, 0, [(topic, parts)])
    assert [chunk for chunk in chunks if isinstance(chunk, Slice)] == [Slice(7), Slice(300)]
    filled = b"".join(bytes(chunk.length) if isinstance(chunk, Slice) else chunk for chunk in chunks)
    ((_, read),) = hot.decode_fetch_response(memoryview(filled), 0, version).topics
    assert [part.records if part.records is None else len(part.records) for part in read] == [7, None, 300]


def test_large_records_in_memory_are_not_copied() -> None:
    batch = memoryview(bytes(100_000))
    chunks = hot.encode_fetch_response(18, 0, 0, 0, [(bytes(16), [hot.FetchResponsePartition(0, records=batch)])])
    assert any(chunk is batch for chunk in chunks)


# ---------------------------------------------------------------------------------------------------------- fuzz


def _try(name: str, frame: bytes, version: int) -> Any:
    """Return what the hand-written decoder reads; None if it raises MalformedFrame. Any other exception fails the test.
    """
    try:
        return DECODERS[name][0](memoryview(frame), 0, version)
    except MalformedFrame:
        return None


def _some_frame(name: str, version: int, data: st.DataObject) -> bytes:
    if name == "produce":
        parts = st.tuples(int32, records)
        drawn = data.draw(topics(version, parts))
        return produce.ProduceRequest(
            topic_data=[
                produce.TopicProduceData(
                    partition_data=[produce.PartitionProduceData(*part) for part in inner], **named(version, topic)
                )
                for topic, inner in drawn
            ]
        ).encode(version)
    if name == "fetch":
        return _fetch_request(_fetch_in(version, data), version)
    answers = data.draw(topics(version, _part_out(version)))
    return b"".join(hot.encode_fetch_response(version, 0, 0, 0, answers))


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=examples(4, least=2), phases=[Phase.generate])
@given(data=st.data())
def test_hostile_frames_are_malformed_or_mean_what_the_generated_class_reads(name: str, data: st.DataObject) -> None:
    _, versions, cls = DECODERS[name]
    for version in versions:
        raw = _some_frame(name, version, data)
        for cut in truncations(raw, most=100):
            assert _try(name, cut, version) is None
        for frame in (*mutations(raw, 60, seed=version), *noise(40, seed=version)):
            found = _try(name, frame, version)
            try:
                other, _ = cls.decode(memoryview(frame), 0, version)
            except MalformedFrame:
                other = None
            # Topic names stay bytes here, and a directory id is passed over unread: only so can they disagree.
            assert found is not None or other is None
            if found is not None and other is not None:
                assert _shape(found) == _generated_shape(other)


def _shape(found: Any) -> list[list[Any]]:
    return [[part[0] for part in parts] for _, parts in found.topics]


def _generated_shape(message: Any) -> list[list[int]]:
    match message:
        case produce.ProduceRequest():
            return [[part.index for part in topic.partition_data] for topic in message.topic_data]
        case fetch.FetchRequest():
            return [[part.partition for part in topic.partitions] for topic in message.topics]
    return [[part.partition_index for part in topic.partitions] for topic in message.responses]


@pytest.mark.parametrize("name", DECODERS)
def test_memory_and_work_stay_within_the_bytes_that_were_sent(name: str) -> None:
    _, versions, cls = DECODERS[name]
    size = 3000
    for version in versions:
        empty = cls().encode(version)
        for at in range(len(empty)):
            for lie in (*LENGTHS[:3], b"\xb8\x17", (size // 8).to_bytes(4, "big")):
                for fill in (0, 1):
                    frame = empty[:at] + lie + bytes((fill,)) * size
                    if (at + fill) % 4 == 0:
                        assert _lines(name, frame, version) < 10 * len(frame)
                    assert _peak(name, frame, version) < 40 * len(frame) + 20_000


def _peak(name: str, frame: bytes, version: int) -> int:
    tracemalloc.start()
    try:
        _try(name, frame, version)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _lines(name: str, frame: bytes, version: int) -> int:
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _try(name, frame, version)
    finally:
        sys.settrace(before)
    return count
