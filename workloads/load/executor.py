"""Runs an executor of a load: it reads the ranges of tasks, and records each attempt as the reads of a process of its
own. So the history shows whether a planned range is the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from squall.broker.env import Env
from squall.checkers.history.tables import EXECUTOR
from squall.workloads.client.client import Client
from squall.workloads.client.connection import VERSION
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from squall.workloads.control import LoadHandle
from squall.workloads.kill_moments import DONE, READING
from squall.workloads.libraries import ClientZone
from squall.workloads.load.fetching import read_range
from squall.workloads.load.microbatches import PlannedRange
from squall.workloads.load.reading import CorruptBatch, LoadError, OffsetsGone, RangeReader, ReadBatch
from squall.workloads.payload import NOT_KNOWN
from squall.workloads.reader import verified
from squall.workloads.recorder import CorruptRecord, PartitionPoll, ReadOutcome, Recorder

R = TypeVar("R")
PATIENCE_S = 10.0
"""Limits the time, in seconds, for which no broker may serve a range, before the attempt fails."""
RESTART_S = (0.05, 0.4)
"""Gives the shortest and the longest time, in seconds, until a killed driver or executor has a successor."""


@dataclass(frozen=True, slots=True)
class LoadEnvironment:
    """Holds what the driver and the executors of one load share."""

    env: Env
    zone: ClientZone
    recorder: Recorder
    client: ClientSettings
    consumer: ConsumerSettings
    number: int
    """Is the number of the load among the workload's readers."""
    kills: LoadHandle
    stop: trio.Event
    """Is set at the end of the workload. From then on nothing is killed, because the load must come to the end of its
    topics.
    """

    def dies(self, moment: str, place: str, process: int, batch: int) -> bool:
        """Return whether a fault kills the process at this place of the load, at this moment of this batch."""
        return not self.stop.is_set() and self.kills.dies(moment, place, process, batch)

    def process(self, role: str, **more: object) -> int:
        """Add a process to the history. `role` is `driver` or `executor`, or `reader` for the sink of the load."""
        settings = {"isolation": self.consumer.isolation, "load": self.number, **more}
        return self.recorder.process(role, VERSION, settings, zone=self.zone.name)

    async def with_client(self, use: Callable[[Client], Awaitable[R]]) -> R:
        """Return what `use` returns, given a client that runs until then. A cancellation ends `use` first, and then the
        client, which could not open connections any more.
        """
        client = Client(self.env, self.zone.bootstrap, self.client, cluster_id=self.zone.cluster_id)
        life, runs = trio.CancelScope(shield=True), trio.Event()

        async def run() -> None:
            with life:
                async with trio.open_nursery() as shielded:
                    await shielded.start(client.run)
                    runs.set()

        async with trio.open_nursery() as nursery:
            # Not `nursery.start`: cancelled meanwhile, it would wait for the shielded client for ever.
            nursery.start_soon(run)
            try:
                await runs.wait()
                found = await use(client)
            finally:
                client.close()
                life.cancel()
        return found


class LoadTask(NamedTuple):
    """Names a task of a batch: its number in the plan, and what it reads."""

    batch: int
    number: int
    planned: PlannedRange


class TaskResult(NamedTuple):
    """Says how an attempt of a task ended. Its output counts only once the batch is committed."""

    task: LoadTask
    rows: list[tuple[int, int]]
    """Lists (offset, value) of each record; the value is -1 if the payload did not verify."""
    bad: list[CorruptRecord]
    failure: LoadError | None = None
    killed: bool = False


class LoadExecutor:
    """Takes tasks from the driver and returns their results. Killed, it gets a successor, another process of the
    history.
    """

    def __init__(self, around: LoadEnvironment, number: int) -> None:
        self._around, self._number = around, number
        self._task: LoadTask | None = None
        """Is the task under way, which is tried again if the executor is killed."""

    async def run(self, tasks: trio.MemoryReceiveChannel[LoadTask], done: trio.MemorySendChannel[TaskResult]) -> None:
        """Read the ranges of tasks until the driver cancels the executor."""
        around = self._around
        while True:
            with trio.CancelScope() as life:
                await around.with_client(partial(self._work, tasks, done, life))
            if self._task is not None:
                done.send_nowait(TaskResult(self._task, [], [], killed=True))
                self._task = None
            await around.env.sleep(around.env.rng.uniform(*RESTART_S))

    async def _work(
        self,
        tasks: trio.MemoryReceiveChannel[LoadTask],
        done: trio.MemorySendChannel[TaskResult],
        life: trio.CancelScope,
        client: Client,
    ) -> None:
        """Read ranges as one process of the history, until `life` is cancelled."""
        process = self._around.process(EXECUTOR, executor=self._number)
        me = ExecutorProcess(f"executor {self._number}", process, life)
        self._around.kills.began(me.place, process)
        while True:
            self._task = await tasks.receive()
            done.send_nowait(await TaskAttempt(self._around, client, me, self._task).run())
            self._task = None


