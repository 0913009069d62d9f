"""Runs one of the workload's producers as a sequence of processes of the history (Jepsen's logical processes), each
doing transactions in sequence.

A process ends once one of its transactions failed, has an unknown end, or is left open on purpose. Its successor takes
over its transactional id, which fences it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import trio

from squall.broker.env import Env
from squall.checkers.sent import client_id_of
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import VERSION
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from squall.workloads.client.transactions import TransactionManager
from squall.workloads.control import ZombieRun
from squall.workloads.libraries import LibraryClientFactory, TransactionalSender, TransactorConfig
from squall.workloads.reader import RecordedReader
from squall.workloads.scenario import ScenarioEnvironment
from squall.workloads.start_positions import BEGINNINGS
from squall.workloads.transactions.agenda import TransactionSchedule
from squall.workloads.transactions.operations import COMMIT, SEND, PlannedTransaction, TransactionMix
from squall.workloads.transactions.own import OwnTransactionalProducer
from squall.workloads.transactions.polling import LibraryTransactionPoller, TransactionPoller
from squall.workloads.transactions.process import TransactionalProcess, TransactionRecording

SUCCESSOR_PAUSE_S, SUCCESSOR_PAUSE_MAX_S = 0.1, 5.0
POLL_WAIT_MS = 100
"""Limits in ms how long a broker may wait for records before it answers a poll inside a transaction."""
LOOK_EVERY_S = 60.0
"""Limits in seconds how long an idle producer sleeps before it checks again whether its next transaction is due."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Holds the settings that all transactional producers of a load share."""

    producer: ProducerSettings
    client: ClientSettings
    places: Sequence[Place]
    """Lists the partitions that the producers send to and poll."""
    transaction_timeout_ms: int
    generation: int
    """Gives the highest transaction version that the producers use, 1 or 2. With version 2 each transaction has a new
    epoch (KIP-890).
    """
    draw: TransactionMix
    ids: Sequence[str]
    """Lists the transactional id of each producer, by its number."""
    level: Callable[[int], int]
    """Returns the isolation level at which the producer of this number polls."""


