"""Runs one process of a transactional producer: a logical process of the history, as in Jepsen. It takes over the
transactional id, and does its transactions one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from squall.broker.env import Env
from squall.workloads import payload
from squall.workloads.client.cluster import Place
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.transactions import TransactionRequestFailed
from squall.workloads.control import ZombieRun
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import TransactionalSender
from squall.workloads.recorder import Recorder
from squall.workloads.transactions.operations import (
    ABORT,
    COMMIT,
    LEAVE,
    PAUSE,
    POLL,
    SEND,
    PlannedTransaction,
    steps_of,
)

if TYPE_CHECKING:
    from squall.workloads.scenario import Acknowledged

Poll = Callable[[int], Awaitable[None]]
"""Polls once inside a transaction. The argument is the transaction's operation id in the history."""
KEYS = 64
"""Is the number of different record keys that each process uses."""


@dataclass(slots=True)
class TransactionRecording:
    """Holds the recorder and the counters with which one process records its operations. A zombie, a process that
    pauses inside a transaction until a successor has its transactional id, also has a `zombie_run`.
    """

    recorder: Recorder
    counters: LoadCounters
    acknowledged: Acknowledged | None
    gone: Callable[[], bool]
    """Returns whether the process has crashed: then later outcomes are not recorded."""
    open: int = 0
    """Counts the sent records that have no outcome yet."""
    zombie_run: ZombieRun | None = None
    """Records what the process does as a zombie; None if it is not to become one."""
    follow: Callable[[], None] = lambda: None
    """Is called when the zombie has paused, and lets its successor begin."""


