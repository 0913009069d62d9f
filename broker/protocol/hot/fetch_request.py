"""Decodes the Fetch requests that this broker receives, versions 4 to 18, and encodes those that it sends as a
follower.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.hot.common import (
    bounded_count,
    end_of_struct,
    past_end_error,
    read_classic_bytes,
    read_compact_bytes,
    read_compact_nullable_string,
)
from squall.broker.protocol.hot.types import NO_HIGH_WATERMARK, FetchIn, FetchRequestPartition, Topic
from squall.broker.protocol.wire import (
    DECODE_ERRORS,
    UVARINT,
    compact_string,
    int32s,
    more,
    negative,
    read_tag,
    skip_tags,
    tag_size,
    tagged,
    too_many,
)

_u_i: Final = Struct(">i").unpack_from
_u_q: Final = Struct(">q").unpack_from
_p_i: Final = Struct(">i").pack
# A NamedTuple's own constructor would cost one more Python call for each partition.
_new_part: Final = tuple.__new__
_FETCH_4: Final = Struct(">iiiib").unpack_from
_FETCH_7: Final = Struct(">iiiibii").unpack_from
_FETCH_12: Final = Struct(">iiiibiiB").unpack_from
_FETCH_15: Final = Struct(">iiibiiB").unpack_from
_ASKED_4: Final = Struct(">iqi").unpack_from
_ASKED_5: Final = Struct(">iqqi").unpack_from
_ASKED_9: Final = Struct(">iiqqi").unpack_from
_ASKED_12: Final = Struct(">iiqiqiB").unpack_from
_FETCH_REQUEST: Final = Struct(">iiibii").pack
_ASKED_HW: Final = Struct(">iiqiqi3sq").pack
_ONLY_HW: Final = b"\1\1\x08"
"""Encodes the beginning of a section of tagged fields that has only a partition's high watermark: tag 1, 8 bytes."""
_ASKED: Final = Struct(">iiqiqiB").pack
_REPLICA_STATE: Final = Struct(">iqB")


def decode_fetch(view: memoryview, at: int, version: int) -> FetchIn:
    """Read a Fetch request, versions 4 to 18, from byte `at` to the end of `view`. Raises MalformedFrame."""
    try:
        if version >= 12:
            found, at = _fetch_flexible(view, at, version)
        else:
            found, at = _fetch_classic(view, at, version)
    except DECODE_ERRORS as problem:
        raise MalformedFrame(f"Fetch version {version}: {problem}") from problem
    if at > len(view):
        raise past_end_error(at, view)
    return found


def _fetch_flexible(view: memoryview, at: int, version: int) -> tuple[FetchIn, int]:
    if version >= 15:
        # From version 15 on the replica is in a tagged field (KIP-903).
        replica_id = -1
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count = _FETCH_15(view, at)
        at += 22
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, count = _FETCH_12(view, at)
        at += 26
    count, at = bounded_count(view, at, count, 3)
    topics: list[tuple[Topic, list[FetchRequestPartition]]] = []
    for _ in range(count):
        if version >= 13:
            topic = view[at : at + 16].tobytes()
            at += 16
        else:
            topic, at = read_compact_bytes(view, at)
        parts, at = _asked_flexible(view, at, version)
        topics.append((topic, parts))
    forgotten: list[tuple[Topic, list[int]]] = []
    if view[at] == 1:
        at += 1
    else:
        forgotten, at = _forgotten_flexible(view, at, version)
    rack = ""
    if view[at] == 1:
        at += 1
    else:
        raw, at = read_compact_bytes(view, at)
        rack = raw.decode()
    cluster_id, replica_epoch = None, -1
    tags = view[at]
    at += 1
    if tags == 1 and version >= 15 and view[at] == 1 and view[at + 1] == _REPLICA_STATE.size:
        # What our followers send: replica and epoch alone, without tags of their own.
        replica_id, replica_epoch, tags = _REPLICA_STATE.unpack_from(view, at + 2)
        if tags:
            raise tag_size(1)
        at += 2 + _REPLICA_STATE.size
    elif tags:
        replica_id, replica_epoch, cluster_id, at = _fetch_tags(view, at, tags, version, replica_id)
    fields = replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch
    return tuple.__new__(FetchIn, (*fields, cluster_id, topics, forgotten, rack)), at


