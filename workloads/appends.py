"""The workload `appends`: producers append uniquely valued records to a few partitions, readers follow.

Producers are paced open loops: records are due by the clock, not by the cluster's answers, so an outage does not slow
the load down until the producers' buffers are full. A producing process that ends with anything in doubt is never used
again; a successor with a new process id, a new client and a new producer id takes over while the old one finishes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import trio

from broker.env import Env
from workloads import payload
from workloads.agenda import Agenda, Drawn, Given, Handover
from workloads.client.admin import EARLIEST, LATEST, NewTopic, create_topics
from workloads.client.client import Client
from workloads.client.cluster import Address, Place
from workloads.client.connection import VERSION, RequestFailed, UnsupportedApi
from workloads.client.consumer import LOG_TRUNCATED, ReadEvent
from workloads.client.outcomes import Outcome, Status
from workloads.client.producer import Producer
from workloads.client.settings import ClientSettings, ConsumerSettings, ProducerSettings, SettingsError
from workloads.control import Controls, Handle
from workloads.counters import Counters
from workloads.libraries import Driver, ReaderTask, Sending, Zone, read_by
from workloads.reader import RecordedReader
from workloads.recorder import Recorder

TICK_S = 0.005
"""Records that come due within one tick are handed over together."""
LOOK_EVERY_S = 60.0
"""A producer without anything to do looks so often whether it was retired."""
POLL_LIMIT_S = 1.0
SUCCESSOR_PAUSE_S = 0.1
SUCCESSOR_PAUSE_MAX_S = 5.0
KEYS = 64
"""Different keys of each process."""
LIST_LIMIT_S = 10.0
LAG_EVERY_S, LAG_LIMIT_S, LAG_PAUSES = 1.0, 0.25, 10
"""A reader asks so often where its partitions end, to know its lag, but at most once in so many of its pauses between
polls; who does not answer in time is not waited for."""
TOPIC_EXISTS = "TOPIC_ALREADY_EXISTS"


Acknowledged = Callable[[str, int, int, int], None]
"""Topic, partition, offset (-1: not told) and value of a record whose send was ok."""


class WorkloadFailed(Exception):
    """The workload could not begin. The message says why."""


@dataclass(frozen=True, slots=True)
class AppendsSettings:
    """Load and clients. Checked once, at construction (SettingsError)."""

    topics: int = 2
    partitions: int = 3
    """Of each topic."""
    replication_factor: int = 3
    min_isr: int = 2
    topic_prefix: str = "appends"
    topic_configs: tuple[tuple[str, str], ...] = ()
    """Further settings of the topics."""
    acks: int = -1
    idempotence: bool = True
    max_in_flight: int = 5
    producers: int = 4
    readers: int = 3
    rate: float = 2000.0
    """Records per second, all producers together."""
    min_size: int = 100
    """Of a record's value, bytes."""
    max_size: int = 2048
    linger_ms: int = 5
    batch_size: int = 16 * 1024
    codec: str = "none"
    poll_pause_ms: int = 20
    """What a reader takes to handle what a poll returned: so that polls bring more than a record each."""
    buffer_bytes: int = 8 * 1024 * 1024
    """Of each producer."""
    request_timeout_ms: int = 10_000
    delivery_timeout_ms: int = 30_000
    setup_timeout_ms: int = 60_000
    """Until the topics exist and every partition has a leader."""
    operations: tuple[Handover, ...] | None = None
    """What is handed over, when, and by which producer, since the workload began; None: drawn, at the rate."""

    def __post_init__(self) -> None:
        for name in ("topics", "partitions", "replication_factor", "min_isr", "producers", "min_size"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name}={getattr(self, name)}: at least 1")
        if not self.min_size <= self.max_size:
            raise SettingsError(f"min_size={self.min_size}, max_size={self.max_size}: the first is larger")
        if self.rate <= 0 or self.readers < 0:
            raise SettingsError(f"rate={self.rate}, readers={self.readers}: above 0, at least 0")
        if self.min_isr > self.replication_factor:
            raise SettingsError(f"min_isr={self.min_isr} with replication_factor={self.replication_factor}")
        self.producer()
        self.client()

    def producer(self) -> ProducerSettings:
        """Of each producer."""
        return ProducerSettings(
            acks=self.acks,
            idempotence=self.idempotence,
            linger_ms=self.linger_ms,
            batch_size=self.batch_size,
            codec=self.codec,
            max_in_flight=self.max_in_flight,
            delivery_timeout_ms=self.delivery_timeout_ms,
            buffer_bytes=self.buffer_bytes,
        )

    def client(self) -> ClientSettings:
        """Of every client."""
        return ClientSettings(request_timeout_ms=self.request_timeout_ms)

    def names(self) -> list[str]:
        """The topics' names."""
        return [f"{self.topic_prefix}-{number}" for number in range(self.topics)]

    def places(self) -> list[Place]:
        """All partitions."""
        return [(topic, index) for topic in self.names() for index in range(self.partitions)]

    def configs(self) -> dict[str, str]:
        """The topics' settings."""
        return {"min.insync.replicas": str(self.min_isr), **dict(self.topic_configs)}

    def assignment(self, reader: int) -> list[Place]:
        """What a reader reads: each partition has a reader, and a second one where there are several readers."""
        return [
            place
            for number, place in enumerate(self.places())
            if reader in (number % self.readers, (number + 1) % self.readers)
        ]


