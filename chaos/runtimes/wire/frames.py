"""Finds Kafka's requests and responses ("frames") inside a stream of bytes. It reports them for diagrams, or cuts them
out for faults that act on single frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from struct import Struct
from typing import Any

from squall.broker.protocol.apis import ApiKey, request_class, response_class
from squall.broker.protocol.errors import MalformedFrame, name_of
from squall.broker.protocol.header import decode_request_header, decode_response_header, encode_response_header
from squall.broker.protocol.hot import ProduceIn, decode_produce
from squall.broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse

SIZE = 4
REQUEST_HEAD = 12
"""Counts the bytes of a request's head: size, API key, version, correlation id."""
RESPONSE_HEAD = 8
"""Counts the bytes of a response's head: size, correlation id."""
LARGEST = 256 << 20
"""Limits a frame's size, in bytes; larger sizes are not frames of Kafka's."""

_size = Struct(">i").unpack_from
_request = Struct(">ihhi").unpack_from
_response = Struct(">ii").unpack_from
_length = Struct(">i").pack

METADATA_FETCH = 10_001
"""Is a number of Squall's own, in place of the API key, for Fetch requests that read the metadata log. They use the
same Kafka API as a replica fetch, but faults treat them as another kind of traffic.
"""
PRODUCE, FETCH, END_TXN = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.END_TXN)
PRODUCE_VERSIONS = [(PRODUCE, version) for version in range(3, 14)]
"""Lists the API keys and versions that `decode_produce` reads."""


class BrokerTrafficKind(StrEnum):
    """Names the kinds of requests between brokers: those of followers to leaders, and those to or from controllers."""

    REPLICATION = "replication"
    CONTROLLER = "controller"


TRAFFIC: Mapping[BrokerTrafficKind, tuple[int, ...]] = {
    BrokerTrafficKind.REPLICATION: (FETCH, int(ApiKey.LIST_OFFSETS), int(ApiKey.OFFSET_FOR_LEADER_EPOCH)),
    BrokerTrafficKind.CONTROLLER: (METADATA_FETCH, 52, 53, 54, 55, 56, 57, 58, 59, 62, 63, 64, 67, 70),
}
"""Maps a kind of broker traffic to its API keys. Those of CONTROLLER are, besides METADATA_FETCH: Vote,
BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum, AlterPartition, UpdateFeatures, Envelope, FetchSnapshot,
BrokerRegistration, BrokerHeartbeat, UnregisterBroker, AllocateProducerIds and ControllerRegistration. ApiVersions
belongs to no kind.
"""
ERROR_FIELDS = ("error_code", "partition_error_code")
METADATA_TOPIC, METADATA_TOPIC_ID = "__cluster_metadata", bytes(15) + b"\1"

ALIASES = {
    "responses": "topic_data",
    "partition_responses": "partition_data",
    "results_by_topic_v3_and_below": "v3_and_below_topics",
    "topic_results": "topics",
}
"""Maps a field of a response to the request's field from which its names and ids are copied, where the two fields have
different names.
"""
RESULTS = "results_by_"
"""Is the prefix of response fields whose names and ids repeat a field of the request: `results_by_topic` repeats
`topics`.
"""


def request_head(head: bytes | bytearray | memoryview) -> tuple[int, int, int, int]:
    """Return (size, API key, version, correlation id) from a request's first 12 bytes."""
    size, api, version, correlation_id = _request(head)
    return size, api, version, correlation_id