def _fetch_tags(
    view: memoryview, at: int, count: int, version: int, replica_id: int
) -> tuple[int, int, str | None, int]:
    """Read the tagged fields at the end of a request. Return replica id, replica epoch, cluster id, and the position
    after the fields. `count` is the first byte of the number of fields; `replica_id` is returned if the fields have
    none.
    """
    cluster_id, replica_epoch = None, -1
    if count > 127:
        count, at = more(view, at, count)
    for _ in range(count):
        tag, at, stop = read_tag(view, at)
        if tag == 1 and version >= 15:
            replica_id, replica_epoch, tags = _REPLICA_STATE.unpack_from(view, at)
            at += _REPLICA_STATE.size
            if tags:
                at = skip_tags(view, at, tags)
        elif tag == 0:
            cluster_id, at = read_compact_nullable_string(view, at)
        else:
            at = stop
        if at != stop:
            raise tag_size(tag)
    return replica_id, replica_epoch, cluster_id, at


def _asked_flexible(view: memoryview, at: int, version: int) -> tuple[list[FetchRequestPartition], int]:
    """Read the partitions of a topic and the topic's tagged fields. Return the partitions and the position after the
    tagged fields.
    """
    count = view[at]
    at += 1
    if count > 127:
        count, at = more(view, at, count)
    if not 0 < count <= (len(view) - at) // 33 + 1:
        raise too_many(count - 1)
    parts: list[FetchRequestPartition] = []
    for _ in range(count - 1):
        index, leader_epoch, offset, last_epoch, start_offset, max_bytes, tags = _ASKED_12(view, at)
        at += 33
        high_watermark = NO_HIGH_WATERMARK
        if tags:
            if version < 18:
                at = skip_tags(view, at, tags)
            elif tags == 1 and view[at] == 1 and view[at + 1] == 8:
                # What our followers send: the high watermark alone.
                (high_watermark,) = _u_q(view, at + 2)
                at += 10
            else:
                high_watermark, at = _asked_tags(view, at, tags)
        asked = index, leader_epoch, offset, last_epoch, start_offset, max_bytes, high_watermark
        parts.append(_new_part(FetchRequestPartition, asked))
    n = view[at]
    at += 1
    if n:
        at = skip_tags(view, at, n)
    return parts, at


def _asked_tags(view: memoryview, at: int, count: int) -> tuple[int, int]:
    """Read the tagged fields of a requested partition. Return its high watermark, or `NO_HIGH_WATERMARK`, and the
    position after the fields. `count` is the first byte of the number of fields. The directory id (tag 0) is skipped,
    because a broker has one log directory.
    """
    if count > 127:
        count, at = more(view, at, count)
    high_watermark = NO_HIGH_WATERMARK
    for _ in range(count):
        tag, at, stop = read_tag(view, at)
        if tag == 1:
            if stop - at != 8:
                raise tag_size(1)
            (high_watermark,) = _u_q(view, at)
        at = stop
    return high_watermark, at


def _forgotten_flexible(view: memoryview, at: int, version: int) -> tuple[list[tuple[Topic, list[int]]], int]:
    forgotten = []
    count, at = bounded_count(view, at + 1, view[at], 3)
    for _ in range(count):
        if version >= 13:
            topic = view[at : at + 16].tobytes()
            at += 16
        else:
            topic, at = read_compact_bytes(view, at)
        n, at = bounded_count(view, at + 1, view[at], 4)
        forgotten.append((topic, int32s(view, at, n)))
        at = end_of_struct(view, at + 4 * n)
    return forgotten, at


