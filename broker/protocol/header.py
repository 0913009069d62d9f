"""Decodes and encodes frame headers. The code is written by hand, because every request and response passes here.

A frame is an int32 size and that many bytes; the decoding functions take the bytes after the size.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.wire import DECODE_ERRORS, skip_tags

_REQUEST: Final = Struct(">hhih")
_REQUEST_WITH_SIZE: Final = Struct(">ihhih")
_INT32: Final = Struct(">i")
_FLEXIBLE_FROM: Final = {key: api.flexible_from for key, api in APIS.items()}
_FLEXIBLE_RESPONSE_FROM: Final = _FLEXIBLE_FROM | {int(ApiKey.API_VERSIONS): 0x7FFF}


class RequestHeader(NamedTuple):
    """Holds the header of a request, and the position of its body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Gives the position of the body in the frame. For an unknown API it is the position after the client id."""


def decode_request_header(view: memoryview) -> RequestHeader:
    """Decode the header, version 1 or 2, at the beginning of a frame. Raises only MalformedFrame.

    An unknown API key is no error here: the server decides how to answer it.
    """
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(view, 0)
        at = 10
        client_id: str | None = None
        if length >= 0:
            at = 10 + length
            # The client id keeps its int16 length in header 2, too.
            client_id = str(view[10:at], "utf-8")
        elif length != -1:
            raise MalformedFrame(f"request header: client id of length {length}")
        if version >= _FLEXIBLE_FROM.get(key, 0x7FFF):
            tags = view[at]
            at += 1
            if tags:
                at = skip_tags(view, at, tags)
    except DECODE_ERRORS as problem:
        raise MalformedFrame(f"request header: {problem}") from problem
    if at > len(view):
        raise MalformedFrame("request header: ends behind the frame")
    return RequestHeader(key, version, correlation_id, client_id, at)


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """Return a whole frame, size included. Raises KeyError for an unknown API key."""
    name, length = b"", -1
    if client_id is not None:
        name = client_id.encode()
        length = len(name)
    if version >= _FLEXIBLE_FROM[api_key]:
        name += b"\0"  # no tagged fields
    return _REQUEST_WITH_SIZE.pack(10 + len(name) + len(body), api_key, version, correlation_id, length) + name + body


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Return header 0 or 1 of a response, without the frame's size. ApiVersions responses always have header 0
    (KIP-511).
    """
    head = _INT32.pack(correlation_id)
    return head + b"\0" if version >= _FLEXIBLE_RESPONSE_FROM.get(api_key, 0x7FFF) else head


def decode_response_header(view: memoryview, api_key: int, version: int) -> tuple[int, int]:
    """Return the correlation id and the position of the body. Raises only MalformedFrame."""
    try:
        (correlation_id,) = _INT32.unpack_from(view, 0)
        at = 4
        if version >= _FLEXIBLE_RESPONSE_FROM.get(api_key, 0x7FFF):
            tags = view[4]
            at = 5
            if tags:
                at = skip_tags(view, at, tags)
    except DECODE_ERRORS as problem:
        raise MalformedFrame(f"response header: {problem}") from problem
    return correlation_id, at
