"""Encodes and decodes the records of the metadata log: metadata records, and KRaft's own control records.

A metadata record is the value of a record: frame version 1, api key and version as unsigned varints, then the body. A
control record has an int16 version and an int16 type as its key, and a body that begins with its own version.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema import control_records, metadata_records
from squall.broker.protocol.wire import DECODE_ERRORS, UVARINT, Buffer, Message, more

FRAME_VERSION: Final = 1

METADATA_RECORDS: Final[dict[int, type[Message]]] = {
    found.API_KEY: found
    for found in vars(metadata_records).values()
    if isinstance(found, type) and issubclass(found, Message) and found is not Message
}
"""Maps the type number of a metadata record (`apiKey` in Kafka's schemas) to the record's message class."""

ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(7)
"""Are the types of control records. 0 and 1 end transactions in ordinary partitions, the others occur in the metadata
log.
"""

CONTROL_RECORDS: Final[dict[int, type[Message]]] = {
    LEADER_CHANGE: control_records.LeaderChangeMessage,
    SNAPSHOT_HEADER: control_records.SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: control_records.SnapshotFooterRecord,
    KRAFT_VERSION: control_records.KRaftVersionRecord,
    KRAFT_VOTERS: control_records.VotersRecord,
}
"""Maps each type of control record to the class of its value."""

_TYPE_OF: Final = {found: kind for kind, found in CONTROL_RECORDS.items()}
_KEY: Final = Struct(">hh")
_INT16: Final = Struct(">h")


def encode_metadata_record(message: Message, version: int) -> bytes:
    """Return the value of a record that holds `message`. Raises ValueError if `message` is no metadata record."""
    if METADATA_RECORDS.get(message.API_KEY) is not message.__class__:
        raise ValueError(f"{message.__class__.__name__} is no metadata record")
    return b"".join((b"\x01", UVARINT[message.API_KEY], UVARINT[version], message.encode(version)))


def decode_metadata_record(value: Buffer) -> Message:
    """Return the message that a record's value holds. Raises only MalformedFrame, also for an unknown record or
    version.
    """
    view = memoryview(value)
    try:
        frame, at = _unsigned(view, 0)
        key, at = _unsigned(view, at)
        version, at = _unsigned(view, at)
    except DECODE_ERRORS as problem:
        raise MalformedFrame(f"metadata record: {problem}") from problem
    if frame != FRAME_VERSION:
        raise MalformedFrame(f"a metadata record of frame version {frame}")
    found = METADATA_RECORDS.get(key)
    if found is None:
        raise MalformedFrame(f"no metadata record has api key {key}")
    message, at = found.decode(view, at, version)
    if at != len(view):
        raise MalformedFrame(f"{len(view) - at} bytes behind {found.__name__}")
    return message


def _unsigned(view: memoryview, at: int) -> tuple[int, int]:
    n = view[at]
    return (n, at + 1) if n < 128 else more(view, at + 1, n)


def encode_control_record(message: Message, version: int = 0) -> tuple[bytes, bytes]:
    """Return key and value of a KRaft control record. The value is `message`, encoded in schema version `version`, and
    begins with that version. Raises ValueError if `message` is no control record.
    """
    kind = _TYPE_OF.get(message.__class__)
    if kind is None:
        raise ValueError(f"{message.__class__.__name__} is no control record of the metadata log")
    return _KEY.pack(0, kind), message.replace(version=version).encode(version)


def decode_control_record(key: Buffer | None, value: Buffer | None) -> tuple[int, Message | None]:
    """Return type and message of a control record. The message is None for a type that is not KRaft's. Raises only
    MalformedFrame.
    """
    kind = control_type(key)
    found = CONTROL_RECORDS.get(kind)
    if found is None:
        return kind, None
    if value is None or len(value) < 2:
        raise MalformedFrame(f"a {found.__name__} without a version")
    view = memoryview(value)
    version = min(_INT16.unpack_from(view, 0)[0], found.MAX_VERSION)
    return kind, found.decode(view, 0, version)[0]


def control_type(key: Buffer | None) -> int:
    """Return the type that a control record's key names. Raises only MalformedFrame."""
    if key is None or len(key) < 4:
        raise MalformedFrame("a control record without a type")
    version, kind = _KEY.unpack_from(key, 0)
    if version < 0:
        raise MalformedFrame(f"a control record of version {version}")
    return int(kind)