class ExecutorProcess(NamedTuple):
    """Identifies a process of an executor."""

    place: str
    """Names the executor among the processes of its load (`LoadKill.place`)."""
    number: int
    life: trio.CancelScope


class TaskAttempt:
    """Reads the range of a task once, as a process of an executor."""

    def __init__(self, around: LoadEnvironment, client: Client, executor: ExecutorProcess, task: LoadTask) -> None:
        self.task = task
        self._around, self._client, self._executor, self._process = around, client, executor, executor.number
        self._span, self._part = task.planned.span, task.planned.part
        self._reader = RangeReader(self._span, around.consumer.isolation)
        self._position, self._began_ns = self._span.start, 0
        self._rows: list[tuple[int, int]] = []
        self._bad: list[CorruptRecord] = []

    async def run(self) -> TaskResult:
        """Return the rows, or why the range could not be read."""
        recorder = self._around.recorder
        op = recorder.invoke(self._process, "assign", {"at": {self._part: self._position}})
        recorder.complete(op, OperationStatus.OK)
        self._began_ns = recorder.now_ns()
        failure: LoadError | None = None
        try:
            await read_range(self._client, self._reader, self._take, self._around.consumer, PATIENCE_S)
        except* LoadError as group:
            failure = _first_of(group)
        if failure is None:
            self._record([], [])
            await self._die_if_hit(DONE)
        else:
            self._record_failure(failure)
        recorder.flush()
        return TaskResult(self.task, self._rows, self._bad, failure)

    async def _take(self, found: list[ReadBatch]) -> None:
        rows, bad = list[tuple[int, int]](), list[CorruptRecord]()
        for batch in found:
            records = batch.records
            if batch.header.timestamp_type:
                records = [record._replace(timestamp=NOT_KNOWN) for record in records]
            rows += verified(self._part, records, bad)
        self._record(rows, bad)
        self._rows += rows
        self._bad += bad
        await self._die_if_hit(READING)

    def _record(self, rows: list[tuple[int, int]], bad: list[CorruptRecord]) -> None:
        """Record what the attempt has read since the last call, as one poll."""
        position = self._reader.position
        if not rows and position == self._position:
            return
        recorder = self._around.recorder
        got = PartitionPoll(self._part, position, -1, -1, -1, rows)
        at = {self._part: self._position}
        recorder.read(self._process, "poll", self._began_ns, at, ReadOutcome(got=[got], bad=bad))
        recorder.flush()
        self._position, self._began_ns = position, recorder.now_ns()

    def _record_failure(self, failure: LoadError) -> None:
        recorder, position = self._around.recorder, self._reader.position
        where = {"p": self._process, "part": self._part}
        if isinstance(failure, OffsetsGone):
            recorder.event("offset_out_of_range", **where, position=position, log_start=-1, end=-1)
        if isinstance(failure, CorruptBatch):
            bad = [CorruptRecord(self._part, position, str(failure))]
            got = [PartitionPoll(self._part, position, -1, -1, -1, [(position, -1)])]
            at = {self._part: position}
            recorder.read(self._process, "poll", self._began_ns, at, ReadOutcome(got=got, bad=bad))
        span = {"from": self._span.start, "to": self._span.end, "batch": self.task.batch}
        recorder.event("range_failed", **where, **span, why=f"{type(failure).__name__}: {failure}")

    async def _die_if_hit(self, moment: str) -> None:
        if self._around.dies(moment, self._executor.place, self._process, self.task.batch):
            self._executor.life.cancel()
            await self._around.env.sleep(0)


def _first_of(group: BaseExceptionGroup[LoadError]) -> LoadError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, LoadError)
    return found