async def run_appends(
    env: Env,
    zones: Sequence[Zone],
    settings: AppendsSettings,
    recorder: Recorder,
    stop: trio.Event,
    counters: Counters,
    *,
    envs: Callable[[str], Env] | None = None,
    acknowledged: Acknowledged | None = None,
    controls: Controls | None = None,
) -> None:
    """Create the topics, drive the load until `stop`, then wait until every record has its outcome.

    `zones` take turns: the first producer and the first reader are of the first one, and so on; topics are made from
    the first. `envs` gives each producer and reader, by name, an Env of its own, so that what one draws does not
    change what another draws. `acknowledged` is told of each record whose send was ok. `controls`: what is done to
    clients from outside. Raises WorkloadFailed where the topics cannot be made, OSError where the history cannot be
    written.
    """
    own: Callable[[str], Env] = envs if envs is not None else lambda name: env
    began = env.mono()
    await make_topics(env, zones[0].bootstrap, settings, recorder)
    sent_all = trio.Event()
    hands = controls if controls is not None else Controls(settings.producers, settings.readers)
    async with trio.open_nursery() as nursery:
        for number in range(settings.readers):
            zone = zones[number % len(zones)]
            if zone.driver is not None:
                task = ReaderTask(number, settings.assignment(number), number % 2, zone.name)
                nursery.start_soon(read_by, zone.driver, recorder, counters, task, sent_all)
                continue
            reading = own(f"reader-{number}")
            told = (recorder, counters, number, hands.readers[number], sent_all)
            nursery.start_soon(partial(_read, reading, zone, settings, *told))
        async with trio.open_nursery() as producing:
            for number in range(settings.producers):
                sending = own(f"producer-{number}")
                agenda = _agenda(settings, sending, number, began)
                about = (recorder, counters, acknowledged, hands.producers[number])
                sender = _Sender(sending, zones[number % len(zones)], settings, number, agenda, *about)
                producing.start_soon(sender.run, stop)
        sent_all.set()
    recorder.flush()


def _agenda(settings: AppendsSettings, env: Env, number: int, began: float) -> Agenda:
    """What one producer has to hand over."""
    if settings.operations is not None:
        return Given(settings.operations, number, began)
    sizes = (settings.min_size, settings.max_size)
    return Drawn(env, settings.places(), sizes, settings.producers / settings.rate, TICK_S)


async def make_topics(
    env: Env, bootstrap: Sequence[Address], settings: AppendsSettings, recorder: Recorder
) -> dict[Place, int]:
    """Create the topics unless they exist, wait for leaders, declare the partitions. Partition -> dense id."""
    configs = settings.configs()
    wanted = [NewTopic(name, settings.partitions, settings.replication_factor, configs) for name in settings.names()]
    trouble = ["no answer"]
    async with trio.open_nursery() as nursery:
        client = Client(env, bootstrap, settings.client())
        await nursery.start(client.run)
        with env.timeout(settings.setup_timeout_ms / 1000) as limit:
            await _create(client, wanted, trouble)
            trouble.append("a partition has no leader")
            client.track(settings.names())
            while not all(_is_led(client, place) for place in settings.places()):
                await client.refreshed()
        client.close()
    if limit.cancelled_caught:
        raise WorkloadFailed(f"the topics were not ready within {settings.setup_timeout_ms} ms: {trouble[-1]}")
    return _declare(settings, recorder, configs)


