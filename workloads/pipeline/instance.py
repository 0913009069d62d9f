"""One instance of the pipeline: a member of the group that writes in transactions, and commits its offsets there.

One recorded process after the other, all with the same transactional id. Each poll that brings something is a
transaction: an output for each input, the offsets, the end. A process whose transaction came to an unknown end is never
used again. A zombie stands still inside its only transaction, heartbeats included, so that its group gives away what it
owned; its successor takes over its transactional id meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import trio

from broker.env import Env
from workloads import payload
from workloads.client.client import Client
from workloads.client.cluster import Place
from workloads.client.connection import VERSION
from workloads.client.consumer import Fetched
from workloads.client.groups.offsets import CommitEnd, Sender
from workloads.client.groups.txn_offsets import commit_in_transaction
from workloads.client.outcomes import Outcome, Status
from workloads.client.producer import Producer
from workloads.client.settings import ProducerSettings
from workloads.client.transactions import NotDone, Transactions
from workloads.control import Haunt
from workloads.group_notes import Identity as Member
from workloads.group_progress import Agenda, Progress
from workloads.pipeline.steps import ABORT, ENDED, ENDING, LEAVE, OFFSETS, PAUSE, POLLED, SENT, Step, transactional_id
from workloads.scenario import Surroundings
from workloads.subscriber import Subscriber, SubscriberSettings, about_member
from workloads.transactions.own import OwnProducer

SUCCESSOR_PAUSE_S, SUCCESSOR_PAUSE_MAX_S = 0.1, 2.0
LAST_LIMIT_S = 3.0
KEYS = 64
COMMIT_LIMIT_S = 5.0
"""Offsets are tried to be committed for so long; then the transaction is aborted."""


class _Crash(Exception):
    """The process is gone."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Of all instances of a load."""

    subscriber: SubscriberSettings
    producer: ProducerSettings
    outputs: Sequence[Place]
    """Where they write: an input's partition says where."""
    transaction_timeout_ms: int
    generation: int
    """The newest generation of transactions that they speak, 1 or 2."""
    record_bytes: int


class Instance:
    """One instance. `handle`: the number of its handle among the load's producers."""

    def __init__(
        self,
        env: Env,
        around: Surroundings,
        settings: InstanceSettings,
        number: int,
        handle: int,
        agenda: Agenda[Step],
        progress: Progress,
    ) -> None:
        self._env, self._around, self._number = env, around, number
        producer = replace(settings.producer, transactional_id=transactional_id(number))
        self._settings = replace(settings, producer=producer)
        self._agenda, self._progress = agenda, progress
        self._handle = around.controls.producers[handle]
        self._end = around.readers.may_end
        self._absent_s = 0.0

    async def run(self) -> None:
        """Until readers may end, and the last transaction has ended."""
        pause_s = SUCCESSOR_PAUSE_S
        async with trio.open_nursery() as nursery:
            while not self._end.is_set():
                self._absent_s = 0.0
                if (haunt := self._handle.wanted) is not None:
                    done = await nursery.start(self._haunting, haunt)
                else:
                    done = await self._mortal()
                pause_s = SUCCESSOR_PAUSE_S if done else min(pause_s * 2, SUCCESSOR_PAUSE_MAX_S)
                with self._env.timeout(self._absent_s or pause_s):
                    await self._end.wait()

    async def _haunting(self, haunt: Haunt, task_status: trio.TaskStatus[bool]) -> None:
        """One process that becomes a zombie. From when it stands still its successor lives beside it."""
        await self._mortal(haunt, lambda: task_status.started(True))
        haunt.over = True
        if haunt.zombie < 0:
            task_status.started(False)  # it never came to stand still

    async def _mortal(self, haunt: Haunt | None = None, follow: Callable[[], None] = lambda: None) -> bool:
        """One process, which may be made to crash. Whether it committed anything.

        follow: called when the zombie that it is to become stands still.
        """
        scope = trio.CancelScope()
        life = _Life(self._env, self._around, self._settings, self._number, self._progress, zombie=haunt is not None)
        self._handle.began(life.process, scope)
        with scope:
            await life.run(partial(self._live, life) if haunt is None else partial(self._haunt, life, haunt, follow))
        self._handle.over(scope)
        life.over = True
        if scope.cancelled_caught or life.crashed:
            life.subscriber.crashed()
            self._around.counters.info += life.open
            await self._handle.may_follow(self._end)
        self._around.recorder.flush()
        return life.committed > 0

    async def _haunt(self, life: _Life, haunt: Haunt, follow: Callable[[], None]) -> None:
        if not await life.begin():
            return
        self._handle.took_over(life.process)

        async def still() -> None:
            follow()
            await self._handle.stand_still(haunt, life.process, self._end)

        await life.haunt(haunt, still, self._end)
        await self._leave(life)

    async def _live(self, life: _Life) -> None:
        if not await life.begin():
            return
        self._handle.took_over(life.process)
        due: Step | None = None
        while not life.is_over and not self._end.is_set() and self._handle.wanted is None:
            await self._handle.going(self._end)
            now = self._env.mono()
            self._agenda.skip(now)
            # The successor of a zombie waits for nothing, and does not go before it has done a transaction.
            haunted = self._handle.is_haunted
            if due is None and self._agenda.due_at <= now and not haunted:
                due = self._agenda.take()
            if due is not None and due.do == PAUSE:
                await self._rest(due.number / 1000)
                due = None
            elif due is not None and due.do == LEAVE:
                self._absent_s = due.number / 1000
                break
            else:
                self._handle.done += 1
                ended = life.ended
                try:
                    due = None if await life.transform(due) else due
                except _Crash:
                    assert due is not None
                    life.crashed, self._absent_s = True, max(due.number, 1) / 1000
                    return
                if life.ended > ended:
                    self._handle.ended_one()
        await self._leave(life)

    async def _leave(self, life: _Life) -> None:
        if life.subscriber.out:
            life.subscriber.member.hear()
        else:
            with self._env.timeout(LAST_LIMIT_S):
                await life.subscriber.leave()

    async def _rest(self, for_s: float) -> None:
        """For so long, but no longer than until a zombie is wanted, or all is over."""
        with self._env.timeout(for_s):
            await self._handle.summoned(self._end)


