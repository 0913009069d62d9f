"""Builds pieces of Python source for the generated modules, such as names, type annotations and default values."""

from __future__ import annotations

import re

from squall.broker.protocol.codegen.model import HINTS, FieldModel
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
