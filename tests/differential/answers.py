"""Converts answers to plain trees that can be compared: what each broker chooses itself (ids, times, addresses) is
replaced by a symbol.

A symbol numbers the values of a kind in the order in which a row saw them ("producer id 2"), so equal ids remain equal.
All other values are compared as they are.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.records import batches, check_crc, decode_batch
from squall.broker.protocol.wire import ZERO_UUID, Structure

Tree = Any
"""A tree of dicts, lists and scalars."""

ABSENT = "<absent>"
DAY_MS = 86_400_000
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|^[\w-]{22}$")
"""Matches the random part of a member id: a UUID of Java, or Kafka's own in base64 (KAFKA-17116)."""
NAMED: dict[str, str] = {
    "producer_id": "producer id",
    "topic_id": "topic id",
    "cluster_id": "cluster id",
    "session_id": "session id",
    "replica_directory_id": "directory id",
    "log_dir": "directory",
    "finalized_features_epoch": "metadata offset",
    "port": "port",
}
"""Fields whose values become symbols, and the word that the symbols begin with. Zero, -1 and the nil UUID are kept."""
TEXTS = frozenset({"error_message", "batch_index_error_message", "documentation"})
"""Fields with sentences for people: compared is only whether there is one."""
SIZES = frozenset({"total_bytes", "usable_bytes"})
"""Fields with sizes of the disk, which are not compared."""


KEYS = (
    ("resource_type", "resource_name"),
    *((name,) for name in ("api_key", "group_id", "transactional_id", "topic_name", "name", "topic", "feature")),
    *((name,) for name in ("partition_index", "partition", "producer_id", "member_id")),
)
"""Fields by which the elements of a list are identified. Elements with equal keys are compared, and the order of the
keys.
"""


class Symbols:
    """The symbols for one row's values at one broker."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Any], str] = {}
        self._count: dict[str, int] = {}

    def of(self, kind: str, value: Any) -> str:
        """Return the symbol of a value. A value that was not seen before gets a new one."""
        if (kind, value) not in self._seen:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._seen[kind, value] = f"<{kind} {self._count[kind]}>"
        return self._seen[kind, value]

    def tree(self, value: Any, name: str = "") -> Tree:
        """Return the value of the field `name` as a tree."""
        if isinstance(value, Structure):
            return {field: self.tree(getattr(value, field), field) for field in value.__match_args__}
        if name == "records" and value is not None:
            return self._batches(memoryview(value))
        if isinstance(value, list):
            keys = keys_of(
                [{field: getattr(each, field, None) for field in getattr(each, "__match_args__", ())} for each in value]
            )
            order = sorted(range(len(value)), key=keys.__getitem__) if keys is not None else range(len(value))
            trees = {number: self.tree(value[number], name) for number in order}
            return [trees[number] for number in range(len(value))]
        if isinstance(value, bytes | memoryview):
            return self._bytes(bytes(value), name)
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(value, name)
        return value

    def _bytes(self, value: bytes, name: str) -> Tree:
        if name in NAMED:
            return "<nil>" if value == ZERO_UUID else self.of(NAMED[name], value)
        return value.hex()

    def _text(self, value: str, name: str) -> Tree:
        if name in TEXTS:
            return "<text>" if value else value
        if name in NAMED and value:
            return self.of(NAMED[name], value)
        return UUID.sub(lambda match: self.of("uuid", match[0]), value)

    def _number(self, value: int, name: str) -> Tree:
        if name.endswith("error_code"):
            return ErrorCode(value).name if value in ErrorCode._value2member_map_ else value
        if name == "throttle_time_ms":
            return "<throttled>" if value > 0 else value
        if name in SIZES and value > 0:
            return "<bytes>"
        if name in NAMED and value > 0:
            return self.of(NAMED[name], value)
        if ("timestamp" in name or name.endswith("_time_ms")) and abs(value - time.time() * 1000) < DAY_MS:
            return "<now>"
        return value

    def _batches(self, view: memoryview) -> Tree:
        try:
            return [self._batch(header, view[start:stop]) for header, start, stop in batches(view)]
        except MalformedFrame as problem:
            return f"malformed: {problem}"

    def _batch(self, header: Any, batch: memoryview) -> Tree:
        names = ("base_offset", "leader_epoch", "attributes", "last_offset_delta", "producer_id", "producer_epoch")
        fields = {name: self.tree(getattr(header, name), name) for name in (*names, "base_sequence")}
        records = [
            {
                "offset": each.offset,
                "timestamp": self.tree(each.timestamp, "timestamp"),
                "key": self.tree(each.key, "key"),
                "value": self.tree(each.value, "value"),
            }
            for each in decode_batch(header, batch)
        ]
        return {**fields, "crc": check_crc(batch, 0, len(batch)), "records": records}


def keys_of(structures: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    """Return the key of each element of a list; None if they have no keys, or two are equal."""
    for names in KEYS:
        if structures and all(isinstance(each, dict) and set(names) <= each.keys() for each in structures):
            keys = [tuple(each[name] for name in names) for each in structures]
            if len(set(keys)) == len(keys) and all(None not in key and "" not in key for key in keys):
                return keys
    return None


def differences(ours: Tree, theirs: Tree, path: str = "") -> Iterator[tuple[str, Tree, Tree]]:
    """Yield each path at which two trees differ, with both values. `<absent>` is the value of what one of them lacks; a
    list in another order has a difference at the path `<order>`.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in _either(ours, theirs):
            yield from differences(ours.get(name, ABSENT), theirs.get(name, ABSENT), f"{path}.{name}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list) and ours and theirs:
        if ours != theirs and Counter(map(repr, ours)) == Counter(map(repr, theirs)):
            yield f"{path}.<order>", ours, theirs
            return
        our, its = keys_of(ours), keys_of(theirs)
        if our is None or its is None:
            our, its = list(zip(range(len(ours)))), list(zip(range(len(theirs))))
        for key in _either(our, its):
            one = ours[our.index(key)] if key in our else ABSENT
            other = theirs[its.index(key)] if key in its else ABSENT
            yield from differences(one, other, f"{path}[{'/'.join(map(str, key))}]")
        if [key for key in our if key in its] != [key for key in its if key in our]:
            yield f"{path}.<order>", our, its
    elif ours != theirs or type(ours) is not type(theirs):
        yield path, ours, theirs


def _either(ours: Iterable[Any], theirs: Collection[Any]) -> list[Any]:
    return list(dict.fromkeys((*ours, *theirs)))
