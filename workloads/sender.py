"""Runs one of a workload's producers. Each record is sent at a given time, whether earlier records are acknowledged or
not (an open loop): an outage slows the load down only when the producer's buffer is full.

A producer is a sequence of processes of the history (Jepsen's logical processes). A process that does not know the
outcome of some record is never used again. While it waits for the outcomes, its successor already sends, with a new
process id, a new client and a new producer id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import trio

from squall.broker.env import Env
from squall.checkers.anomalies.anomaly import PROGRAM
from squall.checkers.sent import client_id_of
from squall.workloads import payload
from squall.workloads.agenda import RecordSchedule
from squall.workloads.client.client import Client
from squall.workloads.client.connection import VERSION
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ClientSettings, ProducerSettings
from squall.workloads.libraries import LibraryClientFactory, WorkloadProducer
from squall.workloads.scenario import ScenarioEnvironment

TICK_S = 0.005
"""Records that come due within one tick of this length are sent together."""
LOOK_EVERY_S = 60.0
"""A producer that waits for its next record checks at least this often whether its client still accepts records."""
SUCCESSOR_PAUSE_S = 0.1
SUCCESSOR_PAUSE_MAX_S = 5.0
KEYS = 64
"""Is the number of different record keys that each process uses."""


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """Holds the settings that all producers of a load have."""

    producer: ProducerSettings
    client: ClientSettings
    topics: Sequence[str]
    """Lists the topics to which the producers send."""
    max_bytes: int
    """Gives the largest size of a record's value."""
    headers: bool = False
    """Is True if some records of Squall's own client have headers, which requires that every reader reports headers."""


@dataclass
class _ProducerProcess:
    """Holds the state of one process of a producer. It is a process of the history, not of the operating system."""

    scope: trio.CancelScope
    task_status: trio.TaskStatus[None]
    open: int = 0
    """Counts the records without an outcome yet."""