class TransactionalWriter:
    """Runs one transactional producer as a sequence of logical processes, as in Jepsen. When a process has ended or
    crashed, the next one takes over its transactional id.
    """

    def __init__(
        self, env: Env, around: ScenarioEnvironment, settings: WriterSettings, number: int, began: float
    ) -> None:
        self._env, self._number = env, number
        self._zone = around.zone(number)
        self._recorder, self._counters, self._stop = around.recorder, around.counters, around.stop
        self._acknowledged = around.acknowledged
        self._handle = around.controls.producers[number]
        producer = replace(settings.producer, transactional_id=settings.ids[number])
        self._settings = replace(settings, producer=producer)
        self._agenda = TransactionSchedule(env, around, settings.draw, number, began)
        self._left_open = False
        """Is True if this writer's latest process may have left a transaction open, for example because a fault crashed
        it.
        """
        self._stopped = env.signal()

    async def run(self) -> None:
        """Run one process after the other until the load ends (`ScenarioEnvironment.stop`). If the last process left a
        transaction open, one more process takes over its transactional id, which ends the transaction.
        """
        pause_s = SUCCESSOR_PAUSE_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_stopped)
            self._handle.notify = self._stopped.set
            while True:
                # A process that begins after `stop` only ends the transaction that its predecessor left open: it is the
                # last one.
                over, acked = self._stop.is_set(), self._counters.acked
                if (zombie_run := self._handle.pending_zombie) is not None:
                    await nursery.start(self._run_zombie_process, zombie_run)
                else:
                    await self._run_until_crash()
                if over or (self._stop.is_set() and not self._left_open):
                    return
                self._counters.producers_replaced += 1
                # A cluster that refuses everything must not use up processes by the thousand.
                pause_s = SUCCESSOR_PAUSE_S if self._counters.acked > acked else min(pause_s * 2, SUCCESSOR_PAUSE_MAX_S)
                with self._env.timeout(pause_s):
                    await self._stop.wait()

    async def _tell_stopped(self) -> None:
        await self._stop.wait()
        self._stopped.set()

    async def _run_zombie_process(self, zombie_run: ZombieRun, task_status: trio.TaskStatus[None]) -> None:
        """Run one process that becomes a zombie. Once it is paused, its successor runs beside it."""
        await self._run_until_crash(zombie_run, task_status.started)
        if zombie_run.zombie < 0:
            task_status.started()  # it never came to stand still: the next one may
        else:
            zombie_run.over = True

    async def _run_until_crash(
        self, zombie_run: ZombieRun | None = None, follow: Callable[[], None] = lambda: None
    ) -> None:
        """Run one process until it ends by itself or a fault crashes it. After a crash, its records without an outcome
        never get one, and the method waits until the fault lets a successor begin.

        With `zombie_run` the process becomes a zombie. `follow` is called when the zombie pauses, and lets its
        successor begin.
        """
        scope = trio.CancelScope()
        notes = TransactionRecording(self._recorder, self._counters, self._acknowledged, lambda: scope.cancel_called)
        notes.zombie_run, notes.follow = zombie_run, follow
        with scope:
            await self._live(scope, notes)
        if scope.cancelled_caught:
            self._counters.info += notes.open
            self._left_open = True
            await self._handle.until_replaceable(self._stop)

    async def _live(self, scope: trio.CancelScope, notes: TransactionRecording) -> None:
        """Run one process: connect its clients, do its transactions, and close its clients. A fault crashes the process
        by cancelling `scope`. `notes` holds what the process needs to record its operations.
        """
        settings, flush = self._settings, self._recorder.flush
        about = {**asdict(settings.producer), "request_timeout_ms": settings.client.request_timeout_ms}
        about |= {"producer": self._number, "generation": settings.generation}
        about |= {
            "isolation": settings.level(self._number),
            **({"zombie": True} if notes.zombie_run is not None else {}),
        }
        async with trio.open_nursery() as nursery:
            if self._zone.driver is not None:
                await self._live_with_library(self._zone.driver, nursery, about, scope, notes)
                return
            process = self._recorder.process("producer", VERSION, about, zone=self._zone.name)
            shared = replace(settings.client, client_id=client_id_of(process))
            client = Client(self._env, self._zone.bootstrap, shared, cluster_id=self._zone.cluster_id)
            client.track(topic for topic, _ in settings.places)
            await nursery.start(client.run)
            producer = Producer(client, settings.producer, before_send=flush, after_outcomes=flush)
            await nursery.start(producer.run)
            limit_s = settings.producer.delivery_timeout_ms / 1000
            id_, timeout_ms = settings.producer.transactional_id, settings.transaction_timeout_ms
            coordinator = TransactionManager(client, id_, timeout_ms, limit_s, generation=settings.generation)
            own, polling = OwnTransactionalProducer(producer, coordinator), self._polling(nursery, process)
            await self._transact(process, own, polling, scope, notes)
            client.close()

    def _polling(self, nursery: trio.Nursery, process: int) -> TransactionPoller:
        """Return the consumer that polls inside the transactions of `process`, with connections of its own."""
        settings, zone = self._settings, self._zone
        client = Client(self._env, zone.bootstrap, settings.client, cluster_id=zone.cluster_id)
        consumer = ConsumerSettings(isolation=settings.level(self._number), max_wait_ms=POLL_WAIT_MS)
        reader = RecordedReader(self._env, client, self._recorder, self._counters, consumer=consumer, process=process)
        return TransactionPoller(nursery, client, reader, settings.places, BEGINNINGS[process % len(BEGINNINGS)])

    async def _live_with_library(
        self,
        driver: LibraryClientFactory,
        nursery: trio.Nursery,
        about: Mapping[str, object],
        scope: trio.CancelScope,
        notes: TransactionRecording,
    ) -> None:
        """Run one process with a client library. `driver` starts the library's producer, with its tasks in `nursery`.
        `about` holds settings that the history records for the process. A fault crashes the process by cancelling
        `scope`. `notes` holds what the process needs to record its operations.
        """
        settings, flush = {**about, **driver.about()}, self._recorder.flush
        zone = self._zone.name
        process = self._recorder.process("producer", driver.version, settings, client=driver.client, zone=zone)
        mine = self._settings
        id_, timeout_ms, isolation = (
            mine.producer.transactional_id,
            mine.transaction_timeout_ms,
            mine.level(self._number),
        )
        task = TransactorConfig(id_, timeout_ms, mine.places, isolation, BEGINNINGS[process % len(BEGINNINGS)])
        producer = await driver.transactor(nursery, task, flush)
        polling = LibraryTransactionPoller(producer, self._recorder, self._counters, process)
        await self._transact(process, producer, polling, scope, notes)

    async def _transact(
        self,
        process: int,
        producer: TransactionalSender,
        polling: TransactionPoller | LibraryTransactionPoller,
        scope: trio.CancelScope,
        notes: TransactionRecording,
    ) -> None:
        """Do transactions with `producer` until the process must end, then close `producer` and `polling`. `process` is
        the id in the history. A fault crashes the process by cancelling `scope`. `notes` holds what the process needs
        to record its operations.
        """
        self._handle.began(process, scope)
        one = TransactionalProcess(self._env, process, notes, producer, polling.poll, self._settings.places)
        if await one.begin():
            self._handle.took_over(process)
            # The new epoch has ended what the predecessor left open. A zombie leaves a transaction of its own.
            self._left_open = notes.zombie_run is not None
            await (
                self._go_on(one)
                if notes.zombie_run is None
                else self._run_zombie(one, process, notes.zombie_run, notes.follow)
            )
        self._handle.over(scope)
        self._recorder.flush()
        producer.close()
        polling.close()

    async def _go_on(self, one: TransactionalProcess) -> None:
        """Do the scheduled transactions until the process must end, the load ends, or a fault requests a zombie: a
        process that pauses inside a transaction. In the last case this process ends, and the writer's next process
        becomes the zombie.
        """
        while not self._stop.is_set() and self._handle.pending_zombie is None:
            await self._handle.until_released(self._stop)
            wait_s, zombie_paused = self._agenda.due_at - self._env.mono(), self._handle.has_paused_zombie
            if wait_s > 0 and not zombie_paused:
                await self._stopped.wait(min(wait_s, LOOK_EVERY_S))
                continue
            # Until its end is acknowledged: a crash leaves the transaction open.
            self._left_open = True
            self._handle.done += 1
            if not await one.transaction(self._of_a_successor() if zombie_paused else self._agenda.take()):
                return
            self._left_open = False
            self._handle.transaction_ended()

    def _of_a_successor(self) -> PlannedTransaction:
        """Return the transaction with which a zombie's successor begins, instead of the next scheduled one: one record,
        committed.
        """
        number, draw = self._number, self._settings.draw
        return PlannedTransaction(
            0.0, number, f"{SEND} {number % len(self._settings.places)}", draw.record_bytes, COMMIT
        )

    async def _run_zombie(
        self, one: TransactionalProcess, process: int, zombie_run: ZombieRun, follow: Callable[[], None]
    ) -> None:
        """Run a zombie's only transaction. Its first record goes to the partition to which its successor's first record
        will go, too. `follow` is called when the zombie pauses, and lets the successor begin.
        """
        places = self._settings.places
        reached = [places[(self._number + step) % len(places)] for step in range(min(2, len(places)))]

        async def still() -> None:
            follow()
            await self._handle.until_woken(zombie_run, process, self._stop)

        await one.run_as_zombie(zombie_run, reached, self._settings.draw.record_bytes, still)
