"""Generates valid requests in which every field of the schema is filled with a plausible value."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from squall.broker.protocol.apis import APIS, request_class
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.wire import Message, Structure

Path = tuple[str, ...]
"""Names of the fields that lead from the request to one of its lists."""

NAMES = ("t", "u", "__consumer_offsets", "__transaction_state", "new", "é", "", "a" * 249, "b" * 20_000)
GROUPS = ("g", "h", "consumers", "plain")
PATTERNS = ("(a+)+$", "(a|b)*a(a|b){60}", "(.*.*.*a){10}", "[a-z]{1,100}", ".*", "(", "(?i)a", "a" * 1001)
WORDS = {
    "assignor": ("uniform", "range"),
    "config_name": ("retention.ms", "cleanup.policy"),
    "protocol_type": ("consumer", "connect"),
    "state": ("Ongoing", "Empty", "Stable", "nonsense"),
    "type": ("classic", "consumer", "nonsense"),
    "value": ("1", "100000", "delete", "true", "x" * 3_000),
}
"""Values for string fields, by a part of the field's name. The first entry that matches is used."""
SMALL = (0, 0, 0, 0, 1, 1, 2, 3, -1, -1, -2, -3, -4, 7, 100, 127, -128)
PARTITIONS = (-1, 0, 1, 2, 3, 2**31 - 1)
WIDE = (30_000, -32_768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
NO_SUCH_FIELD = re.compile(r"field (\w+) has a value")


def requests(key: int, version: int, rng: random.Random) -> Message:
    """Return a filled request of an API."""
    return _fitting(_filled(request_class(key), rng), version, rng)


def lists_of(key: int) -> list[Path]:
    """Return the path of every list in the API's request."""
    return list(_lists(request_class(key)))


def swollen(key: int, version: int, path: Path, most_bytes: int, rng: random.Random, *, same: bool) -> bytes | None:
    """Return the body of a filled request in which one list has as many elements as `most_bytes` permits: copies of one
    element if `same`, else different ones. None if this version has no such list.
    """
    message: Any = _filled(request_class(key), rng)
    place = message
    for name in path[:-1]:
        inner = getattr(place, name)
        if isinstance(inner, Structure):
            place = inner
        else:
            setattr(place, name, [element := _filled(_element(type(place), name), rng)])
            place = element
    last, one = path[-1], _value(path[-1], _element(type(place), path[-1]), rng)
    setattr(place, last, [one])
    _fitting(message, version, rng)
    if not getattr(place, last):
        return None
    [one] = getattr(place, last)
    whole = len(message.encode(version))
    setattr(place, last, [one, one])
    count = most_bytes // max(1, len(message.encode(version)) - whole)
    while count:
        setattr(place, last, [one] * count if same else [_other(one, number) for number in range(count)])
        body = _fitting(message, version, rng).encode(version)
        if len(body) <= most_bytes:
            return bytes(body)
        count = count * 3 // 4
    return None


def _other(one: Any, number: int) -> Any:
    """Return a copy of a list's element whose first string or number is different."""
    if isinstance(one, bool | bytes):
        return one
    if isinstance(one, str):
        return f"{number}"
    if isinstance(one, int):
        return number
    if isinstance(one, Structure):
        for name in one.__match_args__:
            value = getattr(one, name)
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                return one.replace(**{name: _other(value, number)})
    return one


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    found = get_type_hints(kind.__init__, vars(sys.modules[kind.__module__]))
    return {name: found[name] for name in kind.__match_args__}


def _bare(kind: Any) -> Any:
    """Return a field's type without None."""
    left = [part for part in get_args(kind) if part is not type(None)]
    return left[0] if left and get_origin(kind) is not list else kind


def _element(kind: type[Any], name: str) -> Any:
    return get_args(_bare(_hints(kind)[name]))[0]


def _lists(kind: type[Any]) -> Iterator[Path]:
    for name, hint in _hints(kind).items():
        bare = _bare(hint)
        inner = bare
        if get_origin(bare) is list:
            yield (name,)
            inner = _bare(get_args(bare)[0])
        if isinstance(inner, type) and issubclass(inner, Structure):
            yield from ((name, *rest) for rest in _lists(inner))


def _filled(kind: type[Any], rng: random.Random) -> Any:
    return kind(**{name: _value(name, hint, rng) for name, hint in _hints(kind).items()})


def _value(name: str, hint: Any, rng: random.Random) -> Any:
    if type(None) in get_args(hint) and not rng.randrange(6):
        return None
    bare = _bare(hint)
    if get_origin(bare) is list:
        element = get_args(bare)[0]
        found = [_value(name, element, rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        return found * rng.choice((1, 1, 1, 2))
    if isinstance(bare, type) and issubclass(bare, Structure):
        return _filled(bare, rng)
    if bare is bool:
        return rng.random() < 0.5
    if bare is int:
        if name.endswith("timeout_ms") or name in ("max_wait_ms",):
            return rng.choice((0, 100, 1_000))
        if name in ("num_partitions", "count"):
            return rng.choice(PARTITIONS)
        return rng.choice(SMALL) if rng.randrange(8) else rng.choice(WIDE)
    if bare is str:
        return _text(name, rng)
    if bare is float:
        return rng.random()
    return _bytes(name, rng)


def _text(name: str, rng: random.Random) -> str:
    if "regex" in name or "pattern" in name:
        return rng.choice(PATTERNS)
    if "group" in name or "coordinator_key" in name or name == "key":
        return rng.choice(GROUPS)
    for part, words in WORDS.items():
        if part in name and rng.randrange(4):
            return rng.choice(words)
    return rng.choice(NAMES)


def _bytes(name: str, rng: random.Random) -> Any:
    if "records" in name:
        return encode_batch([Record(n, 10**12, b"k", b"v") for n in range(rng.randint(1, 3))])
    if name.endswith("_id") or name == "topics":
        return rng.choice((bytes(16), rng.randbytes(16)))
    return rng.randbytes(rng.choice((0, 16, 100)))


def _fitting(message: Any, version: int, rng: random.Random) -> Any:
    """Return the message with changes that let this version encode it."""
    for _ in range(60):
        try:
            message.encode(version)
        except ValueError as problem:
            found = NO_SUCH_FIELD.search(str(problem))
            if found:
                _reset(message, found[1])
            else:
                _narrow(message, rng)
        else:
            return message
    return type(message)()


def _structures(message: Any) -> Iterator[Any]:
    todo = [message]
    while todo:
        one = todo.pop()
        yield one
        for name in one.__match_args__:
            value = getattr(one, name)
            if isinstance(value, Structure):
                todo.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], Structure):
                todo += value


def _reset(message: Any, name: str) -> None:
    """Give every field of that name its default."""
    for one in _structures(message):
        if name in one.__match_args__:
            setattr(one, name, getattr(type(one)(), name))


def _narrow(message: Any, rng: random.Random) -> None:
    """Replace values by ones that any field can hold: small numbers, short strings and bytes, no null."""
    for one in _structures(message):
        for name, hint in _hints(type(one)).items():
            value = getattr(one, name)
            if isinstance(value, int) and value in WIDE:
                setattr(one, name, rng.choice(SMALL))
            elif value is None and rng.randrange(2):
                setattr(one, name, getattr(type(one)(), name))
            elif isinstance(value, list) and any(item in WIDE for item in value if isinstance(item, int)):
                setattr(one, name, [rng.choice(SMALL) for _ in value])
            elif _bare(hint) not in (int, str, bool) and isinstance(value, bytes) and len(value) != 16:
                setattr(one, name, bytes(16))


def versions(key: int) -> range:
    """Return the versions of an API that our codec can encode."""
    return range(max(APIS[key].min_version, request_class(key).MIN_VERSION), APIS[key].max_version + 1)