class ProducerLoop:
    """Runs one producer of the load, as one process of the history after another. A successor begins if a process
    crashes, or if its client accepts no more records, for example because the outcome of a record is unknown.
    """

    def __init__(
        self, env: Env, around: ScenarioEnvironment, settings: SenderSettings, number: int, agenda: RecordSchedule
    ) -> None:
        self._env = env
        self._zone = around.zone(number)
        self._settings = settings
        self._recorder = around.recorder
        self._counters = around.counters
        self._number = number
        self._agenda = agenda
        self._acknowledged = around.acknowledged
        self._handle = around.controls.producers[number]
        self._stopped = env.signal()
        driver = self._zone.driver
        self._keeps_timestamps = driver is None or driver.client != PROGRAM

    async def run(self, stop: trio.Event) -> None:
        """Run processes until `stop`, and until the last process has all its outcomes."""
        pause_s = SUCCESSOR_PAUSE_S
        async with trio.open_nursery() as nursery:
            # `_pace` waits for one signal with a time-out, which costs less than a cancel scope around an event.
            nursery.start_soon(self._tell_stopped, stop)
            while not stop.is_set():
                acked = self._counters.acked
                await nursery.start(self._run_until_crash, stop)
                if stop.is_set():
                    return
                self._counters.producers_replaced += 1
                # A cluster that refuses everything must not use up processes by the thousand.
                pause_s = SUCCESSOR_PAUSE_S if self._counters.acked > acked else min(pause_s * 2, SUCCESSOR_PAUSE_MAX_S)
                with self._env.timeout(pause_s):
                    await stop.wait()

    async def _tell_stopped(self, stop: trio.Event) -> None:
        await stop.wait()
        self._stopped.set()

    async def _run_until_crash(
        self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run one process of the producer until it ends or a fault crashes it. Records that have no outcome at the
        crash never get one.
        """
        running = _ProducerProcess(trio.CancelScope(), task_status)
        with self._handle.process_lifetime(), running.scope:
            await self._live(stop, running)
        if running.scope.cancelled_caught:
            self._counters.info += running.open
            await self._handle.until_replaceable(stop)
            task_status.started()

    async def _live(self, stop: trio.Event, running: _ProducerProcess) -> None:
        """Run one process of the producer. It sends records until the load stops or the producer accepts no more. Then
        `running.task_status.started` lets the next process begin, while this one waits for the outcomes of its records.
        """
        settings = self._settings
        about = {**asdict(settings.producer), "request_timeout_ms": settings.client.request_timeout_ms}
        about["producer"] = self._number
        async with trio.open_nursery() as nursery:
            if self._zone.driver is not None:
                await self._live_with_library(self._zone.driver, nursery, about, stop, running)
                return
            process = self._recorder.process("producer", VERSION, about, zone=self._zone.name)
            shared = replace(settings.client, client_id=client_id_of(process))
            client = Client(self._env, self._zone.bootstrap, shared, cluster_id=self._zone.cluster_id)
            client.track(settings.topics)
            await nursery.start(client.run)
            flush = self._recorder.flush
            producer = Producer(client, settings.producer, before_send=flush, after_outcomes=flush)
            await nursery.start(producer.run)
            await self._pace(producer, process, stop, running)
            running.task_status.started()
            producer.retire("nothing more to send")
            await producer.finish()
            producer.close()
            client.close()

    async def _live_with_library(
        self,
        driver: LibraryClientFactory,
        nursery: trio.Nursery,
        about: Mapping[str, object],
        stop: trio.Event,
        running: _ProducerProcess,
    ) -> None:
        """Run one process with the client library of `driver`. `about` holds the producer settings for the history."""
        settings = {**about, **driver.about()}
        zone = self._zone.name
        process = self._recorder.process("producer", driver.version, settings, client=driver.client, zone=zone)
        producer = await driver.producer(nursery, client_id_of(process), self._recorder.flush)
        await self._pace(producer, process, stop, running)
        running.task_status.started()
        producer.retire("nothing more to send")
        await producer.finish()
        producer.close()

    async def _pace(
        self, producer: WorkloadProducer, process: int, stop: trio.Event, running: _ProducerProcess
    ) -> None:
        """Send the records that are due, until `stop` or until the producer accepts no more records."""
        sequence = 0
        agenda, handle = self._agenda, self._handle
        handle.began(process, running.scope)
        while not stop.is_set() and not producer.retired:
            await handle.until_released(stop)
            now = self._env.mono()
            while agenda.due_at <= now and producer.takes(self._settings.max_bytes):
                self._send(producer, process, sequence, running, *agenda.take())
                handle.done += 1
                sequence += 1
            # A full buffer keeps records back. Without skipping, a flood of overdue ones would follow each outage.
            self._counters.skipped += agenda.skip(now)
            await self._stopped.wait(min(max(agenda.due_at - now, TICK_S), LOOK_EVERY_S))
        handle.over(running.scope)

    def _send(
        self,
        producer: WorkloadProducer,
        process: int,
        sequence: int,
        running: _ProducerProcess,
        topic: str,
        index: int,
        size: int,
    ) -> None:
        part = self._recorder.partitions[topic, index]
        key = f"{process}-{sequence % KEYS}"
        encoded = key.encode()
        value = payload.value_of(process, sequence)
        headers = payload.headers_of(value, sequence) if self._settings.headers and self._zone.driver is None else []
        sent_ms = self._env.wall_ms()
        promised_ms = sent_ms if self._keeps_timestamps else payload.NOT_PROMISED
        content, digest = payload.make(value, encoded, headers, size - payload.size_of(headers), promised_ms)
        op = self._recorder.invoke_send(process, part, value, key, digest, size)
        self._counters.sent += 1
        running.open += 1
        ended = partial(self._ended, running, op, part, value, self._env.mono())
        producer.send(topic, index, encoded, content, headers, sent_ms, ended)

    def _ended(
        self, running: _ProducerProcess, op: int, part: int, value: int, handed_over: float, outcome: Outcome
    ) -> None:
        if running.scope.cancel_called:
            return  # the process has crashed: its open records stay without an outcome
        running.open -= 1
        counters = self._counters
        if outcome.status is OperationStatus.OK:
            self._recorder.send_ok(op, outcome.offset, outcome.timestamp_ms, outcome.tries)
            counters.acknowledge(part, handed_over, self._env.mono())
            if self._acknowledged is not None:
                self._acknowledged(*self._recorder.place(part), outcome.offset, value)
            return
        self._recorder.send_not_ok(op, outcome.status, outcome.error)
        if outcome.status is OperationStatus.INFO:
            counters.info += 1
        else:
            counters.failed += 1
