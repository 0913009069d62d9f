"""Decodes requests and encodes responses of Produce and Fetch by hand, because every batch passes through them. For
followers it also encodes Fetch requests and decodes Fetch responses.

The messages are plain tuples and slices of the receive buffer instead of message objects. Topics keep the bytes that
name them on the wire (UTF-8 name, or the 16-byte id from Fetch and Produce 13 on), which are the broker's dictionary
keys. Tests compare the results with the generated classes in squall.broker.protocol.schema.

A decoder's work is bounded by the bytes that are there, never by a number from the peer. It raises only MalformedFrame.
Views of records are slices of the buffer that was passed in, and valid as long as the buffer is.
"""

from __future__ import annotations

from squall.broker.protocol.hot.fetch_request import decode_fetch, encode_fetch_request
from squall.broker.protocol.hot.fetch_response import decode_fetch_response, encode_fetch_response
from squall.broker.protocol.hot.produce import decode_produce, encode_produce_response
from squall.broker.protocol.hot.types import (
    MAX_BYTES_UNLIMITED,
    NO_HIGH_WATERMARK,
    FetchIn,
    FetchOut,
    FetchRequestPartition,
    FetchResponsePartition,
    NodeEndpoint,
    ProduceIn,
    ProducePart,
    ProducePartOut,
    Topic,
)

__all__ = [
    "MAX_BYTES_UNLIMITED",
    "NO_HIGH_WATERMARK",
    "FetchIn",
    "FetchOut",
    "FetchRequestPartition",
    "FetchResponsePartition",
    "NodeEndpoint",
    "ProduceIn",
    "ProducePart",
    "ProducePartOut",
    "Topic",
    "decode_fetch",
    "decode_fetch_response",
    "decode_produce",
    "encode_fetch_request",
    "encode_fetch_response",
    "encode_produce_response",
]
