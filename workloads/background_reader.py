"""Runs one of a workload's readers during the load: it polls its partitions until the harness lets it end.

Some readers start anew again and again, as a fresh consumer does: at the start, in the middle and at the end of the
log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from math import inf

import trio

from squall.broker.env import Env
from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.consumer import LOG_TRUNCATED, PositionInvalidated
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from squall.workloads.libraries import ReaderConfig, read_by
from squall.workloads.live_readers import LiveReaders
from squall.workloads.read_times import RecordTimestamps
from squall.workloads.reader import RecordedReader
from squall.workloads.scenario import ScenarioEnvironment
from squall.workloads.start_positions import Beginning, positions_at

POLL_LIMIT_S = 1.0
LIST_LIMIT_S, AGAIN_LIMIT_S = 10.0, 1.0
FROM_THE_START: tuple[Beginning, ...] = ("start",)
LOOK_BACK_MS = 10_000
"""Limits how far back in time a reader looks up an offset by timestamp."""
LAG_EVERY_S, LAG_LIMIT_S, LAG_PAUSES = 1.0, 0.25, 10
"""A reader requests the end offsets of its partitions every `LAG_EVERY_S` seconds or every `LAG_PAUSES` pauses between
polls, whichever is longer, to know its lag. It waits at most `LAG_LIMIT_S` seconds for the response.
"""


async def tail(
    around: ScenarioEnvironment,
    client_settings: ClientSettings,
    number: int,
    places: Sequence[Place],
    isolation: int,
    poll_pause_ms: int,
    beginnings: Sequence[Beginning] = FROM_THE_START,
    again_s: float = inf,
    consumer: ConsumerSettings | None = None,
    *,
    lookups: bool = False,
) -> None:
    """Run the workload's reader `number` until the harness lets readers end and its last poll is done. The reader uses
    the client library of its zone (a group of clients with network links of their own). If the zone has none, it uses
    Squall's own client.

    A client library gets only `number`, `places` and `isolation`, and starts at the log's start. Squall's own client
    uses `client_settings`, and `consumer` with the isolation level `isolation`. It starts at each kind of offset in
    `beginnings` in turn, and changes to the next one every `again_s` seconds during the load. With `lookups`, it also
    looks up offsets by timestamp.
    """
    zone, readers = around.zone(number), around.readers
    if zone.driver is not None:
        task = ReaderConfig(number, places, isolation, zone.name)
        await read_by(zone.driver, around.recorder, around.counters, task, readers)
        return
    env = around.own(f"reader-{number}")
    with around.controls.readers[number].process_lifetime():
        while not readers.may_end.is_set():
            async with trio.open_nursery() as nursery:
                client = Client(env, zone.bootstrap, client_settings, cluster_id=zone.cluster_id)
                await nursery.start(client.run)
                reader = RecordedReader(
                    env,
                    client,
                    around.recorder,
                    around.counters,
                    role="reader",
                    consumer=replace(consumer or ConsumerSettings(), isolation=isolation),
                    zone=zone.name,
                    extra={"reader": number},
                    times=RecordTimestamps() if lookups else None,
                )
                readers.begins(reader.process, "squall", places)
                turns = _StartPositionCycle(env, reader, readers, beginnings, again_s)
                await _read(env, around, number, reader, turns, places, poll_pause_ms / 1000, lookups=lookups)
                client.close()
                # The next process reads on. The harness would wait in vain for this one to reach its goals.
                if not readers.may_end.is_set():
                    readers.ends(reader.process)


async def _read(
    env: Env,
    around: ScenarioEnvironment,
    number: int,
    reader: RecordedReader,
    turns: _StartPositionCycle,
    places: Sequence[Place],
    pause_s: float,
    *,
    lookups: bool,
) -> None:
    """Poll as one process of the history (Jepsen's logical process), with `pause_s` seconds after each poll. `turns`
    chooses the offsets at which to start; with `lookups`, also look up offsets by timestamp.

    Return when the harness lets readers end. Return earlier if one of the topics was deleted and created again: the
    caller then starts another process, which reads the new topic.
    """
    readers, handle = around.readers, around.controls.readers[number]
    parts = [around.recorder.partitions[place] for place in places]
    await turns.first(places)
    look_at_s = 0.0
    while not readers.may_end.is_set():
        await turns.next(places)
        if env.mono() >= look_at_s:
            await reader.list_offsets(places, LATEST, LAG_LIMIT_S)
            if lookups:
                when_ms = env.wall_ms() - int(env.rng.random() * LOOK_BACK_MS)
                await reader.list_offsets(places, when_ms, LAG_LIMIT_S)
            look_at_s = env.mono() + max(LAG_EVERY_S, LAG_PAUSES * pause_s)
        await handle.until_released(readers.may_end)
        # A topic that was created again has new dense ids: offsets of the old one mean nothing there.
        if parts != [around.recorder.partitions[place] for place in places]:
            return
        handle.done += 1
        polled = await reader.poll("poll", POLL_LIMIT_S)
        readers.moved(reader.process, {each.place: each.position for each in polled.fetched})
        for event in polled.events:
            await recover(reader, event)
            readers.moved(reader.process, {event.place: reader.consumer.positions[event.place]})
        await env.sleep(pause_s)


class _StartPositionCycle:
    """Chooses at which offsets a reader starts, and when it starts anew at other offsets."""

    def __init__(
        self, env: Env, reader: RecordedReader, readers: LiveReaders, beginnings: Sequence[Beginning], again_s: float
    ) -> None:
        self._env, self._reader, self._readers = env, reader, readers
        self._coming = cycle(beginnings)
        self._again_s, self._again_at = again_s, inf

    async def first(self, places: Sequence[Place]) -> None:
        """Start to read at the first of the beginnings (start, middle or end of the log), once its offsets in all
        partitions are known. If the harness lets readers end before that, start in the partitions whose offsets are
        known.
        """
        beginning, found = next(self._coming), dict[Place, int]()
        while len(found) < len(places) and not self._readers.may_end.is_set():
            left = [place for place in places if place not in found]
            found |= await positions_at(self._reader, left, beginning, LIST_LIMIT_S)
        self._assign(found)

    async def next(self, places: Sequence[Place]) -> None:
        """Start anew at the next kind of offset (start, middle or end of the log). Do nothing if the reader started
        less than `again_s` seconds ago, or if every operation of the load has its outcome. A partition whose offset is
        not known keeps its position.
        """
        if self._env.mono() < self._again_at or self._readers.settled.is_set():
            return
        found = await positions_at(self._reader, places, next(self._coming), AGAIN_LIMIT_S)
        self._assign({**self._reader.consumer.positions, **found})

    def _assign(self, positions: dict[Place, int]) -> None:
        self._reader.assign(positions)
        self._readers.moved(self._reader.process, positions)
        self._again_at = self._env.mono() + self._again_s


async def recover(reader: RecordedReader, event: PositionInvalidated) -> None:
    """Seek to the nearest valid offset, because the reader's position is out of range or in a truncated part of the
    log. If the leaders do not answer, seek to the invalid position again: the next poll then reports that position
    again.
    """
    if event.kind == LOG_TRUNCATED and event.end_offset >= 0:
        # Never forward: if the new leader lacks the reader's epoch, its end offset may be above the position.
        reader.seek(event.place, min(event.end_offset, event.position))
        return
    first = (await reader.list_offsets([event.place], EARLIEST, LIST_LIMIT_S))[event.place]
    last = (await reader.list_offsets([event.place], LATEST, LIST_LIMIT_S))[event.place]
    if first.error or last.error:
        # The same position: the next poll finds it impossible again, and the leaders may answer then.
        reader.seek(event.place, event.position)
    else:
        reader.seek(event.place, max(first.offset, min(event.position, last.offset)))
