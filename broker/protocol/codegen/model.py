"""The form in which message definitions reach the emitter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds of fixed width and their struct codes. Beside them "B" is the first byte of a varint."""

SIZES: Final = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}

HINTS: Final = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "memoryview | bytes",
}
"""Python types of the kinds; the others are int."""


@dataclass(frozen=True, slots=True)
class FieldEncoding:
    """Describes how a field is encoded in one version."""

    name: str
    kind: str
    """A key of FIXED, "string", "bytes", "records", or "struct"."""
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    struct: str | None = None
    """Name of the structure where kind is "struct"."""


@dataclass(slots=True)
class FieldModel:
    """A field over all versions."""

    name: str
    kind: str
    array: bool
    nullable: bool
    """In at least one version."""
    default: object
    """An int, bool, float, str, bytes, None; () for an empty array; "struct" fields: None or ... for a new one."""
    struct: str | None = None
    ignorable: bool = False


@dataclass(slots=True)
class StructModel:
    """A structure over all versions of its message."""

    name: str
    fields: dict[str, FieldModel] = field(default_factory=dict)
    shapes: dict[int, tuple[FieldEncoding, ...]] = field(default_factory=dict)
    """Version -> fields in the order of the wire. Versions in which the structure does not occur are missing."""


@dataclass(slots=True)
class MessageModel:
    """A message: its own structure last, the structures within it before those that use them."""

    name: str
    api_key: int
    min_version: int
    max_version: int
    flexible_from: int
    structs: dict[str, StructModel]
