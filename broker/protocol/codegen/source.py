"""Builds pieces of Python source for the generated modules, such as names, type annotations and default values."""

from __future__ import annotations

import re
from collections.abc import Callable

from squall.broker.protocol.codegen.model import FIXED, HINTS, SIZES, FieldEncoding, FieldModel, MessageModel
from squall.broker.protocol.wire import ZERO_UUID

WIDTH = 120
"""Limits the characters in a line of generated code. The limit is that of all code in the project."""


class SourceWriter:
    """Collects lines of code, indented to the current depth."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, line: str = "") -> None:
        self.lines.append("    " * self.depth + line if line else "")

    def text(self) -> str:
        """Return the lines, with a newline after each."""
        return "\n".join(self.lines) + "\n"


def snake(name: str) -> str:
    """Return the name in snake case: MetadataRequestTopic becomes metadata_request_topic."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def hint(field: FieldModel) -> str:
    """Return the type annotation of a field."""
    base = field.struct or HINTS.get(field.kind, "int")
    if field.array:
        base = f"list[{base}]"
    return f"{base} | None" if field.nullable or (field.kind == "records" and field.default is None) else base


def literal(value: object) -> str:
    """Return the source code of a default value that is immutable, so that all instances of a class can share it."""
    if value == ZERO_UUID:
        return "ZERO_UUID"
    return '""' if value == "" else 'b""' if value == b"" else repr(value)


def needs_fresh_default(field: FieldModel) -> bool:
    """Return whether the field's default is a list or a structure, so that each object needs one of its own."""
    return field.default == () or field.default is ...


def fresh(field: FieldModel) -> str:
    """Return the source code of a field's default value. For arrays and structures the code makes a new object."""
    if field.default == ():
        return "[]"
    return f"{field.struct}()" if field.default is ... else literal(field.default)


class MessageNames:
    """Holds the message for which code is emitted, and names what the code uses: functions, formats and defaults."""

    def __init__(self, message: MessageModel, use: Callable[[str], str], add_format: Callable[[str], str]) -> None:
        """`use` imports a name from squall.broker.protocol.wire, and returns the name. `add_format` adds a precompiled
        `struct.Struct` of a format to the module, and returns its name there.
        """
        self.message, self.use, self.format = message, use, add_format
        self.out = SourceWriter()

    def flexible(self, version: int) -> bool:
        """Return whether the version has compact encodings and tagged fields."""
        return version >= self.message.flexible_from

    def shape_key(self, name: str, version: int) -> object:
        """Return a key of the structure's wire layout in a version. Two versions have equal keys exactly if the same
        bytes mean the same in both.
        """
        shape = self.message.structs[name].shapes[version]
        nested = tuple(self.shape_key(wire.struct, version) for wire in shape if wire.struct)
        return self.flexible(version), shape, nested

    def shape_version(self, name: str, version: int) -> int:
        """Return the first version with the same shape as `version`: the functions are named after it."""
        key = self.shape_key(name, version)
        return next(v for v in sorted(self.message.structs[name].shapes) if self.shape_key(name, v) == key)

    def function(self, verb: str, name: str, version: int) -> str:
        """Return the name of the function that reads or writes (`verb`: "read" or "write") a structure in a version."""
        return f"_{verb}_{snake(name)}_{self.shape_version(name, version)}"

    def smallest(self, wire: FieldEncoding, version: int) -> int:
        """Return the least number of bytes that the field takes or, if it is an array, one of its elements."""
        if wire.kind in FIXED:
            return SIZES[FIXED[wire.kind]]
        flexible = self.flexible(version)
        if wire.kind == "string":
            return 1 if flexible else 2
        if wire.kind in ("bytes", "records"):
            return 1 if flexible else 4
        assert wire.struct is not None
        total = 1 if flexible else 0
        for inner in self.message.structs[wire.struct].shapes[version]:
            if inner.tag is not None:
                continue
            if inner.array:
                total += 1 if flexible else 4
            elif inner.kind == "struct" and inner.nullable:
                total += 1
            else:
                total += self.smallest(inner, version)
        return total

    def literal(self, field: FieldModel) -> str:
        """Return the source code of a field's default value, which is immutable. For the zero UUID it is "ZERO_UUID",
        and the generated module imports that name.
        """
        text = literal(field.default)
        return self.use(text) if text == "ZERO_UUID" else text

    def fresh(self, field: FieldModel) -> str:
        """Return the source code of a default value. For arrays and structures the code makes a new object."""
        text = fresh(field)
        return self.use(text) if text == "ZERO_UUID" else text
