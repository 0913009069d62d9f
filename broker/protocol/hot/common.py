"""Holds the code that the readers and writers of Produce and Fetch share."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.hot.types import NodeEndpoint
from squall.broker.protocol.wire import (
    UVARINT,
    compact_nullable_string,
    compact_string,
    more,
    more_of_string,
    negative,
    skip_tags,
    tagged,
    too_many,
)

_u_h: Final = Struct(">h").unpack_from
_p_i: Final = Struct(">i").pack


def past_end_error(at: int, view: memoryview) -> MalformedFrame:
    """Return the error for a message whose content ends at `at`, behind the end of `view`."""
    return MalformedFrame(f"ends {at - len(view)} bytes behind the frame")


def read_classic_nullable_string(view: memoryview, at: int) -> tuple[str | None, int]:
    """Read a string that its int16 length precedes, -1 for null. Return the string and the position after it."""
    (n,) = _u_h(view, at)
    at += 2
    if n >= 0:
        return str(view[at : at + n], "utf-8"), at + n
    if n != -1:
        raise negative(n)
    return None, at


def read_classic_bytes(view: memoryview, at: int) -> tuple[bytes, int]:
    """Read the bytes of a string that is not null. Return the bytes and the position after them."""
    (n,) = _u_h(view, at)
    at += 2
    if n < 0:
        raise negative(n)
    return view[at : at + n].tobytes(), at + n


def read_compact_bytes(view: memoryview, at: int) -> tuple[bytes, int]:
    """Read the bytes of a compact string that is not null. Return the bytes and the position after them."""
    n = view[at]
    at += 1
    if n > 127:
        n, at = more_of_string(view, at, n)
    if n == 0:
        raise negative(-1)
    return view[at : at + n - 1].tobytes(), at + n - 1


def read_compact_nullable_string(view: memoryview, at: int) -> tuple[str | None, int]:
    """Read a string that its length + 1 (a varint) precedes, 0 for null. Return the string and the position after it.
    """
    n = view[at]
    at += 1
    if n > 127:
        n, at = more_of_string(view, at, n)
    if n == 0:
        return None, at
    return str(view[at : at + n - 1], "utf-8"), at + n - 1


def endpoint_tags(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode a section of tagged fields with one field, tag 0: the endpoints of the leaders that the response names
    (KIP-951).
    """
    out = [UVARINT[len(endpoints) + 1]]
    for node_id, host, port, rack in endpoints:
        out += (_p_i(node_id), compact_string(host), _p_i(port), compact_nullable_string(rack), b"\0")
    return b"\1" + tagged(0, b"".join(out))


def bounded_count(view: memoryview, at: int, n: int, smallest: int) -> tuple[int, int]:
    """Return the number of elements of a compact array, and the position after that number. `n` is the number's first
    byte, which the caller has read from `at` - 1. `smallest` is the least size of an element in bytes. Raises
    MalformedFrame if the array is null, or the frame is too short for so many elements.
    """
    if n > 127:
        n, at = more(view, at, n)
    if not 0 < n <= (len(view) - at) // smallest + 1:
        raise too_many(n - 1)
    return n - 1, at


def end_of_struct(view: memoryview, at: int) -> int:
    """Skip the tagged fields at the end of a structure that has no known tagged field, and return the position after
    them.
    """
    n = view[at]
    return skip_tags(view, at + 1, n) if n else at + 1
