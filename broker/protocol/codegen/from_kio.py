"""Merges the classes of kio, a library with one class for each version of each Kafka message, into one model per
message.
"""

from __future__ import annotations

import dataclasses
import datetime
from graphlib import TopologicalSorter
from pkgutil import resolve_name
from types import NoneType
from typing import Any, get_args
from uuid import UUID

from kio.schema.index import schema_name_map
from kio.serial._introspect import classify_field, get_field_tag, get_schema_field_type, is_optional
from kio.static.constants import EntityType

from squall.broker.protocol.codegen.facts import IGNORABLE
from squall.broker.protocol.codegen.model import FieldEncoding, FieldModel, MessageModel, StructModel
from squall.broker.protocol.wire import ZERO_UUID

_KINDS = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
NEVER_FLEXIBLE = 0x7FFF


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


def message_from_kio(module: str, kind: str, api_key: int = -1) -> MessageModel:
    """Return the model of one message, merged from all versions that kio has."""
    classes = kio_classes(module, kind)
    name = next(iter(classes.values())).__name__
    structs: dict[str, StructModel] = {}
    for version, cls in classes.items():
        _add_version(cls, version, structs)
    flexible = [version for version, cls in classes.items() if cls.__flexible__]
    for struct in structs.values():
        _order_fields(struct)
        for field in struct.fields.values():
            field.ignorable = field.name in IGNORABLE.get(name, {}).get(struct.name, ())
    return MessageModel(
        name, api_key, min(classes), max(classes), min(flexible, default=NEVER_FLEXIBLE), _by_dependency(structs, name)
    )


def _add_version(cls: type[Any], version: int, structs: dict[str, StructModel]) -> None:
    struct = structs.setdefault(cls.__name__, StructModel(cls.__name__))
    wires = []
    for field in dataclasses.fields(cls):
        found = classify_field(field)
        element: type[Any] = found.type_
        nested = element if dataclasses.is_dataclass(element) else None
        if nested is not None:
            _add_version(nested, version, structs)
        wire = _wire(field, found.is_array, None if nested is None else nested.__name__)
        wires.append(wire)
        _merge_field(struct, field, wire)
    shape = tuple(wires)
    if struct.shapes.setdefault(version, shape) != shape:
        raise AssertionError(f"{cls.__name__} has two shapes in version {version}")


def _wire(field: dataclasses.Field[Any], array: bool, struct: str | None) -> FieldEncoding:
    kind = "struct"
    if struct is None:
        kafka_type = get_schema_field_type(field)
        kind = _KINDS.get(kafka_type, kafka_type)
    nullable = is_optional(field)
    if array:
        # kio's own answer looks at the element, and says None for the zero UUID there, too.
        nullable = NoneType in get_args(field.type)
    elif nullable and struct is None and (kind == "uuid" or field.metadata.get("kafka_type") == "datetime_i64"):
        # kio says None for the zero UUID and for a time of -1; on the wire these are values like others.
        nullable = False
    tag = get_field_tag(field)
    return FieldEncoding(our_name(field), kind, array, nullable, None if tag is None else int(tag), struct)


def _merge_field(struct: StructModel, field: dataclasses.Field[Any], wire: FieldEncoding) -> None:
    default = _default(field, wire)
    model = struct.fields.get(wire.name)
    if model is None:
        struct.fields[wire.name] = FieldModel(wire.name, wire.kind, wire.array, wire.nullable, default, wire.struct)
        return
    if (model.kind, model.array, model.struct) != (wire.kind, wire.array, wire.struct):
        raise AssertionError(f"{struct.name}.{wire.name} changes its type between versions")
    model.nullable = model.nullable or wire.nullable
    model.default = default


def _default(field: dataclasses.Field[Any], wire: FieldEncoding) -> object:
    if field.default is dataclasses.MISSING:
        return _implicit_default(wire)
    value: Any = field.default
    if value is None:
        if wire.kind == "uuid" and not wire.array:
            return ZERO_UUID
        # kio says None for a time of -1.
        return None if wire.nullable else -1
    if wire.kind == "struct":
        return () if wire.array else ...
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, bool | float | str | bytes):
        return value
    return int(value)


def _implicit_default(wire: FieldEncoding) -> object:
    """Return Kafka's default of a field whose schema names none: zero, empty, or a new structure; null for records."""
    if wire.array:
        return ()
    match wire.kind:
        case "struct":
            return ...
        case "string":
            return ""
        case "bytes":
            return b""
        case "records":
            return None
        case "uuid":
            return ZERO_UUID
        case "bool":
            return False
        case "float64":
            return 0.0
    return 0


def _order_fields(struct: StructModel) -> None:
    """Put the fields of all versions into one order that agrees with the order of each version."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for version in sorted(struct.shapes):
        previous = None
        for wire in struct.shapes[version]:
            sorter.add(wire.name, *([previous] if previous else []))
            previous = wire.name
    struct.fields = {name: struct.fields[name] for name in sorter.static_order()}


def _by_dependency(structs: dict[str, StructModel], root: str) -> dict[str, StructModel]:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for struct in structs.values():
        sorter.add(struct.name, *sorted(field.struct for field in struct.fields.values() if field.struct))
    order = [name for name in sorter.static_order() if name != root]
    return {name: structs[name] for name in [*order, root]}
