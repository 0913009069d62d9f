"""Decodes Produce requests and encodes their responses, versions 3 to 13."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.hot.common import (
    endpoint_tags,
    past_end_error,
    read_classic_bytes,
    read_classic_nullable_string,
)
from squall.broker.protocol.hot.types import NodeEndpoint, ProduceIn, ProducePart, ProducePartOut, Topic
from squall.broker.protocol.wire import (
    DECODE_ERRORS,
    UVARINT,
    compact_nullable_string,
    more,
    more_of_string,
    negative,
    nullable_string,
    skip_tags,
    too_many,
)

_u_i: Final = Struct(">i").unpack_from
_u_hi: Final = Struct(">hi").unpack_from
_u_hii: Final = Struct(">hii").unpack_from
_u_ii: Final = Struct(">ii").unpack_from
_p_h: Final = Struct(">h").pack
_p_i: Final = Struct(">i").pack
_p_ii: Final = Struct(">ii").pack
_PRODUCED_3: Final = Struct(">ihqq").pack
_PRODUCED_5: Final = Struct(">ihqqq").pack
_PRODUCED_9: Final = Struct(">ihqqq").pack
_PRODUCED_9_WELL: Final = Struct(">ihqqq3s").pack
_NOTHING_MORE: Final = b"\x01\0\0"
"""Encodes the end of a partition of a Produce response, version 9 or later, if the partition has no record errors, no
error message and no tagged fields.
"""


MOST_BATCHES = 20_000
"""Limits the batches and topics in one request together: each takes a broker 2.5 µs, even if it is small."""


def decode_produce(view: memoryview, at: int, version: int, most: int = MOST_BATCHES) -> ProduceIn:
    """Read a Produce request, versions 3 to 13, from byte `at` to the end of `view`. Raises MalformedFrame, also if it
    has more than `most` batches and topics.
    """
    try:
        if version >= 9:
            found, at = _produce_flexible(view, at, version, most)
        else:
            found, at = _produce_classic(view, at, most)
    except DECODE_ERRORS as problem:
        raise MalformedFrame(f"Produce version {version}: {problem}") from problem
    if at > len(view):
        raise past_end_error(at, view)
    return found


def _produce_flexible(view: memoryview, at: int, version: int, most: int) -> tuple[ProduceIn, int]:
    n = view[at]
    at += 1
    if n > 127:
        n, at = more_of_string(view, at, n)
    transactional_id = None
    if n:
        transactional_id = str(view[at : at + n - 1], "utf-8")
        at += n - 1
    acks, timeout_ms = _u_hi(view, at)
    at += 6
    count = view[at]
    at += 1
    if count > 127:
        count, at = more(view, at, count)
    if not 0 < count <= len(view) - at + 1:
        raise too_many(count - 1)
    topics = []
    left = most
    for _ in range(count - 1):
        if version >= 13:
            n = 16
        else:
            n = view[at]
            at += 1
            if n > 127:
                n, at = more_of_string(view, at, n)
            if n == 0:
                raise negative(-1)
            n -= 1
        topic = view[at : at + n].tobytes()
        parts, at = _produce_parts_flexible(view, at + n, most)
        left -= 1 + len(parts)
        if left < 0:
            raise too_many(count - 1)
        topics.append((topic, parts))
    n = view[at]
    at += 1
    if n:
        at = skip_tags(view, at, n)
    return ProduceIn(transactional_id, acks, timeout_ms, topics, most - left), at


def _produce_parts_flexible(view: memoryview, at: int, most: int) -> tuple[list[ProducePart], int]:
    """Read the partitions of a topic and the topic's tagged fields. Return the partitions and the position after the
    fields. Raises MalformedFrame for more than `most` partitions.
    """
    count = view[at]
    at += 1
    if count > 127:
        count, at = more(view, at, count)
    if not 0 < count <= min((len(view) - at) // 6, most) + 1:
        raise too_many(count - 1)
    parts: list[ProducePart] = []
    for _ in range(count - 1):
        (index,) = _u_i(view, at)
        n = view[at + 4]
        at += 5
        if n > 127:
            n, at = more(view, at, n)
        records = None
        if n:
            stop = at + n - 1
            records = view[at:stop]
            at = stop
        n = view[at]
        at += 1
        if n:
            at = skip_tags(view, at, n)
        parts.append((index, records))
    n = view[at]
    at += 1
    if n:
        at = skip_tags(view, at, n)
    return parts, at


def _produce_classic(view: memoryview, at: int, most: int) -> tuple[ProduceIn, int]:
    transactional_id, at = read_classic_nullable_string(view, at)
    acks, timeout_ms, count = _u_hii(view, at)
    at += 10
    if not 0 <= count <= (len(view) - at) // 6:
        raise too_many(count)
    topics = []
    left = most
    for _ in range(count):
        topic, at = read_classic_bytes(view, at)
        (inner,) = _u_i(view, at)
        at += 4
        left -= 1 + inner
        if left < 0:
            raise too_many(inner)
        if not 0 <= inner <= min((len(view) - at) // 8, most):
            raise too_many(inner)
        parts: list[ProducePart] = []
        for _ in range(inner):
            index, n = _u_ii(view, at)
            at += 8
            records = None
            if n >= 0:
                records = view[at : at + n]
                at += n
            elif n != -1:
                raise negative(n)
            parts.append((index, records))
        topics.append((topic, parts))
    return ProduceIn(transactional_id, acks, timeout_ms, topics, most - left), at


def encode_produce_response(
    version: int,
    topics: Sequence[tuple[Topic, Sequence[ProducePartOut]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Return the body of a Produce response, versions 3 to 13. Fields that the version lacks are left out."""
    if version < 9:
        return _produced_classic(version, topics, throttle_ms)
    out = [UVARINT[len(topics) + 1]]
    for topic, parts in topics:
        if version < 13:
            out.append(UVARINT[len(topic) + 1])
        out.append(topic)
        out.append(UVARINT[len(parts) + 1])
        for index, error, base_offset, append_time_ms, start_offset, message, leader, faults in parts:
            if message is None and leader is None and not faults:
                out.append(_PRODUCED_9_WELL(index, error, base_offset, append_time_ms, start_offset, _NOTHING_MORE))
                continue
            count = UVARINT[len(faults) + 1]
            out.append(_PRODUCED_9(index, error, base_offset, append_time_ms, start_offset))
            out.append(count)
            out += [_p_i(place) + compact_nullable_string(why) + b"\0" for place, why in faults]
            out.append(compact_nullable_string(message))
            if leader is None or version < 10:
                out.append(b"\0")
            else:
                out.append(b"\1\0\x09" + _p_ii(*leader) + b"\0")
        out.append(b"\0")
    out.append(_p_i(throttle_ms))
    out.append(endpoint_tags(node_endpoints) if node_endpoints and version >= 10 else b"\0")
    return b"".join(out)


def _produced_classic(
    version: int, topics: Sequence[tuple[Topic, Sequence[ProducePartOut]]], throttle_ms: int
) -> bytes:
    out = [_p_i(len(topics))]
    for topic, parts in topics:
        out += (_p_h(len(topic)), topic, _p_i(len(parts)))
        for index, error, base_offset, append_time_ms, start_offset, message, _, faults in parts:
            if version < 5:
                out.append(_PRODUCED_3(index, error, base_offset, append_time_ms))
                continue
            out.append(_PRODUCED_5(index, error, base_offset, append_time_ms, start_offset))
            if version >= 8:
                out.append(_p_i(len(faults)))
                out += [_p_i(place) + nullable_string(why) for place, why in faults]
                out.append(nullable_string(message))
    out.append(_p_i(throttle_ms))
    return b"".join(out)