async def _create(client: Client, wanted: Sequence[NewTopic], trouble: list[str]) -> None:
    """Until all exist. What went wrong goes into `trouble`."""
    missing = {topic.name: topic for topic in wanted}
    failures = 0
    while missing:
        try:
            answers = await create_topics(client, list(missing.values()))
        except (RequestFailed, UnsupportedApi) as failure:
            answers = {}
            trouble[:] = [str(failure)]
        for name, error in answers.items():
            if error in ("", TOPIC_EXISTS):
                missing.pop(name, None)
            else:
                trouble[:] = [f"{name}: {error}"]
        if missing:
            failures += 1
            await client.env.sleep(client.backoff(failures))


def _is_led(client: Client, place: Place) -> bool:
    leader = client.view.leader(*place)
    return leader is not None and leader.node_id >= 0


def _declare(settings: AppendsSettings, recorder: Recorder, configs: Mapping[str, str]) -> dict[Place, int]:
    cleanup = configs.get("cleanup.policy", "delete")
    retention_ms = int(configs.get("retention.ms", "-1"))
    found = {
        (topic, index): recorder.partition(topic, index, cleanup=cleanup, retention_ms=retention_ms)
        for topic, index in settings.places()
    }
    recorder.flush()
    return found


@dataclass
class _Life:
    """One process of a producer."""

    scope: trio.CancelScope
    task_status: trio.TaskStatus[None]
    open: int = 0
    """Records without an outcome yet."""