class _Life:
    """One process of an instance."""

    def __init__(
        self,
        env: Env,
        around: Surroundings,
        settings: InstanceSettings,
        number: int,
        progress: Progress,
        *,
        zombie: bool,
    ) -> None:
        self._env, self._settings = env, settings
        self._recorder, self._counters, self._acknowledged = around.recorder, around.counters, around.acknowledged
        zone, client_settings = around.zone(number), settings.subscriber.client
        about = {
            **asdict(settings.producer),
            **about_member(settings.subscriber),
            "request_timeout_ms": client_settings.request_timeout_ms,
            "generation": settings.generation,
            "member": number,
            **({"zombie": True} if zombie else {}),
        }
        self.process = self._recorder.process("producer", VERSION, about, zone=zone.name)
        self.subscriber = Subscriber(env, zone, self._recorder, self._counters, settings.subscriber, progress.moved)
        self.subscriber.declare("producer", {}, self.process)
        progress.begins(self.process)
        self._client = Client(env, zone.bootstrap, client_settings, cluster_id=zone.cluster_id)
        self._client.track(topic for topic, _ in settings.outputs)
        flush = self._recorder.flush
        self._writer = Producer(self._client, settings.producer, before_send=flush, after_outcomes=flush)
        limit_s = settings.producer.delivery_timeout_ms / 1000
        self._transactions = Transactions(
            self._client,
            settings.producer.transactional_id,
            settings.transaction_timeout_ms,
            limit_s,
            generation=settings.generation,
        )
        self._producer = OwnProducer(self._writer, self._transactions)
        self._sequence = 0
        self.open = 0
        """Outputs without an outcome yet."""
        self.committed = 0
        """Transactions."""
        self.ended = 0
        """Transactions that came to the end that it asked for."""
        self.crashed = self.over = self._finished = False

    @property
    def is_over(self) -> bool:
        """It cannot go on, or shall not."""
        return self._finished or bool(self.subscriber.out)

    async def run(self, live: Callable[[], object]) -> None:
        """While its connections live."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.subscriber.run)
            await nursery.start(self._client.run)
            await nursery.start(self._writer.run)
            await live()  # type: ignore[misc]
            nursery.cancel_scope.cancel()

    async def begin(self) -> bool:
        """Take over the transactional id, which ends what its predecessor left open. False where it was not given."""
        began_ns = self._recorder.now_ns()
        try:
            identity = await self._producer.init()
        except NotDone:
            return False
        self._recorder.initialised(self.process, self._producer.id, began_ns, *identity)
        return True

    async def transform(self, due: Step | None) -> bool:
        """One poll, and a transaction if it brought something: whether it did. Raises _Crash where that is due."""
        polled = await self.subscriber.poll()
        inputs = [(got.place, value) for got in polled.fetched for value in _values(got)]
        at = {got.place: got.position for got in polled.fetched if got.records}
        # As whom it has read this. By the time of the commit it may be nobody, and whom nobody knows nobody fences.
        who = self.subscriber.member.who
        if not at or who.generation < 0:
            return False
        self._falls(due, POLLED)
        await self._transaction(inputs, at, who, due)
        return True

    async def _transaction(
        self, inputs: Sequence[tuple[Place, int]], at: Mapping[Place, int], who: Sender, due: Step | None
    ) -> None:
        recorder, identity = self._recorder, self._producer.identity
        txn = recorder.begin_txn(self.process, self._producer.id, self._producer.timeout_ms)
        outcomes: list[Status] = []
        whole = False
        try:
            await self._write(txn, inputs, outcomes)
            self._falls(due, SENT)
            if outcomes == [Status.OK] * len(inputs):
                end = await self._commit_offsets(txn, at, who)
                whole = end.status is Status.OK
        except NotDone as failure:
            await self._producer.flushed()
            recorder.txn_ended(txn, Status.FAIL, "none", *identity, failure.name)
            self._finished = True
            return
        self._falls(due, OFFSETS)
        how = "commit" if whole and (due is None or due.do != ABORT) else "abort"
        recorder.ask_end(self.process, txn, how)
        recorder.flush()
        if _is_crash(due, ENDING):
            # It asks, and does not live to hear the answer.
            with self._env.timeout(0.0005):
                await self._producer.end(commit=how == "commit")
            raise _Crash
        ended = await self._producer.end(commit=how == "commit")
        recorder.txn_ended(txn, ended.status, how, *identity, ended.error, unanswered=self._producer.unanswered)
        recorder.flush()
        self._falls(due, ENDED)
        self.ended += ended.status is Status.OK
        self._finished = ended.status is not Status.OK or bool(self._producer.retired)
        if how == "commit" and not self._finished:
            self.committed += 1
        elif not self._finished:
            self.subscriber.rewind()

    async def _write(self, txn: int, inputs: Sequence[tuple[Place, int]], outcomes: list[Status]) -> None:
        """An output for each input. Raises NotDone."""
        for place, source in inputs:
            output = self._output(place)
            await self._producer.enlist(output)
            if self._producer.retired:
                break
            self._send(txn, output, source, outcomes)
        await self._producer.flushed()

    def _output(self, place: Place) -> Place:
        return self._settings.outputs[place[1] % len(self._settings.outputs)]

    # --------------------------------------------------------------------------------------------------- zombies

    async def haunt(self, haunt: Haunt, still: Callable[[], Awaitable[None]], end: trio.Event) -> None:
        """A zombie's only transaction: it writes its first output, stands still, and then goes on as if nothing had
        happened. `still`: stands still until it is woken. `end`: nothing is waited for any more.

        No input gets two outputs. Whoever has been replaced asks for a commit, whatever comes of the rest. Else it is
        an application as any other: it asks for an abort where not all was done.
        """
        gathered = await self._gather(end)
        if gathered is None:
            return
        inputs, at, who = gathered
        recorder, identity, outcomes = self._recorder, self._producer.identity, list[Status]()
        txn = recorder.begin_txn(self.process, self._producer.id, self._producer.timeout_ms)
        stood = whole = False
        try:
            # All that generation V1 has to ask for, so that nobody but partitions and groups fences what comes later.
            for place, _ in inputs:
                await self._producer.enlist(self._output(place))
            await self._transactions.add_offsets(self.subscriber.member.coordination.group)
            self._send(txn, self._output(inputs[0][0]), inputs[0][1], outcomes)
            await self._producer.flushed()
            if stood := outcomes == [Status.OK]:
                self.subscriber.member.halt(still=True)
                await still()
                whole = await self._go_on(txn, haunt, inputs, outcomes, at, who)
        except NotDone as failure:
            await self._producer.flushed()
            recorder.txn_ended(txn, Status.FAIL, "none", *identity, failure.name)
            return
        how = "commit" if stood and (whole or haunt.successor >= 0) else "abort"
        recorder.ask_end(self.process, txn, how)
        recorder.flush()
        if stood:
            haunt.tries(end=True)
        ended = await self._producer.end(commit=how == "commit")
        haunt.told.append(f"end {ended.error or 'ok'}")
        recorder.txn_ended(txn, ended.status, how, *identity, ended.error, unanswered=self._producer.unanswered)
        recorder.flush()

    async def _gather(self, end: trio.Event) -> tuple[list[tuple[Place, int]], dict[Place, int], Sender] | None:
        """Inputs for a zombie, which has one left when it wakes up; where that leaves it; and as whom it has read them.
        None where it shall not go on.
        """
        inputs, at, read_as = list[tuple[Place, int]](), dict[Place, int](), Sender()
        while not self.is_over and not end.is_set():
            polled = await self.subscriber.poll()
            who = self.subscriber.member.who
            if inputs and who != read_as:
                self.subscriber.rewind()
                inputs, at = [], {}
                continue
            read_as = who
            inputs += [(got.place, value) for got in polled.fetched for value in _values(got)]
            at |= {got.place: got.position for got in polled.fetched if got.records}
            if len(inputs) > 1 and who.generation >= 0:
                return inputs, at, who
        return None

    async def _go_on(
        self,
        txn: int,
        haunt: Haunt,
        inputs: Sequence[tuple[Place, int]],
        outcomes: list[Status],
        at: Mapping[Place, int],
        who: Sender,
    ) -> bool:
        """What a zombie does once it is awake, but for the end: outputs of all other inputs, and the offsets. Whether
        all was done.
        """
        for place, source in inputs[1:]:
            if self._producer.retired:
                break
            haunt.tries()
            self._send(txn, self._output(place), source, outcomes)
            await self._producer.flushed()
            haunt.told.append(f"send {outcomes[-1].name.lower()}")
        offsets = await self._commit_offsets(txn, at, who)
        haunt.told.append(f"offsets {offsets.error or 'ok'}")
        return outcomes == [Status.OK] * len(inputs) and offsets.status is Status.OK

    async def _commit_offsets(self, txn: int, at: Mapping[Place, int], who: Sender) -> CommitEnd:
        """Raises NotDone."""
        subscriber, identity = self.subscriber, self._producer.identity
        op = subscriber.notes.begin_commit(
            Member(who.member_id, who.generation), at, "manual", txn=txn, producer=identity
        )
        self._recorder.flush()
        try:
            await self._transactions.add_offsets(subscriber.member.coordination.group)
        except NotDone as failure:
            subscriber.notes.committed(op, Status.FAIL, failure.name, {})
            raise
        end = await commit_in_transaction(
            subscriber.member.coordination,
            self._producer.id,
            identity,
            who,
            at,
            COMMIT_LIMIT_S,
            v2=self._transactions.v2,
        )
        subscriber.notes.committed(op, end.status, end.error, {})
        self._recorder.flush()
        if subscriber.member.who == who:
            subscriber.member.heed(end.code)
        return end

    def _falls(self, due: Step | None, step: str) -> None:
        if _is_crash(due, step):
            raise _Crash

    def _send(self, txn: int, place: Place, source: int, outcomes: list[Status]) -> None:
        part, sequence = self._recorder.partitions[place], self._sequence
        self._sequence += 1
        key = f"{self.process}-{sequence % KEYS}"
        encoded, value = key.encode(), payload.value_of(self.process, sequence)
        content, digest = payload.make(value, encoded, (), self._settings.record_bytes)
        size = self._settings.record_bytes
        op = self._recorder.invoke_send(self.process, part, value, key, digest, size, txn=txn, source=source)
        self._counters.sent += 1
        self.open += 1
        ended = partial(self._ended, outcomes, op, part, value, self._env.mono())
        self._producer.send(place, encoded, content, self._env.wall_ms(), ended)

    def _ended(
        self, outcomes: list[Status], op: int, part: int, value: int, handed_over: float, outcome: Outcome
    ) -> None:
        if self.over or self.crashed:
            return  # nobody is there any more who could be told
        outcomes.append(outcome.status)
        self.open -= 1
        if outcome.status is Status.OK:
            self._recorder.send_ok(op, outcome.offset, outcome.timestamp_ms)
            self._counters.acknowledge(part, handed_over, self._env.mono())
            if self._acknowledged is not None:
                self._acknowledged(*self._recorder.place(part), outcome.offset, value)
            return
        self._recorder.send_not_ok(op, outcome.status, outcome.error)
        if outcome.status is Status.INFO:
            self._counters.info += 1
        else:
            self._counters.failed += 1


def _is_crash(due: Step | None, step: str) -> bool:
    return due is not None and due.do == f"crash {step}"


def _values(fetched: Fetched) -> list[int]:
    """What verified of one partition's records."""
    told = [payload.verify(value, key, headers) for _, _, key, value, headers in fetched.records]
    return [value for value, _ in told if value >= 0]
