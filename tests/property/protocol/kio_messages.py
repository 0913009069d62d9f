"""Messages of the library kio as an oracle: random values of its classes, their bytes, and the same values in our
classes.

Import only where kio may be used: it never decodes bytes here that it has not written itself.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import sys
from functools import cache
from pkgutil import resolve_name
from types import NoneType
from typing import Any, NamedTuple, get_args
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from kio.serial._introspect import classify_field, is_optional
from kio.static.constants import EntityType

from squall.broker.protocol import apis
from squall.broker.protocol.codegen.build import CONSUMER_PROTOCOL, CONTROL_RECORDS
from squall.broker.protocol.codegen.source import snake
from squall.broker.protocol.wire import Message


class Subject(NamedTuple):
    """One of our message classes, and kio's class for the same message."""

    ours: type[Message]
    by_version: dict[int, type[Any]]

    def __repr__(self) -> str:
        return self.ours.__name__


def kio_classes(module: str, kind: str) -> dict[int, type[Any]]:
    """Return the classes of the library kio for one message, by version. `kind` is "request", "response" or "data"."""
    entity = EntityType[kind]
    found: dict[int, type[Any]] = {}
    for version, by_kind in sorted(schema_name_map[module].items()):
        target = by_kind.get(entity)
        if target is not None:
            found[int(version)] = resolve_name(target)
    return found


def our_name(field: dataclasses.Field[Any]) -> str:
    """Return a field's name in the generated classes: Kafka's, in snake case. kio drops the unit if the field's type
    has one ("throttle_time" for "throttle_time_ms"), and puts an underscore behind names that Python uses.
    """
    kind = field.metadata.get("kafka_type", "")
    return field.name + "_ms" if kind.startswith(("timedelta", "datetime")) else field.name.rstrip("_")


@cache
def subjects() -> tuple[Subject, ...]:
    """Return every message that kio has, too."""
    found = []
    for api in apis.APIS.values():
        found.append(Subject(apis.request_class(api.key), kio_classes(api.module, "request")))
        found.append(Subject(apis.response_class(api.key), kio_classes(api.module, "response")))
    from squall.broker.protocol.schema import consumer_protocol, control_records, default_principal

    for module, sources in (
        (control_records, CONTROL_RECORDS),
        (consumer_protocol, CONSUMER_PROTOCOL),
        (default_principal, ("DefaultPrincipalData",)),
    ):
        for source in sources:
            found.append(Subject(getattr(module, source), kio_classes(snake(source), "data")))
    return tuple(found)


def kio_bytes(message: Any) -> bytes:
    """Return the bytes that kio writes for one of its messages."""
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def _int(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_LONG = st.sampled_from((126, 127, 128, 300)).map(lambda n: "é" * (n // 2) + "x" * (n % 2))
_MILLISECONDS = st.integers(-(1 << 31), (1 << 31) - 1).map(lambda n: datetime.timedelta(milliseconds=n))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _int(8),
    "int16": _int(16),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": _int(32),
    "int64": _int(64),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.one_of(st.text(max_size=6), _LONG),
    "bytes": st.one_of(st.binary(max_size=6), _LONG.map(str.encode)),
    "records": st.binary(max_size=200),
    "uuid": st.one_of(st.none(), st.integers(1, (1 << 128) - 1).map(lambda n: UUID(int=n))),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _MILLISECONDS,
    "timedelta_i64": _MILLISECONDS,
    "datetime_i64": st.integers(0, 1 << 41).map(lambda n: _EPOCH + datetime.timedelta(milliseconds=n)),
}


@cache
def messages(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy that draws messages of one of kio's classes."""
    return st.builds(cls, **{field.name: _values(field) for field in dataclasses.fields(cls)})


def _values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    found = classify_field(field)
    if dataclasses.is_dataclass(found.type_):
        element = messages(found.type_)
    else:
        element = VALUES[field.metadata["kafka_type"]]
    values = st.lists(element, max_size=3).map(tuple) if found.is_array else element
    is_tagged, has_null_default = "tag" in field.metadata, field.default is None
    nullable = NoneType in get_args(field.type) if found.is_array else is_optional(field)
    if nullable and (not is_tagged or has_null_default):
        values = st.one_of(st.none(), values)
    if is_tagged and field.default is not dataclasses.MISSING:
        values = st.one_of(st.just(field.default), values)
    return values


def as_ours(message: Any, subject: Subject) -> Message:
    """Convert one of kio's messages to our class, by its constructor."""
    found: Message = _convert(message, None, subject.ours)
    return found


def _convert(value: Any, field: dataclasses.Field[Any] | None, root: type[Message], element: bool = False) -> Any:
    if dataclasses.is_dataclass(value):
        module = sys.modules[root.__module__]
        name = type(value).__name__
        # A structure that request and response both have carries its message's name in front.
        ours = getattr(module, name, None) or getattr(module, root.__name__ + name)
        return ours(**{our_name(f): _convert(getattr(value, f.name), f, root) for f in dataclasses.fields(value)})
    if isinstance(value, tuple):
        return [_convert(inner, field, root, element=True) for inner in value]
    kind = "" if field is None else field.metadata.get("kafka_type", "")
    if value is None:
        is_null_array = field is not None and not element and classify_field(field).is_array
        return None if is_null_array else {"uuid": bytes(16), "datetime_i64": -1}.get(kind)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round((value - _EPOCH) / datetime.timedelta(milliseconds=1))
    return int(value) if isinstance(value, ErrorCode) else value
