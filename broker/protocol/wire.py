"""Defines what generated schema code and hand-written codecs share: varints, prefixed values, tagged fields, the base
class.

Decoders take a memoryview of bytes (format "B") and a position, and return the value with the position after it. They
bound their work by the bytes that are there, never by a number from a peer:

* a fixed-width read or an index behind the end raises (struct.error, IndexError),
* a slice behind the end is cut short without an error; so the position, which only grows, is checked after a message,
* an array's length is compared with the bytes left, divided by its element's smallest size, before the first element.

`Message.decode` turns all of that into `MalformedFrame`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error, pack, unpack_from
from typing import Any, ClassVar, Final, Self

from squall.broker.protocol.errors import MalformedFrame

Buffer = bytes | memoryview
Write = Callable[[Buffer], object]

ZERO_UUID: Final = bytes(16)
"""Is the UUID that means none."""

NEW: Any = object()
"""Is the default of a constructor argument whose default value is mutable, such as an empty list: each object gets a
new list.
"""

DECODE_ERRORS: Final = (error, IndexError, UnicodeDecodeError)
"""Lists the errors that a decoder raises for a read behind the end, or for text that is no UTF-8."""


class _UvarintTable(dict[int, bytes]):
    """Maps numbers to unsigned varints. Varints of one byte are stored, because most lengths have one; longer varints
    are made on demand.
    """

    def __missing__(self, n: int) -> bytes:
        if n < 0:
            raise ValueError(f"{n} as an unsigned varint")
        if n < 1 << 14:
            return bytes((n & 127 | 128, n >> 7))
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        out.append(n)
        return bytes(out)


UVARINT: Final = _UvarintTable({n: bytes((n,)) for n in range(128)})
"""Maps a number, 0 or more, to its unsigned varint. It is a mapping and no function, because a call costs more than
most look-ups.
"""

LONGEST_STRING: Final = 0x7FFF
"""Limits the bytes of a string. Older versions of Kafka's messages, and the records of coordinators, give the length as
an int16; Kafka refuses a longer string in newer versions too.
"""


class _StringLengthTable(dict[int, bytes]):
    """Maps a string's length + 1 to its varint, as `UVARINT` does. Raises ValueError for a string too long to be
    decoded again: once in a replicated log, it would stop every node that reads it.
    """

    def __missing__(self, n: int) -> bytes:
        if n > LONGEST_STRING + 1:
            raise ValueError(f"a string of {n - 1} bytes")
        return UVARINT[n]


_STRING_LENGTH: Final = _StringLengthTable(UVARINT)

new = object.__new__

_pack_h: Final = Struct(">h").pack
_pack_i: Final = Struct(">i").pack
_INT32S: Final = [Struct(f">{n}i").unpack_from for n in range(9)]


class Structure:
    """Is the base of every generated class: equality by value, a readable repr, copies with changes. Not hashable."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{self.__class__.__name__}({inner})"

    def replace(self, **changes: Any) -> Self:
        """Return a shallow copy in which the named fields have new values. Raises TypeError for an unknown field."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__match_args__}
        return self.__class__(**(values | changes))


class Message(Structure):
    """Is the base of requests, responses and records. One class serves all versions of a message.

    A field that a version lacks has its default after decoding, and encoding leaves it out. Encoding raises ValueError
    if such a field has another value than its default, unless Kafka's schema calls the field ignorable.
    """

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0
    DECODERS: ClassVar[tuple[Callable[[memoryview, int], tuple[Any, int]], ...]] = ()
    """Holds a decoder per version, indexed by version - MIN_VERSION. A decoder raises any of DECODE_ERRORS, and may
    return a position behind the end.
    """
    ENCODERS: ClassVar[tuple[Callable[[Any, Write], None], ...]] = ()

    @classmethod
    def decode(cls, view: memoryview, at: int, version: int) -> tuple[Self, int]:
        """Decode one message from byte `at`. Return it and the position after it. Raises only MalformedFrame."""
        try:
            index = version - cls.MIN_VERSION
            if index < 0:
                raise MalformedFrame("no such version")
            found, at = cls.DECODERS[index](view, at)
        except (MalformedFrame, *DECODE_ERRORS) as problem:
            raise MalformedFrame(f"{cls.__name__} version {version}: {problem}") from problem
        if at > len(view):
            raise MalformedFrame(f"{cls.__name__} version {version}: ends {at - len(view)} bytes behind the frame")
        return found, at

    def encode(self, version: int) -> bytes:
        """Return the message's bytes, without header. Raises ValueError if the schema has no such version, or no place
        for a value.
        """
        parts: list[Buffer] = []
        index = version - self.MIN_VERSION
        if not 0 <= index < len(self.ENCODERS):
            raise ValueError(f"{self.__class__.__name__} has no version {version}")
        try:
            self.ENCODERS[index](self, parts.append)
            return b"".join(parts)
        except (error, TypeError, AttributeError) as problem:
            raise ValueError(f"{self.__class__.__name__} version {version}: {problem}") from problem


def more(view: memoryview, at: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint, whose first byte (128 or more) is before `at`. Return the number and the
    position after it. The whole varint has at most 5 bytes.
    """
    value = first & 127
    byte = view[at]
    at += 1
    value |= (byte & 127) << 7
    if byte < 128:
        return value, at
    for shift in (14, 21, 28):
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise MalformedFrame("a varint of more than five bytes")


