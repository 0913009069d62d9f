"""Reads the options of the data source. They have the names and meanings of those of Spark's Kafka source, where it has
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from squall.workloads.client.cluster import Address
from squall.workloads.client.settings import SettingsError

EARLIEST, LATEST = "earliest", "latest"
RECORDS_PER_TASK: Final = 1_000_000
"""Is the default of `maxRecordsPerPartition`: a task of 1 KB records then reads 1 GB."""
COLUMNS: Final = ("producerId", "producerEpoch", "sequence", "transactional", "leaderEpoch", "codec")
"""Lists the columns that `extraColumns` may ask for, in the order in which a schema has them."""
_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1
_ISOLATIONS: Final = {"read_uncommitted": 0, "read_committed": 1}
_LARGE: Final = ("maxOffsetsPerTrigger", "maxRecordsPerPartition")
_WHERE: Final = ("subscribe", "subscribePattern", "assign")

Offsets = str | dict[str, dict[int, int]]
"""Is `earliest`, `latest`, or offsets by topic and partition; there -1 means latest and -2 earliest."""


class OptionError(SettingsError):
    """Says which option is unknown, lacks, or has a value that makes no sense."""


@dataclass(frozen=True)
class LoadOptions:
    """Holds the options of one reader."""

    bootstrap: tuple[Address, ...]
    topics: tuple[str, ...] = ()
    pattern: str = ""
    """Is a regular expression that whole topic names have to match; empty if topics are named."""
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Maps each topic of `assign` to its partitions; empty if all partitions are read."""
    starting: Offsets = EARLIEST
    starting_times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Maps topics and partitions to times, in ms since 1970, from which on records are read."""
    ending: Offsets = LATEST
    fail_on_data_loss: bool = True
    headers: bool = False
    columns: tuple[str, ...] = ()
    isolation: int = 0
    records_per_task: int = RECORDS_PER_TASK
    most_per_trigger: int | None = None
    patience_ms: int = 60_000
    """Limits the time, in ms, for which no broker may serve a task's range, before the task fails."""
    ranges: str = ""
    """Is the folder in which each task notes what it has read; empty for none. `squall load` sets it."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Maps settings of the client (`ClientSettings`, `ConsumerSettings`) to their values."""


_CLIENT: Final = {
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.fetch.max.wait.ms": "max_wait_ms",
    "kafka.fetch.max.bytes": "max_bytes",
    "kafka.max.partition.fetch.bytes": "partition_max_bytes",
}


def read_options(given: Mapping[str, str], *, streams: bool) -> LoadOptions:
    """Return the options that a user gave. `streams`: for a stream, which begins at the latest offsets by default and
    has no end. Raises OptionError, which names the option.
    """
    known = {name.lower(): name for name in _READERS}
    left = {known.get(name.lower(), name): value for name, value in given.items()}
    wrong = sorted(name for name in left if name not in _READERS)
    if wrong:
        raise OptionError(f"unknown options: {', '.join(wrong)}; there are {', '.join(sorted(_READERS))}")
    if "kafka.bootstrap.servers" not in left:
        raise OptionError("kafka.bootstrap.servers lacks: the addresses of brokers, HOST:PORT,HOST:PORT")
    where = [name for name in _WHERE if name in left]
    if len(where) != 1:
        raise OptionError(f"one of {', '.join(_WHERE)} has to say what to read; given: {', '.join(where) or 'none'}")
    if streams and "endingOffsets" in left:
        raise OptionError("endingOffsets: a stream has no end")
    if not streams and "maxOffsetsPerTrigger" in left:
        raise OptionError("maxOffsetsPerTrigger: only a stream has triggers")
    values: dict[str, Any] = {"starting": LATEST if streams else EARLIEST}
    client: dict[str, int] = {}
    for name, value in left.items():
        if name in _CLIENT:
            client[_CLIENT[name]] = _number(name, value)
        elif _READERS[name] is not None:
            attribute, read = _READERS[name]
            values[attribute] = read(name, value)
    return LoadOptions(**values, client=client)


