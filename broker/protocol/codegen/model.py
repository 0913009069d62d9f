"""Defines the model of message definitions from which `emit` makes source code."""

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
"""Maps the kinds of fixed width to their `struct` codes. Emitters also use a code that belongs to no kind: "B" for the
first byte of a varint.
"""

SIZES: Final = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}

HINTS: Final = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "memoryview | bytes",
}
"""Maps the kind of a field to its Python type; kinds that are missing here have the type int."""


@dataclass(frozen=True, slots=True)
class FieldEncoding:
    """Describes how a field is encoded in one version."""

    name: str
    kind: str
    """Names the type of the field or, if it is an array, of its elements: a key of FIXED, "string", "bytes", "records",
    or "struct".
    """
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    struct: str | None = None
    """Names the structure if the kind is "struct"."""


@dataclass(slots=True)
class FieldModel:
    """Describes a field over all versions."""

    name: str
    kind: str
    array: bool
    nullable: bool
    """Is True if the field is nullable in at least one version."""
    default: object
    """Gives the value that a new object has in this field. () means an empty list, and Ellipsis means a new structure.
    """
    struct: str | None = None
    ignorable: bool = False


@dataclass(slots=True)
class StructModel:
    """Describes a structure over all versions of its message."""

    name: str
    fields: dict[str, FieldModel] = field(default_factory=dict)
    shapes: dict[int, tuple[FieldEncoding, ...]] = field(default_factory=dict)
    """Maps each version to the fields in the order of the wire. Versions without the structure are missing."""


@dataclass(slots=True)
class MessageModel:
    """Describes a message. `structs` lists structures before the structures that contain them; the message's own is the
    last.
    """

    name: str
    api_key: int
    min_version: int
    max_version: int
    flexible_from: int
    structs: dict[str, StructModel]