def _fetch_classic(view: memoryview, at: int, version: int) -> tuple[FetchIn, int]:
    session_id, session_epoch = 0, -1
    if version >= 7:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _FETCH_7(view, at)
        at += 25
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _FETCH_4(view, at)
        at += 17
    topics: list[tuple[Topic, list[FetchRequestPartition]]] = []
    (count,) = _u_i(view, at)
    at += 4
    if not 0 <= count <= (len(view) - at) // 6:
        raise too_many(count)
    for _ in range(count):
        topic, at = read_classic_bytes(view, at)
        parts, at = _asked_classic(view, at, version)
        topics.append((topic, parts))
    forgotten: list[tuple[Topic, list[int]]] = []
    if version >= 7:
        (count,) = _u_i(view, at)
        at += 4
        if not 0 <= count <= (len(view) - at) // 6:
            raise too_many(count)
        for _ in range(count):
            topic, at = read_classic_bytes(view, at)
            (n,) = _u_i(view, at)
            if n < 0:
                raise negative(n)
            forgotten.append((topic, int32s(view, at + 4, n)))
            at += 4 + 4 * n
    rack = ""
    if version >= 11:
        raw, at = read_classic_bytes(view, at)
        rack = raw.decode()
    return FetchIn(
        replica_id,
        -1,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        None,
        topics,
        forgotten,
        rack,
    ), at


def _asked_classic(view: memoryview, at: int, version: int) -> tuple[list[FetchRequestPartition], int]:
    (count,) = _u_i(view, at)
    at += 4
    if not 0 <= count <= (len(view) - at) // 16:
        raise too_many(count)
    parts: list[FetchRequestPartition] = []
    leader_epoch = start_offset = -1
    for _ in range(count):
        if version >= 9:
            index, leader_epoch, offset, start_offset, max_bytes = _ASKED_9(view, at)
            at += 28
        elif version >= 5:
            index, offset, start_offset, max_bytes = _ASKED_5(view, at)
            at += 24
        else:
            index, offset, max_bytes = _ASKED_4(view, at)
            at += 16
        asked = index, leader_epoch, offset, -1, start_offset, max_bytes, NO_HIGH_WATERMARK
        parts.append(_new_part(FetchRequestPartition, asked))
    return parts, at


def encode_fetch_request(request: FetchIn, version: int = 18) -> bytes:
    """Return the body of a Fetch request of version 17 or 18, with topics by id. A follower's request also has its id
    and broker epoch.

    Version 17 leaves the high watermarks out. Raises ValueError for another version.
    """
    if version not in (17, 18):
        raise ValueError(f"Fetch requests are written in versions 17 and 18, not {version}")
    out = [
        _FETCH_REQUEST(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation,
            request.session_id,
            request.session_epoch,
        ),
        UVARINT[len(request.topics) + 1],
    ]
    for topic, parts in request.topics:
        out += (topic, UVARINT[len(parts) + 1])
        for index, leader_epoch, offset, last_epoch, start_offset, most, high in parts:
            if high == NO_HIGH_WATERMARK or version < 18:
                out.append(_ASKED(index, leader_epoch, offset, last_epoch, start_offset, most, 0))
            else:
                out.append(_ASKED_HW(index, leader_epoch, offset, last_epoch, start_offset, most, _ONLY_HW, high))
        out.append(b"\0")
    out.append(UVARINT[len(request.forgotten) + 1])
    for topic, indexes in request.forgotten:
        out += (topic, UVARINT[len(indexes) + 1], *map(_p_i, indexes), b"\0")
    out.append(compact_string(request.rack))
    tags = []
    if request.cluster_id is not None:
        tags.append(tagged(0, compact_string(request.cluster_id)))
    if request.replica_id != -1 or request.replica_epoch != -1:
        tags.append(b"\1\x0d" + _REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0))
    out += (UVARINT[len(tags)], *tags)
    return b"".join(out)