def _addresses(name: str, value: str) -> tuple[Address, ...]:
    found = []
    for each in filter(None, (part.strip() for part in value.split(","))):
        host, colon, port = each.rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise OptionError(f"{name}={value}: {each} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise OptionError(f"{name} is empty: HOST:PORT,HOST:PORT")
    return tuple(found)


def _names(name: str, value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
    if not found:
        raise OptionError(f"{name} is empty: names of topics, with commas between them")
    return found


def _pattern(name: str, value: str) -> str:
    if not value:
        raise OptionError(f"{name} is empty: a regular expression of topics")
    try:
        re.compile(value)
    except re.error as problem:
        raise OptionError(f"{name}={value}: {problem}") from problem
    return value


def _json(name: str, value: str, example: str) -> Any:
    try:
        found = json.loads(value)
    except ValueError as problem:
        raise OptionError(f"{name}={value}: not JSON like {example}: {problem}") from problem
    if not isinstance(found, dict):
        raise OptionError(f"{name}={value}: not JSON like {example}")
    return found


def _partitions(name: str, value: str) -> dict[str, tuple[int, ...]]:
    example = '{"orders": [0, 1]}'
    found = _json(name, value, example)
    listed = [each if isinstance(each, list) and each else [-1] for each in found.values()]
    if not found or not all(type(index) is int and 0 <= index <= _INT32 for each in listed for index in each):
        raise OptionError(f"{name}={value}: not JSON like {example}")
    return {topic: tuple(dict.fromkeys(each)) for topic, each in found.items()}


def _by_partition(name: str, value: str, least: int) -> dict[str, dict[int, int]]:
    example = '{"orders": {"0": 23, "1": 7}}'
    found = _json(name, value, example)
    try:
        read = {topic: {int(index): offset for index, offset in each.items()} for topic, each in found.items()}
    except (AttributeError, ValueError) as problem:
        raise OptionError(f"{name}={value}: not JSON like {example}") from problem
    for topic, offsets in read.items():
        for index, offset in offsets.items():
            if type(offset) is not int or not least <= offset <= _INT64 or index < 0:
                raise OptionError(f"{name}: {topic}-{index} has {offset!r}, not a number from {least} to {_INT64}")
    return read


def _offsets(name: str, value: str) -> Offsets:
    if value.lower() in (EARLIEST, LATEST):
        if name == "endingOffsets" and value.lower() == EARLIEST:
            raise OptionError(f"{name}=earliest: there is nothing before the earliest offset")
        return value.lower()
    return _by_partition(name, value, -2 if name == "startingOffsets" else -1)


def _times(name: str, value: str) -> dict[str, dict[int, int]]:
    return _by_partition(name, value, 0)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"{name}={value}: true or false")
    return value.lower() == "true"


def _number(name: str, value: str) -> int:
    most = _INT64 if name in _LARGE else _INT32
    if not value.isdecimal() or not 1 <= int(value) <= most:
        raise OptionError(f"{name}={value}: a number from 1 to {most}")
    return int(value)


def _isolation(name: str, value: str) -> int:
    if value not in _ISOLATIONS:
        raise OptionError(f"{name}={value}: one of {', '.join(_ISOLATIONS)}")
    return _ISOLATIONS[value]


def _columns(name: str, value: str) -> tuple[str, ...]:
    given = _names(name, value)
    known = {each.lower(): each for each in COLUMNS}
    wrong = [each for each in given if each.lower() not in known]
    if wrong:
        raise OptionError(f"{name}: unknown: {', '.join(wrong)}; there are {', '.join(COLUMNS)}")
    return tuple(each for each in COLUMNS if each in {known[one.lower()] for one in given})


_READERS: Final[dict[str, Any]] = {
    "kafka.bootstrap.servers": ("bootstrap", _addresses),
    "kafka.isolation.level": ("isolation", _isolation),
    **dict.fromkeys(_CLIENT),
    "subscribe": ("topics", _names),
    "subscribePattern": ("pattern", _pattern),
    "assign": ("partitions", _partitions),
    "startingOffsets": ("starting", _offsets),
    "startingOffsetsByTimestamp": ("starting_times", _times),
    "endingOffsets": ("ending", _offsets),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "includeHeaders": ("headers", _flag),
    "extraColumns": ("columns", _columns),
    "maxOffsetsPerTrigger": ("most_per_trigger", _number),
    "maxRecordsPerPartition": ("records_per_task", _number),
    "kafkaConsumer.pollTimeoutMs": ("patience_ms", _number),
    "ranges": ("ranges", lambda _, value: value),
}
"""Maps the name of each option to the attribute of `LoadOptions` and to the function that reads the value; None for the
client's settings.
"""
