"""Runs a load beside producers: a model of Spark's micro-batches. A driver plans a batch, executors read its ranges,
and the rows of a batch count once the sink has it. A killed driver gets a successor, which continues from what the last
one wrote.

The rows in the sink are those of one reader of the history: a batch is a poll from where the last one ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

import trio

from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.kill_moments import IN_SINK, PLANNED, READ
from squall.workloads.live_readers import LiveReaders
from squall.workloads.load.executor import RESTART_S, LoadEnvironment, LoadExecutor, LoadTask, TaskResult
from squall.workloads.load.figures import DRIVER, SINK
from squall.workloads.load.microbatches import MicroBatchLog, PlannedBatch, PlannedRange
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import OffsetsGone, TopicRemade
from squall.workloads.reader import EMPTY_EVERY_NS, RecordedReader
from squall.workloads.recorder import PartitionPoll, ReadOutcome
from squall.workloads.scenario import ScenarioEnvironment

LIST_LIMIT_S = 2.0
RETRY_S = 0.2
"""Gives the time, in seconds, until a task is tried again that could not be read."""


class LoadEnding(Enum):
    """Says why a driver ended."""

    OVER = auto()
    """Means that the harness lets readers end."""
    KILLED = auto()
    GONE = auto()
    """Means that what was planned is gone, or that the topic was made anew: this load cannot continue, and another one
    begins.
    """


class ReadableEnd(NamedTuple):
    """Says how far a partition can be planned."""

    end: int
    limit: int
    """Is the last stable offset, or, at read_uncommitted, the high watermark."""
    leader_epoch: int


class LoadSettings(NamedTuple):
    """Holds the settings of a load that concern its batches."""

    topics: Sequence[str]
    executors: int
    records_per_task: int
    trigger_ms: int


class RunningLoad:
    """Runs one load after the other until the harness lets readers end: a load ends only if it cannot continue."""

    def __init__(self, around: ScenarioEnvironment, load: LoadEnvironment, settings: LoadSettings) -> None:
        self._scenario, self._around, self._settings = around, load, settings
        self._handle = around.controls.readers[load.number]

    async def run(self) -> None:
        """Run loads, each as a reader of the history."""
        readers = self._scenario.readers
        with self._handle.process_lifetime():
            while not readers.may_end.is_set():
                log = MicroBatchLog()
                sink = self._around.process(SINK)
                parts = self._partitions()
                readers.begins(sink, "squall", list(parts))
                ending = LoadEnding.KILLED
                while ending is LoadEnding.KILLED:
                    ending = await self._drive(log, sink, parts)
                    if not readers.may_end.is_set():
                        await self._around.env.sleep(self._around.env.rng.uniform(*RESTART_S))
                if not readers.may_end.is_set():
                    readers.ends(sink)

    def _partitions(self) -> dict[Place, int]:
        """Return the partitions to load, with their numbers in the history."""
        known = self._around.recorder.partitions
        return {place: part for place, part in known.items() if place[0] in self._settings.topics}

    async def _drive(self, log: MicroBatchLog, sink: int, parts: dict[Place, int]) -> LoadEnding:
        """Run one driver with its executors. `parts` is extended by the partitions that are added."""
        around, ending = self._around, LoadEnding.OVER
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_end, self._scenario.readers, nursery.cancel_scope)
            to_executors, tasks = trio.open_memory_channel[LoadTask](math.inf)
            done, results = trio.open_memory_channel[TaskResult](math.inf)
            for number in range(self._settings.executors):
                nursery.start_soon(LoadExecutor(around, number).run, tasks, done)

            async def drive(client: Client) -> LoadEnding:
                driver = LoadDriver(self._scenario, around, self._settings, client, log, sink, parts)
                while (ended := await self._round(driver, to_executors, results)) is None:
                    await around.env.sleep(self._settings.trigger_ms / 1000)
                return ended

            ending = await around.with_client(drive)
            nursery.cancel_scope.cancel()
        return ending

    async def _round(
        self,
        driver: LoadDriver,
        tasks: trio.MemorySendChannel[LoadTask],
        results: trio.MemoryReceiveChannel[TaskResult],
    ) -> LoadEnding | None:
        await self._handle.until_released(self._scenario.readers.may_end)
        if driver.partitions_changed(self._partitions()):
            return LoadEnding.GONE
        self._handle.done += 1
        return await driver.batch(tasks, results)


class LoadDriver:
    """Plans and commits the batches of a load, as one process of the history."""

    def __init__(
        self,
        scenario: ScenarioEnvironment,
        around: LoadEnvironment,
        settings: LoadSettings,
        client: Client,
        log: MicroBatchLog,
        sink: int,
        parts: dict[Place, int],
    ) -> None:
        self._scenario, self._around, self._settings = scenario, around, settings
        self._client, self._log, self._sink, self._parts = client, log, sink, parts
        self._idle_ns = -EMPTY_EVERY_NS
        self._reader = RecordedReader(
            around.env,
            client,
            around.recorder,
            scenario.counters,
            consumer=around.consumer,
            zone=around.zone.name,
            process=around.process(DRIVER),
        )
        around.kills.began(DRIVER, self._reader.process)

    def partitions_changed(self, now: Mapping[Place, int]) -> bool:
        """Return whether a partition of the load was deleted or made anew. Add new partitions to the load."""
        if any(now.get(place) != part for place, part in self._parts.items()):
            return True
        self._parts.update(now)
        return False

    async def batch(
        self, tasks: trio.MemorySendChannel[LoadTask], results: trio.MemoryReceiveChannel[TaskResult]
    ) -> LoadEnding | None:
        """Carry out the batch that the last driver has left, or the next one. Do nothing if there is nothing to read.
        Return why the driver ends; None: it does not.
        """
        log = self._log
        batch = log.uncommitted
        if batch is None:
            ranges = await self._planned()
            if not ranges:
                return None
            batch = log.plan(ranges, self._around.recorder.now_ns())
            if self._dies(PLANNED, batch):
                return LoadEnding.KILLED
        outputs = await self._carried_out(batch, tasks, results)
        if outputs is None:
            return LoadEnding.GONE
        if self._dies(READ, batch):
            return LoadEnding.KILLED
        if log.add_to_sink(batch):
            self._record_rows(batch, outputs)
        if self._dies(IN_SINK, batch):
            return LoadEnding.KILLED
        log.commit(batch)
        return None

    def _dies(self, moment: str, batch: PlannedBatch) -> bool:
        return self._around.dies(moment, DRIVER, self._reader.process, batch.number)

    async def _planned(self) -> list[PlannedRange]:
        """Return what the next batch can read; nothing if a leader does not answer. Partitions without anything new
        are recorded as empty polls of the sink, as those of other readers are.
        """
        log, places, began_ns = self._log, list(self._parts), self._around.recorder.now_ns()
        new = [place for place in places if place not in log.positions]
        listed = await self._reader.list_offsets(new, EARLIEST, LIST_LIMIT_S) if new else {}
        log.begin_at({place: each.offset for place, each in listed.items() if not each.error})
        ends = await self._ends(places)
        if any(place not in log.positions or place not in ends for place in places):
            return []
        found, idle = [], []
        for place, (end, limit, epoch) in ends.items():
            start = log.positions[place]
            if start < end:
                span = OffsetRange(*place, start, end, self._client.view.topic_id(place[0]), epoch)
                found.append(PlannedRange(span, self._parts[place], limit))
            else:
                idle.append(self._poll_of(self._parts[place], start, limit, epoch, []))
        if idle and began_ns - self._idle_ns >= EMPTY_EVERY_NS:
            self._idle_ns = began_ns
            self._record(began_ns, {}, ReadOutcome(got=idle))
        return found

    async def _ends(self, places: Sequence[Place]) -> dict[Place, ReadableEnd]:
        """Return how far the partitions can be read. A partition without an answer of its leader is left out."""
        listed = await self._reader.list_offsets(places, LATEST, LIST_LIMIT_S)
        return {
            place: ReadableEnd(each.offset, each.offset, each.led_epoch)
            for place, each in listed.items()
            if not each.error
        }

    async def _carried_out(
        self,
        batch: PlannedBatch,
        tasks: trio.MemorySendChannel[LoadTask],
        results: trio.MemoryReceiveChannel[TaskResult],
    ) -> list[TaskResult] | None:
        """Return the outputs of the batch's tasks, in the order of the plan. A task that fails, or whose executor is
        killed, is tried again. Return None if a range is gone.
        """
        waiting = [LoadTask(batch.number, *each) for each in enumerate(batch.tasks(self._settings.records_per_task))]
        for task in waiting:
            tasks.send_nowait(task)
        outputs: dict[int, TaskResult] = {}
        while len(outputs) < len(waiting):
            result = await results.receive()
            if isinstance(result.failure, OffsetsGone | TopicRemade):
                return None
            if result.killed or result.failure is not None:
                if result.failure is not None:
                    await self._around.env.sleep(RETRY_S)
                tasks.send_nowait(result.task)
                continue
            outputs[result.task.number] = result
        return [outputs[number] for number in range(len(waiting))]

    def _record_rows(self, batch: PlannedBatch, outputs: Sequence[TaskResult]) -> None:
        """Record the rows of a batch, which readers of the folder see from now on, as a poll of the sink."""
        counters, got = self._scenario.counters, []
        for span, part, limit in batch.ranges:
            rows = [row for each in outputs if each.task.planned.part == part for row in each.rows]
            got.append(self._poll_of(part, span.end, limit, span.leader_epoch, rows))
            counters.read += len(rows)
        bad = [each for output in outputs for each in output.bad]
        counters.bad += len(bad)
        starts = {part: span.start for span, part, _ in batch.ranges}
        self._record(batch.planned_ns, starts, ReadOutcome(got=got, bad=bad))
        ends = {(span.topic, span.partition): span.end for span, _, _ in batch.ranges}
        self._scenario.readers.moved(self._sink, ends)

    def _poll_of(
        self, part: int, position: int, limit: int, epoch: int, rows: Sequence[tuple[int, int]]
    ) -> PartitionPoll:
        bounds = (-1, limit) if self._around.consumer.isolation == 1 else (limit, -1)
        return PartitionPoll(part, position, *bounds, -1, rows, epoch)

    def _record(self, began_ns: int, starts: Mapping[int, int], outcome: ReadOutcome) -> None:
        """Record a poll of the sink. `starts` holds where the planned ranges begin."""
        recorder, positions = self._around.recorder, self._log.positions
        at = {part: starts.get(part, positions[place]) for place, part in self._parts.items() if place in positions}
        recorder.read(self._sink, "poll", began_ns, at, outcome)
        recorder.flush()


async def _cancel_at_end(readers: LiveReaders, scope: trio.CancelScope) -> None:
    await readers.may_end.wait()
    scope.cancel()