class TransactionalProcess:
    """Does the transactions of one process of the history. If `begin` or `transaction` returns False, the process has
    ended, and a successor must take over its transactional id.

    `places` lists partitions: the step `send 2` sends to `places[2]`. `producer` is Squall's own client or a library.
    `poll` polls inside a given transaction, and never raises for the cluster's errors.
    """

    def __init__(
        self,
        env: Env,
        process: int,
        notes: TransactionRecording,
        producer: TransactionalSender,
        poll: Poll,
        places: Sequence[Place],
    ) -> None:
        self._env, self._process, self._notes = env, process, notes
        self._producer, self._poll, self._places = producer, poll, places
        self._sequence = 0

    async def begin(self) -> bool:
        """Initialise the transactional id. Return False if the coordinator refused it."""
        began_ns = self._notes.recorder.now_ns()
        try:
            identity = await self._producer.init()
        except TransactionRequestFailed as failure:
            self._notes.recorder.not_initialised(self._process, self._producer.id, began_ns, failure.name)
            return False
        self._notes.recorder.initialised(self._process, self._producer.id, began_ns, *identity)
        return True

    async def transaction(self, drawn: PlannedTransaction) -> bool:
        """Do one drawn transaction. Return False if the process must end: the transaction failed, its end is unknown,
        or it was to stay open.
        """
        recorder, producer = self._notes.recorder, self._producer
        identity = producer.identity
        txn = recorder.begin_txn(self._process, producer.id, producer.timeout_ms)
        try:
            await producer.begin()
            whole = await self._do_all(txn, drawn)
        except TransactionRequestFailed as failure:
            await producer.flushed()
            # No commit was requested, and none will be.
            recorder.txn_ended(txn, OperationStatus.FAIL, "none", *identity, failure.name)
            return False
        # The operation stays without an outcome in the history: the successor's InitProducerId aborts the transaction.
        if drawn.end == LEAVE:
            return False
        how = COMMIT if whole and drawn.end == COMMIT else ABORT
        recorder.ask_end(self._process, txn, how)
        recorder.flush()
        ended = await producer.end(commit=how == COMMIT)
        recorder.txn_ended(txn, ended.status, how, *identity, ended.error, unanswered=producer.unanswered)
        recorder.flush()
        return ended.status is OperationStatus.OK and not producer.retired

    async def run_as_zombie(
        self, zombie_run: ZombieRun, places: Sequence[Place], size: int, still: Callable[[], Awaitable[None]]
    ) -> None:
        """Run a zombie's only transaction: it sends a record, pauses, and then continues as if nothing had happened. It
        sends to all places and asks for a commit, whatever the sends returned. `still` pauses the zombie until it is
        woken.
        """
        recorder, producer, outcomes = self._notes.recorder, self._producer, list[OperationStatus]()
        identity = producer.identity
        txn = recorder.begin_txn(self._process, producer.id, producer.timeout_ms)
        stood, how = False, ABORT
        try:
            await producer.begin()
            await producer.enlist(places[0])
            self._send(txn, places[0], size, outcomes)
            await producer.flushed()
            if stood := outcomes == [OperationStatus.OK]:
                await still()
                how = COMMIT
                await self._send_late(txn, zombie_run, places, size, outcomes)
        except TransactionRequestFailed as failure:
            await producer.flushed()
            if not stood:
                recorder.txn_ended(txn, OperationStatus.FAIL, "none", *identity, failure.name)
                return
            zombie_run.results.append(f"enlist {failure.name}")
        recorder.ask_end(self._process, txn, how)
        recorder.flush()
        if stood:
            zombie_run.tries(end=True)
        ended = await producer.end(commit=how == COMMIT)
        if stood:
            zombie_run.results.append(f"end {ended.error or 'ok'}")
        recorder.txn_ended(txn, ended.status, how, *identity, ended.error, unanswered=producer.unanswered)
        recorder.flush()

    async def _send_late(
        self, txn: int, zombie_run: ZombieRun, places: Sequence[Place], size: int, outcomes: list[OperationStatus]
    ) -> None:
        """Send a zombie's records after its pause, one to each place. `places[0]` is the partition to which it sent
        before the pause. Each record's outcome is appended to `outcomes`. Raises TransactionRequestFailed if a
        partition cannot be added to the transaction.
        """
        for place in places:
            await self._producer.enlist(place)
            if self._producer.retired:
                break
            zombie_run.tries()
            self._send(txn, place, size, outcomes)
            await self._producer.flushed()
            zombie_run.results.append(f"send {outcomes[-1].name.lower()}")

    async def _do_all(self, txn: int, drawn: PlannedTransaction) -> bool:
        """Do the steps of the transaction. Return whether all its records were acknowledged. `txn` is the transaction's
        operation id in the history. Raises TransactionRequestFailed if a partition cannot be added to the transaction.
        """
        outcomes: list[OperationStatus] = []
        for do, number in steps_of(drawn.steps):
            if do == PAUSE:
                await self._env.sleep(number / 1000)
            elif do == POLL:
                await self._poll(txn)
            else:
                assert do == SEND, do
                await self._producer.enlist(self._places[number])
                if self._producer.retired:
                    break
                self._send(txn, self._places[number], drawn.bytes, outcomes)
        await self._producer.flushed()
        return outcomes == [OperationStatus.OK] * len(drawn.partitions)

    def _send(self, txn: int, place: Place, size: int, outcomes: list[OperationStatus]) -> None:
        """Send one record to `place`, and record the send in the history as a part of transaction `txn`. The outcome is
        recorded and appended to `outcomes` when it is known.
        """
        notes, sequence = self._notes, self._sequence
        self._sequence += 1
        part = notes.recorder.partitions[place]
        key = f"{self._process}-{sequence % KEYS}"
        encoded = key.encode()
        value = payload.value_of(self._process, sequence)
        sent_ms = self._env.wall_ms()
        content, digest = payload.make(value, encoded, (), size, sent_ms)
        op = notes.recorder.invoke_send(self._process, part, value, key, digest, size, txn=txn)
        notes.counters.sent += 1
        notes.open += 1
        ended = partial(self._ended, outcomes, op, part, value, self._env.mono())
        self._producer.send(place, encoded, content, sent_ms, ended)

    def _ended(
        self, outcomes: list[OperationStatus], op: int, part: int, value: int, handed_over: float, outcome: Outcome
    ) -> None:
        notes = self._notes
        if notes.gone():
            return
        outcomes.append(outcome.status)
        notes.open -= 1
        counters = notes.counters
        if outcome.status is OperationStatus.OK:
            notes.recorder.send_ok(op, outcome.offset, outcome.timestamp_ms, outcome.tries)
            counters.acknowledge(part, handed_over, self._env.mono())
            if notes.acknowledged is not None:
                notes.acknowledged(*notes.recorder.place(part), outcome.offset, value)
            return
        notes.recorder.send_not_ok(op, outcome.status, outcome.error)
        if outcome.status is OperationStatus.INFO:
            counters.info += 1
        else:
            counters.failed += 1