def more_of_string(view: memoryview, at: int, first: int) -> tuple[int, int]:
    """Read the rest of the varint before a compact string; `first`, its first byte (128 or more), is before `at`.
    Return the string's length + 1 and the position after the varint.
    """
    value, at = more(view, at, first)
    if value > LONGEST_STRING + 1:
        raise MalformedFrame(f"a string of {value - 1} bytes")
    return value, at


def negative(n: int) -> MalformedFrame:
    """Return the error for a length below zero in a field that is not nullable (or below -1 in a field that is)."""
    return MalformedFrame(f"length {n} of a field that cannot be null")


def too_many(n: int) -> MalformedFrame:
    """Return the error for an array that has more elements than the bytes left can hold."""
    return MalformedFrame(f"an array of {n} elements in fewer bytes than they need")


def tag_size(tag: int) -> MalformedFrame:
    """Return the error for a tagged field whose content does not end where the size before it says."""
    return MalformedFrame(f"the content of tagged field {tag} does not fill its size")


def skip_tags(view: memoryview, at: int, count: int) -> int:
    """Return the position after the tagged fields. They begin with a varint, the number of fields. The first byte of
    this varint is `count`, which is not 0; the second byte is at `at`.
    """
    if count > 127:
        count, at = more(view, at, count)
    end = len(view)
    for _ in range(count):
        n = view[at]
        at += 1
        if n > 127:
            n, at = more(view, at, n)
        n = view[at]
        at += 1
        if n > 127:
            n, at = more(view, at, n)
        at += n
        if at > end:
            raise MalformedFrame("a tagged field that ends behind the frame")
    return at


def read_tag(view: memoryview, at: int) -> tuple[int, int, int]:
    """Return the tag of one tagged field, the position of its content and the position after it."""
    tag = view[at]
    at += 1
    if tag > 127:
        tag, at = more(view, at, tag)
    n = view[at]
    at += 1
    if n > 127:
        n, at = more(view, at, n)
    if at + n > len(view):
        raise MalformedFrame("a tagged field that ends behind the frame")
    return tag, at, at + n


def int8s(view: memoryview, at: int, n: int) -> list[int]:
    """Read an array of `n` int8 at position `at`."""
    if n > len(view) - at:
        raise too_many(n)
    return list(view[at : at + n].cast("b"))


def int16s(view: memoryview, at: int, n: int) -> list[int]:
    """Read an array of `n` int16 at position `at`."""
    if n > (len(view) - at) // 2:
        raise too_many(n)
    return list(unpack_from(f">{n}h", view, at))


def int32s(view: memoryview, at: int, n: int) -> list[int]:
    """Read an array of `n` int32 at position `at`."""
    if n < 9:
        return list(_INT32S[n](view, at))
    if n > (len(view) - at) // 4:
        raise too_many(n)
    return list(unpack_from(f">{n}i", view, at))


def int64s(view: memoryview, at: int, n: int) -> list[int]:
    """Read an array of `n` int64 at position `at`."""
    if n > (len(view) - at) // 8:
        raise too_many(n)
    return list(unpack_from(f">{n}q", view, at))


def uuids(view: memoryview, at: int, n: int) -> list[bytes]:
    """Read an array of `n` UUIDs at position `at`."""
    if n > (len(view) - at) // 16:
        raise too_many(n)
    return [view[i : i + 16].tobytes() for i in range(at, at + 16 * n, 16)]


def string(text: str) -> bytes:
    """Encode a string, preceded by its int16 length."""
    raw = text.encode()
    return _pack_h(len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    """Encode a string, preceded by its int16 length, or -1 for None."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _pack_h(len(raw)) + raw


def compact_string(text: str) -> bytes:
    """Encode a string, preceded by its length + 1 as a varint."""
    raw = text.encode()
    return _STRING_LENGTH[len(raw) + 1] + raw


def compact_nullable_string(text: str | None) -> bytes:
    """Encode a string, preceded by its length + 1 as a varint, or 0 for None."""
    if text is None:
        return b"\0"
    raw = text.encode()
    return _STRING_LENGTH[len(raw) + 1] + raw


def length(items: Sequence[object] | Buffer) -> bytes:
    """Encode the int32 length before an array or bytes."""
    return _pack_i(len(items))


def packed(code: str, items: Sequence[object]) -> bytes:
    """Encode an array's elements of fixed width; `code` is their struct code."""
    return pack(f">{len(items)}{code}", *items)


def absent(name: str) -> ValueError:
    """Return the error for a field that has a value although the version to be written has no such field."""
    return ValueError(f"field {name} has a value, but this version has no such field")


def tagged(tag: int, content: bytes) -> bytes:
    """Encode one tagged field."""
    return UVARINT[tag] + UVARINT[len(content)] + content


def uuid(value: bytes) -> bytes:
    """Return `value`, after a check that it has 16 bytes."""
    if len(value) != 16:
        raise ValueError(f"a UUID of {len(value)} bytes")
    return value


def null(name: str) -> ValueError:
    """Return the error for None in a field that is not nullable in the version to be written."""
    return ValueError(f"field {name} cannot be null in this version")
