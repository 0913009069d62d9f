"""Encodes and decodes the records of coordinators' logs. Keys and values begin with an int16: in a key it is the
record's type (the class's API_KEY), in a value the version in which the value is encoded.

A tombstone has no value. The metadata that consumers exchange through a classic group, and the principal in an
Envelope, also begin with their version.
"""

from __future__ import annotations

from struct import Struct
from types import ModuleType
from typing import Final, TypeVar

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.wire import Message

_INT16: Final = Struct(">h")
M = TypeVar("M", bound=Message)


def encode_key(message: Message) -> bytes:
    """Return the encoded key of a record of __consumer_offsets or __transaction_state: the record's type, then the
    fields of `message` (an OffsetCommitKey, for example).
    """
    return _INT16.pack(message.API_KEY) + message.encode(0)


def encode_versioned(message: Message, version: int) -> bytes:
    """Return `message` preceded by its version, as in the value of a record of __consumer_offsets or in the metadata
    that a consumer sends.
    """
    return _INT16.pack(version) + message.encode(version)


def decode_versioned(found: type[M], data: bytes | memoryview) -> M:
    """Decode a message of the class `found` that begins with its version, an int16. A version above the known ones is
    read as the highest known one (KIP-915).

    Raises only MalformedFrame.
    """
    if len(data) < 2:
        raise MalformedFrame(f"{found.__name__} without a version")
    view = memoryview(data)
    version = int(_INT16.unpack_from(view, 0)[0])
    return found.decode(view, 2, min(version, found.MAX_VERSION))[0]


def decode_group_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> tuple[Message, Message | None] | None:
    """Return the decoded key and value of a record of __consumer_offsets. The value is None for a tombstone. For an
    unknown record type the function returns None instead of a pair.

    Raises only MalformedFrame.
    """
    from squall.broker.protocol.schema import group_records

    return _decode(group_records, key, value)


def decode_transaction_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> tuple[Message, Message | None] | None:
    """Return the decoded key and value of a record of __transaction_state. The value is None for a tombstone. For an
    unknown record type the function returns None instead of a pair.

    Raises only MalformedFrame.
    """
    from squall.broker.protocol.schema import transaction_records

    return _decode(transaction_records, key, value)


def _decode(
    module: ModuleType, key: bytes | memoryview, value: bytes | memoryview | None
) -> tuple[Message, Message | None] | None:
    if len(key) < 2:
        raise MalformedFrame("a coordinator's record without a type")
    view = memoryview(key)
    pair = _pairs(module).get(int(_INT16.unpack_from(view, 0)[0]))
    if pair is None:
        return None
    named, _ = pair[0].decode(view, 2, 0)
    return named, None if value is None else decode_versioned(pair[1], value)


_PAIRS: Final[dict[str, dict[int, tuple[type[Message], type[Message]]]]] = {}


def _pairs(module: ModuleType) -> dict[int, tuple[type[Message], type[Message]]]:
    """Return the classes of key and value for each record type of a schema module."""
    found = _PAIRS.get(module.__name__)
    if found is None:
        keys = {name.removesuffix("Key"): cls for name, cls in vars(module).items() if name.endswith("Key")}
        found = {cls.API_KEY: (cls, getattr(module, name + "Value")) for name, cls in keys.items()}
        _PAIRS[module.__name__] = found
    return found
