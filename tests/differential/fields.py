"""Generated rows: the basic request of each API, in its lowest and highest version, with one field changed. Each field
in turn is null, empty, 0, -1 or as large as possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.wire import Structure
from tests.differential.bases import BASES, SETUPS
from tests.differential.steps import Ask, Batch, Ref, Row, resolved
from tests.support.brokers.filled import NO_SUCH_FIELD

INTEGERS = (0, -1)
LARGEST = (2**63 - 1, 2**31 - 1, 2**15 - 1, 127)
"""Largest values of integer fields: the first one that fits into the field is used."""
OTHER = "other"
"""Begins names that nothing has. The number of the row follows, so that a row finds nothing that another one created.
"""
LONG = 300
"""Length of a long name: more characters than Kafka permits for a topic (249)."""
UNSERVED = frozenset(
    {
        *(ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
        *(ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
        *(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.UNREGISTER_BROKER),
    }
)
"""APIs that our nodes do not support: each is tried with one request."""
WAITS = frozenset({"max_wait_ms", "rebalance_timeout_ms"})
"""Fields with a waiting time: with their largest value no answer comes within the time limit, so it is left out."""
READ_ONLY = ("List", "Describe", "Metadata", "Find", "Fetch", "ApiVersions", "ConsumerGroupDescribe")
"""Beginnings of the names of APIs that change nothing."""
CHANGES_ALL = frozenset({("UpdateFeatures", "validate_only")})
"""Fields that are not varied, because another value would change the cluster for all later rows."""

Place = tuple[str | int, ...]
"""The path to a field of a request: names of fields and indexes of lists."""


@cache
def rows() -> tuple[Row, ...]:
    """Return all generated rows. Those that change nothing come first, so that differences in state do not reach them.
    """
    numbers = count(1)
    found = [row for api in BASES for row in _rows_of(int(api), numbers)]
    return tuple(sorted(found, key=lambda row: _order(row.steps[-1])))


def _order(ask: Ask) -> int:
    return 0 if APIS[ask.api].name.startswith(READ_ONLY) else 1


def _rows_of(api: int, numbers: Iterator[int]) -> Iterator[Row]:
    known = APIS[api]
    for version in sorted({known.first_decodable, known.max_version}):
        base, filled = fitted(BASES[api]("name", version), version), set[Place]()
        for place, value in ((), None), *(() if api in UNSERVED else _variants(base)):
            at = ".".join(map(str, place))
            if place and (known.name, place[-1]) in CHANGES_ALL:
                continue
            label = f"{at}={_shown(value)}" if place else "as Java"
            name = f"{known.name}-v{version}-{at or 'base'}-{_word(value)}"
            request = fitted(BASES[api](name, version), version)
            if place:
                _put(request, place, value + str(next(numbers)) if isinstance(value, str) and OTHER in value else value)
            if value in LARGEST and place in filled:
                continue
            if _encodes(request, version):
                filled |= {place} if value in LARGEST else set()
                setup = SETUPS.get(api, lambda name: ())(name)
                yield Row(f"{known.name} v{version} {label}", (*setup, Ask(request, version)))


def _variants(base: Any) -> Iterator[tuple[Place, Any]]:
    """Yield (path of a field, value) for each change to make in a request."""
    for place, value in _places(base):
        yield from ((place, other) for other in _values(place, value) if isinstance(value, Ref) or other != value)


def _places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Structure):
        for name in value.__match_args__:
            yield from _places(getattr(value, name), (*place, name))
    else:
        yield place, value
        if isinstance(value, list):
            for number, each in enumerate(value):
                yield from _places(each, (*place, number))


def _values(place: Place, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Ref):
        value = value.default
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return INTEGERS if place[-1] in WAITS else (*INTEGERS, *LARGEST)
    if isinstance(value, str):
        return ("", None, OTHER, OTHER * (LONG // len(OTHER)))
    if isinstance(value, list):
        return ([], None, value * 2) if value else (None,)
    if isinstance(value, Batch):
        return (None, b"", b"\0" * 61)
    if isinstance(value, bytes):
        return (b"", bytes(16), b"\xff" * 16)
    return ("", "x") if value is None else (0.0, -1.0, 1e300)


def _put(request: Any, place: Place, value: Any) -> None:
    for part in place[:-1]:
        request = request[part] if isinstance(part, int) else getattr(request, part)
    if isinstance(place[-1], int):
        request[place[-1]] = value
    else:
        setattr(request, place[-1], value)


def _encodes(request: Any, version: int) -> bool:
    try:
        resolved(request, {}).encode(version)
    except (ValueError, OverflowError):
        return False
    return True


def fitted(request: Any, version: int) -> Any:
    """Return the request with defaults in all fields that this version lacks."""
    while True:
        try:
            resolved(request, {}).encode(version)
        except ValueError as problem:
            missing = NO_SUCH_FIELD.search(str(problem))
            if missing is None:
                raise
            _reset(request, missing[1])
        else:
            return request


def _reset(value: Any, name: str) -> None:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, Structure):
            for field in each.__match_args__:
                _reset(getattr(each, field), name)
            if name in each.__match_args__:
                setattr(each, name, getattr(type(each)(), name))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:20]}... of {len(value)}"


def _word(value: Any) -> str:
    """Return the value in a form that a topic's name may contain."""
    return re.sub(r"[^\w.-]", "_", _shown(value))[:30]
