"""Encodes Fetch responses, versions 4 to 18, as chunks around file slices, and decodes them for followers and clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.hot.common import (
    bounded_count,
    end_of_struct,
    endpoint_tags,
    past_end_error,
    read_classic_bytes,
    read_compact_bytes,
    read_compact_nullable_string,
)
from squall.broker.protocol.hot.types import FetchOut, FetchResponsePartition, NodeEndpoint, Topic
from squall.broker.protocol.wire import DECODE_ERRORS, UVARINT, more, negative, read_tag, skip_tags, tag_size, too_many

_u_i: Final = Struct(">i").unpack_from
_u_ii: Final = Struct(">ii").unpack_from
_u_iq: Final = Struct(">iq").unpack_from
_u_qi: Final = Struct(">qi").unpack_from
_u_qq: Final = Struct(">qq").unpack_from
_p_h: Final = Struct(">h").pack
_p_i: Final = Struct(">i").pack
_p_hi: Final = Struct(">hi").pack
_p_ii: Final = Struct(">ii").pack
_p_iq: Final = Struct(">iq").pack
_p_qi: Final = Struct(">qi").pack
_p_qq: Final = Struct(">qq").pack
_FETCHED_HEAD: Final = Struct(">ihi").pack
_FETCHED_4: Final = Struct(">ihqq").pack
_FETCHED_5: Final = Struct(">ihqqq").pack
_FETCHED_12: Final = Struct(">ihqqqBi").pack
_IN_MEMORY: Final = (bytes, memoryview)
_JOINED_UP_TO: Final = 2048
"""Limits the size, in bytes, of records in memory that are copied into one chunk with the fields before them. Larger
records are a chunk of their own.
"""
_READ_HEAD: Final = Struct(">ihi").unpack_from
_READ_HEAD_12: Final = Struct(">ihiB").unpack_from
_READ_4: Final = Struct(">ihqqi").unpack_from
_READ_5: Final = Struct(">ihqqqi").unpack_from
_READ_12: Final = Struct(">ihqqqB").unpack_from
_READ_PREFERRED_12: Final = Struct(">iB").unpack_from


def encode_fetch_response(
    version: int,
    throttle_ms: int,
    error: int,
    session_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchResponsePartition]]],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Any]:
    """Return the body of a Fetch response, versions 4 to 18, as chunks to be sent one after the other.

    A chunk is bytes, a memoryview of large records, or the object with a `length` (a file slice) that a partition has
    in place of records. Fields that the version lacks are left out.
    """
    if version < 12:
        return _fetched_classic(version, throttle_ms, error, session_id, topics)
    chunks: list[Any] = []
    out: list[bytes | memoryview] = [_FETCHED_HEAD(throttle_ms, error, session_id), UVARINT[len(topics) + 1]]
    w = out.append
    for topic, parts in topics:
        if version < 13:
            w(UVARINT[len(topic) + 1])
        out += (topic, UVARINT[len(parts) + 1])
        for part in parts:
            index, code, high, stable, start, aborted, preferred, records, diverging, leader, snapshot = part
            if aborted:
                w(_FETCHED_5(index, code, high, stable, start))
                w(UVARINT[len(aborted) + 1])
                out += [_p_qq(*pair) + b"\0" for pair in aborted]
                w(_p_i(preferred))
            else:
                w(_FETCHED_12(index, code, high, stable, start, 0 if aborted is None else 1, preferred))
            if records is None:
                w(b"\0")
            elif isinstance(records, _IN_MEMORY):
                size = len(records)
                w(UVARINT[size + 1])
                if size <= _JOINED_UP_TO:
                    w(records)
                else:
                    chunks += (b"".join(out), records)
                    out.clear()
            else:
                w(UVARINT[records.length + 1])
                chunks += (b"".join(out), records)
                out.clear()
            if diverging is None and leader is None and snapshot is None:
                w(b"\0")
            else:
                w(_fetched_tags(diverging, leader, snapshot))
        w(b"\0")
    w(endpoint_tags(node_endpoints) if node_endpoints and version >= 16 else b"\0")
    chunks.append(b"".join(out))
    return chunks


def _fetched_tags(
    diverging: tuple[int, int] | None, leader: tuple[int, int] | None, snapshot: tuple[int, int] | None
) -> bytes:
    tags = []
    if diverging is not None:
        tags.append(b"\0\x0d" + _p_iq(*diverging) + b"\0")
    if leader is not None:
        tags.append(b"\1\x09" + _p_ii(*leader) + b"\0")
    if snapshot is not None:
        tags.append(b"\2\x0d" + _p_qi(*snapshot) + b"\0")
    return UVARINT[len(tags)] + b"".join(tags)


def _fetched_classic(
    version: int,
    throttle_ms: int,
    error: int,
    session_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchResponsePartition]]],
) -> list[Any]:
    chunks: list[Any] = []
    out: list[bytes | memoryview] = [_p_i(throttle_ms)]
    if version >= 7:
        out.append(_p_hi(error, session_id))
    out.append(_p_i(len(topics)))
    for topic, parts in topics:
        out += (_p_h(len(topic)), topic, _p_i(len(parts)))
        for index, code, high, stable, start, aborted, preferred, records, _, _, _ in parts:
            out.append(_FETCHED_4(index, code, high, stable))
            if version >= 5:
                out[-1] = _FETCHED_5(index, code, high, stable, start)
            out.append(_p_i(-1 if aborted is None else len(aborted)))
            out += [_p_qq(*pair) for pair in aborted or ()]
            if version >= 11:
                out.append(_p_i(preferred))
            if records is None:
                out.append(b"\xff\xff\xff\xff")
            elif isinstance(records, _IN_MEMORY):
                out += (_p_i(len(records)), records)
            else:
                out.append(_p_i(records.length))
                chunks += (b"".join(out), records)
                out.clear()
    chunks.append(b"".join(out))
    return chunks


def decode_fetch_response(view: memoryview, at: int, version: int) -> FetchOut:
    """Read a Fetch response, versions 4 to 18, from byte `at` to the end of `view`. Records are slices of `view`.
    Raises MalformedFrame.
    """
    try:
        if version >= 12:
            found, at = _fetch_response_flexible(view, at, version)
        else:
            found, at = _fetch_response_classic(view, at, version)
    except DECODE_ERRORS as problem:
        raise MalformedFrame(f"Fetch response version {version}: {problem}") from problem
    if at > len(view):
        raise past_end_error(at, view)
    return found


def _fetch_response_flexible(view: memoryview, at: int, version: int) -> tuple[FetchOut, int]:
    throttle_ms, error, session_id, count = _READ_HEAD_12(view, at)
    at += 11
    count, at = bounded_count(view, at, count, 3)
    topics = []
    for _ in range(count):
        if version >= 13:
            topic = view[at : at + 16].tobytes()
            at += 16
        else:
            topic, at = read_compact_bytes(view, at)
        inner, at = bounded_count(view, at + 1, view[at], 37)
        parts = []
        for _ in range(inner):
            part, at = _fetched_flexible(view, at)
            parts.append(part)
        tags = view[at]
        at += 1
        if tags:
            at = skip_tags(view, at, tags)
        topics.append((topic, parts))
    endpoints: list[NodeEndpoint] = []
    tags = view[at]
    at += 1
    if tags > 127:
        tags, at = more(view, at, tags)
    for _ in range(tags):
        tag, at, stop = read_tag(view, at)
        if tag == 0 and version >= 16:
            endpoints, at = _read_endpoints(view, at)
            if at != stop:
                raise tag_size(tag)
        at = stop
    return tuple.__new__(FetchOut, (throttle_ms, error, session_id, topics, endpoints)), at


def _read_endpoints(view: memoryview, at: int) -> tuple[list[NodeEndpoint], int]:
    endpoints = []
    count, at = bounded_count(view, at + 1, view[at], 11)
    for _ in range(count):
        (node_id,) = _u_i(view, at)
        host, at = read_compact_bytes(view, at + 4)
        (port,) = _u_i(view, at)
        rack, at = read_compact_nullable_string(view, at + 4)
        at = end_of_struct(view, at)
        endpoints.append((node_id, host.decode(), port, rack))
    return endpoints, at


def _fetched_flexible(view: memoryview, at: int) -> tuple[FetchResponsePartition, int]:
    index, error, high, stable, start, n = _READ_12(view, at)
    at += 31
    if n > 127:
        n, at = more(view, at, n)
    aborted: list[tuple[int, int]] | None = None
    if n:
        aborted, at = _read_aborted(view, at, n - 1)
    preferred, n = _READ_PREFERRED_12(view, at)
    at += 5
    if n > 127:
        n, at = more(view, at, n)
    records = None
    if n:
        records = view[at : at + n - 1]
        at += n - 1
    n = view[at]
    at += 1
    diverging = leader = snapshot = None
    if n:
        if n > 127:
            n, at = more(view, at, n)
        for _ in range(n):
            tag, at, stop = read_tag(view, at)
            if tag == 0:
                diverging = _u_iq(view, at)
                at = end_of_struct(view, at + 12)
            elif tag == 1:
                leader = _u_ii(view, at)
                at = end_of_struct(view, at + 8)
            elif tag == 2:
                snapshot = _u_qi(view, at)
                at = end_of_struct(view, at + 12)
            else:
                at = stop
            if at != stop:
                raise tag_size(tag)
    fields = index, error, high, stable, start, aborted, preferred, records, diverging, leader, snapshot
    return tuple.__new__(FetchResponsePartition, fields), at


def _read_aborted(view: memoryview, at: int, count: int) -> tuple[list[tuple[int, int]], int]:
    if count > (len(view) - at) // 17:
        raise too_many(count)
    aborted = []
    for _ in range(count):
        aborted.append(_u_qq(view, at))
        at = end_of_struct(view, at + 16)
    return aborted, at


def _fetch_response_classic(view: memoryview, at: int, version: int) -> tuple[FetchOut, int]:
    error = session_id = 0
    if version >= 7:
        throttle_ms, error, session_id = _READ_HEAD(view, at)
        at += 10
    else:
        (throttle_ms,) = _u_i(view, at)
        at += 4
    (count,) = _u_i(view, at)
    at += 4
    if not 0 <= count <= (len(view) - at) // 6:
        raise too_many(count)
    topics = []
    for _ in range(count):
        topic, at = read_classic_bytes(view, at)
        (inner,) = _u_i(view, at)
        at += 4
        if not 0 <= inner <= (len(view) - at) // 30:
            raise too_many(inner)
        parts = []
        for _ in range(inner):
            part, at = _fetched_part_classic(view, at, version)
            parts.append(part)
        topics.append((topic, parts))
    return FetchOut(throttle_ms, error, session_id, topics, []), at


def _fetched_part_classic(view: memoryview, at: int, version: int) -> tuple[FetchResponsePartition, int]:
    start, preferred = -1, -1
    if version >= 5:
        index, error, high, stable, start, n = _READ_5(view, at)
        at += 34
    else:
        index, error, high, stable, n = _READ_4(view, at)
        at += 26
    aborted: list[tuple[int, int]] | None = None
    if n >= 0:
        if n > (len(view) - at) // 16:
            raise too_many(n)
        aborted = [_u_qq(view, i) for i in range(at, at + 16 * n, 16)]
        at += 16 * n
    elif n != -1:
        raise negative(n)
    if version >= 11:
        (preferred,) = _u_i(view, at)
        at += 4
    (n,) = _u_i(view, at)
    at += 4
    records = None
    if n >= 0:
        records = view[at : at + n]
        at += n
    elif n != -1:
        raise negative(n)
    return FetchResponsePartition(index, error, high, stable, start, aborted, preferred, records), at
