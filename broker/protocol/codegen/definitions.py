"""Reads the definitions of messages that Kafka's jars contain, and makes the models from which code is generated.

A definition is JSON with comments: the message's versions, and its fields with their types, versions and defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from squall.broker.protocol.codegen.model import FIXED, FieldEncoding, FieldModel, MessageModel, StructModel
from squall.broker.protocol.codegen.source import snake
from squall.broker.protocol.wire import ZERO_UUID

Definition = Mapping[str, Any]
PARTS = ("clients", "metadata", "group-coordinator", "transaction-coordinator")
JARS = tuple(f"kafka-{part}-[0-9]*.jar" for part in PARTS)
FOLDERS = ("common/message/", "common/metadata/")
NEVER: Final = 0x7FFF
LEFT_OUT: Final = {
    ("BrokerHeartbeatRequest", "cordoned_log_dirs"),
    ("BrokerHeartbeatRequest", "offline_log_dirs"),
    ("BrokerRegistrationRequest", "is_migrating_zk_broker"),
    ("DescribeQuorumResponse", "nodes"),
}
"""Lists fields, as (message, field), that are left out of versions without a place for them, although the definitions
do not mark them as ignorable, so that brokers need not know the version when they make the message.
"""
_COMMENT = re.compile(r"^\s*//.*$|(?<=[,\]}{[])\s*//.*$", re.MULTILINE)


def definitions(jars: Path) -> dict[str, Definition]:
    """Return the definition of each message, by name, from the jars of Kafka in this folder. Raise FileNotFoundError if
    the folder lacks one of them.
    """
    found: dict[str, Definition] = {}
    for pattern in JARS:
        paths = [*jars.glob(pattern)]
        if len(paths) != 1:
            raise FileNotFoundError(f"{jars}: {len(paths)} files are named {pattern}, and one is needed")
        with ZipFile(paths[0]) as jar:
            for name in jar.namelist():
                if name.startswith(FOLDERS) and name.endswith(".json"):
                    definition = json.loads(_COMMENT.sub("", jar.read(name).decode()))
                    found[definition["name"]] = definition
    return found


def message_model(definition: Definition) -> MessageModel:
    """Return the model of a message, from its definition."""
    versions, flexible = _versions(definition["validVersions"]), _versions(definition.get("flexibleVersions", "none"))
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    name, structs = definition["name"], dict[str, StructModel]()
    _add(name, definition["fields"], versions, common, structs)
    flexible_from, key = max(flexible.start, versions.start) if flexible else NEVER, definition.get("apiKey", -1)
    return MessageModel(name, key, versions[0], versions[-1], flexible_from, _by_dependency(structs))


def _add(
    name: str,
    fields: Iterable[Definition],
    versions: range,
    common: Mapping[str, Iterable[Definition]],
    structs: dict[str, StructModel],
) -> None:
    """Add a structure, as it is in these versions, and the structures that it contains. A structure may be added
    several times, for different versions.
    """
    struct = structs.setdefault(name, StructModel(name))
    shapes = {version: list[FieldEncoding]() for version in versions}
    for field in fields:
        tagged = _versions(field.get("taggedVersions", "none"), versions)
        inside = _versions(field["versions"], versions) if "versions" in field else tagged or versions
        nullable = _versions(field.get("nullableVersions", "none"), inside)
        encoding = _encoding(field)
        if encoding.struct is not None:
            _add(encoding.struct, field.get("fields") or common[encoding.struct], inside, common, structs)
        for version in inside:
            tag = int(field["tag"]) if version in tagged else None
            shapes[version].append(replace(encoding, nullable=version in nullable, tag=tag))
        if inside and encoding.name not in struct.fields:
            struct.fields[encoding.name] = FieldModel(
                encoding.name,
                encoding.kind,
                encoding.array,
                bool(nullable),
                _default(field, encoding),
                encoding.struct,
                str(field.get("ignorable")).lower() == "true" or (name, encoding.name) in LEFT_OUT,
            )
    struct.shapes |= {version: tuple(shape) for version, shape in shapes.items()}
    _order_fields(struct)


def _encoding(field: Definition) -> FieldEncoding:
    """Return how a field is encoded, but for what differs by version."""
    kind, array = field["type"].removeprefix("[]"), field["type"].startswith("[]")
    plain = kind in FIXED or kind in ("string", "bytes", "records")
    return FieldEncoding(snake(field["name"]), kind if plain else "struct", array, struct=None if plain else kind)


def _order_fields(struct: StructModel) -> None:
    """Put the fields of all versions into one order that agrees with the order of each version."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for _, shape in sorted(struct.shapes.items()):
        for previous, encoding in zip((None, *shape), shape, strict=False):
            sorter.add(encoding.name, *([previous.name] if previous else []))
    struct.fields = {name: struct.fields[name] for name in sorter.static_order()}


def _versions(text: str, among: range = range(NEVER)) -> range:
    """Return those versions of `among` that a text such as "3", "2-5", "4+" or "none" names."""
    if text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    end = NEVER if text.endswith("+") else int(last if dash else first) + 1
    return range(max(int(first), among.start), min(end, among.stop))


def _default(field: Definition, encoding: FieldEncoding) -> object:
    """Return the value of a field in a new object: the definition's, or else zero, empty, or a new structure; null for
    records.
    """
    text = str(field.get("default", ""))
    if text in ("null", "None"):
        return None
    if encoding.array:
        return ()
    match encoding.kind:
        case "struct":
            return ...
        case "string":
            return text
        case "bytes":
            return b""
        case "records":
            return None
        case "uuid":
            return ZERO_UUID
        case "bool":
            return text.lower() == "true"
        case "float64":
            return float(text or 0)
    return int(text or "0", 0)


def _by_dependency(structs: dict[str, StructModel]) -> dict[str, StructModel]:
    """Return the structures, each after those that it contains."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for struct in structs.values():
        sorter.add(struct.name, *sorted(field.struct for field in struct.fields.values() if field.struct))
    return {name: structs[name] for name in sorter.static_order()}