def response_head(head: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return (size, correlation id) from a response's first 8 bytes."""
    size, correlation_id = _response(head)
    return size, correlation_id


class Framer:
    """Finds where frames begin and end in a stream. Calls `seen` with the first bytes of each frame (its head) as soon
    as the head is complete.

    After an impossible size the positions of later frames are unknown, so all later bytes pass unchanged.
    """

    __slots__ = ("_head", "_head_size", "_held", "_left", "_lost", "_seen")

    def __init__(self, head_size: int, seen: Callable[[bytearray], None]) -> None:
        self._head_size = head_size
        self._seen = seen
        self._head = bytearray()
        self._left = 0
        self._held = bytearray()
        self._lost = False

    @property
    def holds(self) -> bool:
        """Is True if part of a frame is kept until the other bytes of the frame arrive."""
        return bool(self._held)

    def follow(self, data: bytes) -> None:
        """Parse bytes that the caller passes on unchanged, to find where frames begin and end."""
        if self._lost:
            return
        at, end = 0, len(data)
        if end >= self._head_size and not self._left and not self._head and _size(data)[0] + SIZE == end:
            self._seen(bytearray(data[: self._head_size]))  # one whole frame, as most often
            return
        while at < end:
            if self._left:
                passed = min(self._left, end - at)
                self._left -= passed
                at += passed
                continue
            wanted = self._head_size - len(self._head)
            self._head += data[at : at + wanted]
            at = min(end, at + wanted)
            if len(self._head) == self._head_size:
                if self._is_none(self._head):
                    self._lost = True
                    self._head.clear()
                    return
                self._left = _size(self._head)[0] + SIZE - self._head_size
                head, self._head = self._head, bytearray()
                self._seen(head)

    def cut(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """Add bytes that arrived. Returns the bytes that can be passed on: first the remaining bytes of a frame whose
        beginning has already passed, then the list of complete frames behind it.

        An incomplete frame is kept until its other bytes arrive, or until `rest` is called.
        """
        if self._lost:
            return data, []
        passing = b""
        if self._left or self._head:
            before = len(data)
            passing, data = self._rest_of_frame(data)
            assert len(passing) + len(data) == before
            if self.lost:
                return passing + data, []
        self._held += data
        frames = []
        while len(self._held) >= SIZE:
            if self._is_none(self._held):
                self._lost = True
                frames.append(self.rest())
                break
            whole = _size(self._held)[0] + SIZE
            if len(self._held) < whole:
                break
            frames.append(bytes(self._held[:whole]))
            del self._held[:whole]
        return passing, frames

    def rest(self) -> bytes:
        """Return the bytes of the incomplete frame that was kept, and forget them."""
        held = bytes(self._held)
        self._held.clear()
        return held

    @property
    def lost(self) -> bool:
        """Is True if frames can no longer be found in this stream."""
        return self._lost

    def _is_none(self, head: bytearray) -> bool:
        return not self._head_size - SIZE <= _size(head)[0] <= LARGEST

    def _rest_of_frame(self, data: bytes) -> tuple[bytes, bytes]:
        at = 0
        while at < len(data) and (self._left or self._head):
            step = self._left or self._head_size - len(self._head)
            self.follow(data[at : at + step])
            at = min(len(data), at + step)
        return data[:at], data[at:]


def fetches_metadata(request: bytes) -> bool:
    """Return whether a Fetch request asks for the metadata log. False for a request that cannot be read."""
    view = memoryview(request)[SIZE:]
    try:
        header = decode_request_header(view)
        decoded, _ = request_class(header.api_key).decode(view, header.body, header.api_version)
    except (MalformedFrame, KeyError, ValueError):
        return False
    asked: Any = decoded
    # A Fetch names topics up to version 12, and has their ids from version 13 on (KIP-516).
    return any(topic.topic == METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID for topic in asked.topics)


def decode_produce_request(request: bytes) -> tuple[str | None, ProduceIn] | None:
    """Return the client id and the content of a Produce request; None if it is another request, or cannot be read."""
    if len(request) < REQUEST_HEAD or request_head(request)[1:3] not in PRODUCE_VERSIONS:
        return None
    view = memoryview(request)[SIZE:]
    try:
        header = decode_request_header(view)
        return header.client_id, decode_produce(view, header.body, header.api_version)
    except (MalformedFrame, KeyError, ValueError):
        return None


def describe_end_txn(request: bytes) -> str:
    """Describe an EndTxn request in words: its transactional id, commit or abort, and its producer. Empty if it cannot
    be read.
    """
    view = memoryview(request)[SIZE:]
    try:
        header = decode_request_header(view)
        asked, _ = EndTxnRequest.decode(view, header.body, header.api_version)
    except (MalformedFrame, KeyError, ValueError):
        return ""
    how = "commit" if asked.committed else "abort"
    return f"{how} of {asked.transactional_id}, producer {asked.producer_id}, epoch {asked.producer_epoch}"


def end_txn_error_in(version: int, response: bytes) -> str:
    """Return the error that answers an EndTxn of this version; NONE for success, empty if it cannot be read."""
    view = memoryview(response)[SIZE:]
    try:
        _, body = decode_response_header(view, END_TXN, version)
        answer, _ = EndTxnResponse.decode(view, body, version)
    except (MalformedFrame, KeyError, ValueError):
        return ""
    return name_of(answer.error_code)


def error_answer(request: bytes, error: int) -> bytes | None:
    """Return the response frame that answers a request frame with `error` in every error field. None if the response
    has no error field, or if the request cannot be read.
    """
    view = memoryview(request)[SIZE:]
    try:
        header = decode_request_header(view)
        decoded, _ = request_class(header.api_key).decode(view, header.body, header.api_version)
    except (MalformedFrame, KeyError, ValueError):
        return None
    response = response_class(header.api_key)()
    if not _mirror(decoded, response, error):
        return None
    body = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    body += response.encode(header.api_version)
    return _length(len(body)) + body


def _mirror(asked: Any, answer: Any, error: int) -> bool:
    """Fill a response from its request: copy names and ids, and set every error code to `error`. Returns False if the
    response has no error code field.
    """
    found = False
    for name in answer.__slots__:
        if name in ERROR_FIELDS:
            setattr(answer, name, error)
            found = True
            continue
        given = _asked(asked, name)
        kind = ITEMS[type(answer).__module__, type(answer).__name__, name]
        if kind is not None and isinstance(given, list):
            items = []
            for each in given:
                item = kind()
                found |= _mirror(each, item, error) if hasattr(each, "__slots__") else _index(item, each, error)
                items.append(item)
            setattr(answer, name, items)
        elif given is not None and isinstance(given, type(getattr(answer, name))) and not isinstance(given, list):
            setattr(answer, name, given)
    return found


def _asked(asked: Any, name: str) -> Any:
    """Return the value in a request from which the field `name` of its response is filled; None if there is no such
    value. asked: the decoded request, or an item of a list in it.
    """
    other = f"{name.removeprefix(RESULTS)}s" if name.startswith(RESULTS) else name
    given = getattr(asked, ALIASES.get(name, other), None)
    return given if given is not None or name != "partitions" else getattr(asked, "partition_indexes", None)


def _index(item: Any, index: Any, error: int) -> bool:
    """Fill `item`, one partition of a response: set its number to `index` and its error code to `error`. This is for
    requests that list partitions as plain numbers, such as OffsetFetch. Returns whether the item has an error code
    field.
    """
    if hasattr(item, "partition_index"):
        item.partition_index = index
    if hasattr(item, "committed_offset"):
        item.committed_offset = -1  # as where nothing is committed: who overlooks the error finds nothing
    found = [name for name in ERROR_FIELDS if hasattr(item, name)]
    for name in found:
        setattr(item, name, error)
    return bool(found)


class _ListFieldTypes(dict[tuple[str, str, str], Any]):
    """Maps (module, class, field) of a message to the class of the items in that field, if it is a list of structures.
    The value is None for other fields.
    """

    def __missing__(self, key: tuple[str, str, str]) -> Any:
        import importlib
        import inspect
        import re

        module = importlib.import_module(key[0])
        # Only the annotation says what a list is made of: in a new response all lists are empty.
        annotation = str(inspect.signature(getattr(module, key[1]).__init__).parameters[key[2]].annotation)
        found = re.match(r"list\[(\w+)\]", annotation)
        self[key] = kind = getattr(module, found.group(1), None) if found else None
        return kind


ITEMS = _ListFieldTypes()
