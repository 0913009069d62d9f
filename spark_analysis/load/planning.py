"""Asks brokers which partitions and offsets there are, and plans what a load reads, on Spark's driver."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from squall.broker.protocol.errors import name_of
from squall.broker.protocol.timestamps import EARLIEST as EARLIEST_TIME
from squall.broker.protocol.timestamps import LATEST as LATEST_TIME
from squall.spark_analysis.load.clients import NoAnswer, run_with_client
from squall.spark_analysis.load.options import LATEST, LoadOptions, Offsets
from squall.workloads.client.admin import ListedOffset, list_offsets, metadata
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.topics import settings_in_force
from squall.workloads.load.reading import LoadError

R = TypeVar("R")
POLICY = "cleanup.policy"
ANSWER_S = 30.0
"""Limits the time, in seconds, until brokers have answered the questions of a plan."""


class LoadPlanError(LoadError):
    """Says why a load cannot be planned."""


class PlannedTopic(NamedTuple):
    """Holds what a plan has to know of a topic."""

    topic_id: bytes
    partitions: tuple[int, ...]
    """Lists the partitions to read."""
    compacted: bool


def ask(options: LoadOptions, question: Callable[[Client], Awaitable[R]]) -> R:
    """Return what `question` returns, given a client. Raises LoadPlanError if brokers do not answer."""
    try:
        return run_with_client(options, question, ANSWER_S)
    except (RequestFailed, NoAnswer) as failure:
        raise LoadPlanError(str(failure)) from failure


async def chosen_topics(client: Client, options: LoadOptions) -> dict[str, PlannedTopic]:
    """Return the topics that the options name. Raises LoadPlanError for one that does not exist."""
    wanted: Sequence[str] | None = options.topics or tuple(options.partitions) or None
    while True:
        try:
            answer = await metadata(client, wanted)
            break
        except RequestFailed:
            await client.env.sleep(client.backoff(2))
    found = {}
    for topic in answer.topics:
        name = topic.name or ""
        if options.pattern and (topic.is_internal or not re.fullmatch(options.pattern, name)):
            continue
        if topic.error_code:
            raise LoadPlanError(f"topic {name}: {name_of(topic.error_code)}")
        there = tuple(sorted(part.partition_index for part in topic.partitions))
        asked = options.partitions.get(name, there)
        if lacking := [index for index in asked if index not in there]:
            raise LoadPlanError(f"topic {name} has the partitions {there[0]} to {there[-1]}, and not {lacking[0]}")
        found[name] = PlannedTopic(topic.topic_id, asked, compacted=False)
    if not found:
        raise LoadPlanError(f"no topic matches {options.pattern}")
    policies = await settings_in_force(client, list(found), [POLICY])
    return {
        name: topic._replace(compacted="compact" in policies.get(name, {}).get(POLICY, ""))
        for name, topic in found.items()
    }


class Bounds(NamedTuple):
    """Holds the offsets between which a partition can be read now."""

    earliest: int
    latest: int
    """Is the high watermark; for read_committed, the last stable offset."""
    leader_epoch: int
    """Is the leader epoch in which the leader named `latest`; -1 if it is unknown."""


async def bounds_of(client: Client, places: Sequence[Place], isolation: int) -> dict[Place, Bounds]:
    """Return the bounds of each partition. Raises LoadPlanError if a leader does not answer."""
    earliest = await _listed(client, places, EARLIEST_TIME, isolation)
    latest = await _listed(client, places, LATEST_TIME, isolation)
    return {
        place: Bounds(earliest[place].offset, latest[place].offset, latest[place].led_epoch)
        for place in places
    }


async def offsets_at_times(
    client: Client, times: Mapping[str, Mapping[int, int]], bounds: Mapping[Place, Bounds], isolation: int
) -> dict[Place, int]:
    """Return, for each partition in `times`, the offset of its first record at or after the time; its end if there is
    none. Raises LoadPlanError if a leader does not answer, and for a partition that is not in `bounds`.
    """
    _check_given(times, bounds)
    found: dict[Place, int] = {}
    by_time: dict[int, list[Place]] = {}
    for topic, by_partition in times.items():
        for index, time in by_partition.items():
            by_time.setdefault(time, []).append((topic, index))
    for time, places in by_time.items():
        listed = await _listed(client, places, time, isolation)
        found.update({place: each.offset for place, each in listed.items()})
    if lacking := [place for place, offset in found.items() if offset < 0]:
        listed = await _listed(client, lacking, LATEST_TIME, isolation)
        found.update({place: each.offset for place, each in listed.items()})
    return found


def chosen_offsets(wanted: Offsets, bounds: Mapping[Place, Bounds], *, is_end: bool) -> dict[Place, int]:
    """Return the offset of each partition that `wanted` means. Partitions that it leaves out begin at their earliest
    and end at their latest offset. Raises LoadPlanError for a partition that is not read, and for an offset that is not
    there yet.
    """
    given = {} if isinstance(wanted, str) else {(t, i): n for t, by in wanted.items() for i, n in by.items()}
    if not isinstance(wanted, str):
        _check_given(wanted, bounds)
    found = {}
    for place, (earliest, latest, _) in bounds.items():
        default = -1 if is_end or wanted == LATEST else -2
        offset = given.get(place, default)
        found[place] = latest if offset == -1 else earliest if offset == -2 else offset
        if found[place] > latest:
            where = f"{place[0]}-{place[1]}"
            raise LoadPlanError(f"{where}: offset {found[place]} is not there yet: it can be read up to {latest}")
    return found


def _check_given(given: Mapping[str, Mapping[int, int]], bounds: Mapping[Place, Bounds]) -> None:
    unknown = [f"{topic}-{index}" for topic, by in given.items() for index in by if (topic, index) not in bounds]
    if unknown:
        raise LoadPlanError(f"offsets or times are given for {unknown[0]}, which is not read")


async def _listed(client: Client, places: Sequence[Place], time: int, isolation: int) -> dict[Place, ListedOffset]:
    found = await list_offsets(client, places, time, isolation=isolation, timeout_s=ANSWER_S)
    for (topic, index), listed in found.items():
        if listed.error:
            raise LoadPlanError(f"{topic}-{index}: ListOffsets: {listed.error}")
    return found