class _Sender:
    """One of the workload's producers: one process after the other."""

    def __init__(
        self,
        env: Env,
        zone: Zone,
        settings: AppendsSettings,
        number: int,
        agenda: Agenda,
        recorder: Recorder,
        counters: Counters,
        acknowledged: Acknowledged | None,
        handle: Handle,
    ) -> None:
        self._env = env
        self._zone = zone
        self._settings = settings
        self._recorder = recorder
        self._counters = counters
        self._number = number
        self._agenda = agenda
        self._acknowledged = acknowledged
        self._handle = handle
        self._stopped = env.signal()

    async def run(self, stop: trio.Event) -> None:
        """Until `stop`, and until the last process has its outcomes."""
        pause_s = SUCCESSOR_PAUSE_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_stopped, stop)
            while not stop.is_set():
                acked = self._counters.acked
                await nursery.start(self._mortal, stop)
                if stop.is_set():
                    return
                self._counters.producers_replaced += 1
                # A cluster that refuses everything must not make us use up processes by the thousand.
                pause_s = SUCCESSOR_PAUSE_S if self._counters.acked > acked else min(pause_s * 2, SUCCESSOR_PAUSE_MAX_S)
                with self._env.timeout(pause_s):
                    await stop.wait()

    async def _tell_stopped(self, stop: trio.Event) -> None:
        await stop.wait()
        self._stopped.set()

    async def _mortal(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One process, which may be made to crash: what it has in doubt then has no outcome, ever."""
        life = _Life(trio.CancelScope(), task_status)
        with life.scope:
            await self._live(stop, life)
        if life.scope.cancelled_caught:
            self._counters.info += life.open
            await self._handle.may_follow(stop)
            task_status.started()

    async def _live(self, stop: trio.Event, life: _Life) -> None:
        """One process. "Started" is said when a successor may take over; this one then only finishes."""
        settings = self._settings
        about = {**asdict(settings.producer()), "request_timeout_ms": settings.request_timeout_ms}
        about["producer"] = self._number
        async with trio.open_nursery() as nursery:
            if self._zone.driver is not None:
                await self._live_by(self._zone.driver, nursery, about, stop, life)
                return
            process = self._recorder.process("producer", VERSION, about, zone=self._zone.name)
            client = Client(self._env, self._zone.bootstrap, settings.client())
            client.track(settings.names())
            await nursery.start(client.run)
            flush = self._recorder.flush
            producer = Producer(client, settings.producer(), before_send=flush, after_outcomes=flush)
            await nursery.start(producer.run)
            await self._pace(producer, process, stop, life)
            life.task_status.started()
            producer.retire("nothing more to send")
            await producer.finish()
            producer.close()
            client.close()

    async def _live_by(
        self,
        driver: Driver,
        nursery: trio.Nursery,
        about: Mapping[str, object],
        stop: trio.Event,
        life: _Life,
    ) -> None:
        """One process that is a library's."""
        settings = {**about, **driver.about()}
        zone = self._zone.name
        process = self._recorder.process("producer", driver.version, settings, client=driver.client, zone=zone)
        producer = await driver.producer(nursery, self._recorder.flush)
        await self._pace(producer, process, stop, life)
        life.task_status.started()
        producer.retire("nothing more to send")
        await producer.finish()
        producer.close()

    async def _pace(self, producer: Sending, process: int, stop: trio.Event, life: _Life) -> None:
        """Hand over what is due, until `stop` or until the producer takes no more records."""
        sequence = 0
        agenda, handle = self._agenda, self._handle
        handle.began(process, life.scope)
        while not stop.is_set() and not producer.retired:
            await handle.going(stop)
            now = self._env.mono()
            while agenda.due_at <= now and producer.takes(self._settings.max_size):
                self._send(producer, process, sequence, life, *agenda.take())
                handle.done += 1
                sequence += 1
            self._counters.skipped += agenda.skip(now)
            await self._stopped.wait(min(max(agenda.due_at - now, TICK_S), LOOK_EVERY_S))
        handle.over(life.scope)

    def _send(
        self, producer: Sending, process: int, sequence: int, life: _Life, topic: str, index: int, size: int
    ) -> None:
        part = self._recorder.partitions[topic, index]
        key = f"{process}-{sequence % KEYS}"
        encoded = key.encode()
        value = payload.value_of(process, sequence)
        content, digest = payload.make(value, encoded, (), size)
        op = self._recorder.invoke_send(process, part, value, key, digest, size)
        self._counters.sent += 1
        life.open += 1
        ended = partial(self._ended, life, op, part, value)
        producer.send(topic, index, encoded, content, [], self._env.wall_ms(), ended)

    def _ended(self, life: _Life, op: int, part: int, value: int, outcome: Outcome) -> None:
        if life.scope.cancel_called:
            return  # nobody is there any more who could be told
        life.open -= 1
        counters = self._counters
        if outcome.status is Status.OK:
            self._recorder.send_ok(op, outcome.offset, outcome.timestamp_ms)
            counters.acked += 1
            counters.last_ack[part] = self._env.mono()
            if self._acknowledged is not None:
                self._acknowledged(*self._recorder.place(part), outcome.offset, value)
            return
        self._recorder.send_not_ok(op, outcome.status, outcome.error)
        if outcome.status is Status.INFO:
            counters.info += 1
        else:
            counters.failed += 1


async def _read(
    env: Env,
    zone: Zone,
    settings: AppendsSettings,
    recorder: Recorder,
    counters: Counters,
    number: int,
    handle: Handle,
    sent_all: trio.Event,
) -> None:
    """One of the workload's readers: from the log's start, until all has been sent and the last poll is done."""
    places = settings.assignment(number)
    async with trio.open_nursery() as nursery:
        client = Client(env, zone.bootstrap, settings.client())
        await nursery.start(client.run)
        consumer = ConsumerSettings(isolation=number % 2)
        reader = RecordedReader(
            env,
            client,
            recorder,
            counters,
            role="reader",
            consumer=consumer,
            zone=zone.name,
            extra={"reader": number},
        )
        starts: dict[Place, int] = {}
        while len(starts) < len(places) and not sent_all.is_set():
            left = [place for place in places if place not in starts]
            listed = await reader.list_offsets(left, EARLIEST, LIST_LIMIT_S)
            starts.update({place: found.offset for place, found in listed.items() if not found.error})
        reader.assign(starts)
        pause_s = settings.poll_pause_ms / 1000
        look_at_s = 0.0
        while not sent_all.is_set():
            if env.mono() >= look_at_s:
                await reader.list_offsets(places, LATEST, LAG_LIMIT_S)
                look_at_s = env.mono() + max(LAG_EVERY_S, LAG_PAUSES * pause_s)
            await handle.going(sent_all)
            handle.done += 1
            polled = await reader.poll("poll", POLL_LIMIT_S)
            for event in polled.events:
                await _recover(reader, event)
            await env.sleep(pause_s)
        client.close()


async def _recover(reader: RecordedReader, event: ReadEvent) -> None:
    """Give a position that became impossible the nearest one that is possible."""
    if event.kind == LOG_TRUNCATED and event.end_offset >= 0:
        reader.seek(event.place, min(event.end_offset, event.position))
        return
    first = (await reader.list_offsets([event.place], EARLIEST, LIST_LIMIT_S))[event.place]
    last = (await reader.list_offsets([event.place], LATEST, LIST_LIMIT_S))[event.place]
    if first.error or last.error:
        # As it was: the next poll finds the position impossible again.
        reader.seek(event.place, event.position)
    else:
        reader.seek(event.place, max(first.offset, min(event.position, last.offset)))
