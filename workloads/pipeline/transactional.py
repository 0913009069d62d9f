"""Implements a process that writes in transactions and commits its input offsets in them (exactly once).

Each poll that returns records is a transaction: an output for each input, the offsets, the end. A process whose commit
or abort did not succeed is never used again.

A zombie process pauses inside its only transaction, heartbeats included. Meanwhile its group reassigns its partitions,
and a successor initialises the same transactional id. Then the zombie continues, and the cluster must fence it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import trio

from squall.broker.env import Env
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitIdentity
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.transactions import TransactionManager, TransactionRequestFailed
from squall.workloads.control import ZombieRun
from squall.workloads.group_progress import GroupProgress
from squall.workloads.libraries import TransactionalSender
from squall.workloads.pipeline.clients import OwnClients, values_of
from squall.workloads.pipeline.process_run import (
    LAST_WORD_S,
    InstanceProcess,
    InstanceSettings,
    ProcessCrashed,
    is_crash,
)
from squall.workloads.pipeline.steps import ABORT, ENDED, ENDING, OFFSETS, SENT, InstanceAction, transactional_id
from squall.workloads.scenario import ScenarioEnvironment
from squall.workloads.subscriber import Subscriber


class TransactionalInstanceProcess(InstanceProcess):
    """Runs one process of an instance that commits in transactions. Its successors have the same transactional id."""

    commits = "transaction"

    def __init__(
        self,
        env: Env,
        around: ScenarioEnvironment,
        settings: InstanceSettings,
        number: int,
        progress: GroupProgress,
        *,
        zombie: bool,
    ) -> None:
        producer = replace(settings.producer, transactional_id=transactional_id(number))
        own = replace(settings, producer=producer)
        super().__init__(env, around, own, number, progress, zombie=zombie, generation=settings.generation)

    @property
    def _producer(self) -> TransactionalSender:
        return self._clients.transacting

    async def begin(self) -> bool:
        """Initialise the transactional id, which ends an open transaction of the predecessor. Return False if that
        failed.
        """
        began_ns = self._recorder.now_ns()
        try:
            identity = await self._producer.init()
        except TransactionRequestFailed as failure:
            self._recorder.not_initialised(self.process, self._producer.id, began_ns, failure.name)
            return False
        self._recorder.initialised(self.process, self._producer.id, began_ns, *identity)
        return True

    async def _process_inputs(
        self,
        inputs: Sequence[tuple[Place, int]],
        at: Mapping[Place, int],
        who: CommitIdentity,
        due: InstanceAction | None,
    ) -> None:
        recorder, identity = self._recorder, self._producer.identity
        txn = recorder.begin_txn(self.process, self._producer.id, self._producer.timeout_ms)
        outcomes: list[OperationStatus] = []
        whole = False
        try:
            await self._producer.begin()
            await self._write(txn, inputs, outcomes)
            self._crash_if_due(due, SENT)
            await self._halts(due)
            if outcomes == [OperationStatus.OK] * len(inputs):
                end = await self._clients.commit_in(txn, at, who)
                whole = end.status is OperationStatus.OK
        except TransactionRequestFailed as failure:
            # Outcomes of its sends come before the end of a transaction in the history.
            await self._producer.flushed()
            recorder.txn_ended(txn, OperationStatus.FAIL, "none", *identity, failure.name)
            self._finished = True
            return
        self._crash_if_due(due, OFFSETS)
        how = "commit" if whole and (due is None or due.do != ABORT) else "abort"
        recorder.ask_end(self.process, txn, how)
        recorder.flush()
        if is_crash(due, ENDING):
            # The request leaves, and the process crashes before the response.
            with self._env.timeout(LAST_WORD_S):
                await self._producer.end(commit=how == "commit")
            raise ProcessCrashed
        ended = await self._producer.end(commit=how == "commit")
        recorder.txn_ended(txn, ended.status, how, *identity, ended.error, unanswered=self._producer.unanswered)
        recorder.flush()
        self._crash_if_due(due, ENDED)
        self.ended += ended.status is OperationStatus.OK
        self._finished = ended.status is not OperationStatus.OK or bool(self._producer.retired)
        if how == "commit" and not self._finished:
            self._inputs_done(at)
        # The inputs of an aborted transaction are not processed: they are read again.
        elif not self._finished:
            await self._clients.rewind()

    async def _write(self, txn: int, inputs: Sequence[tuple[Place, int]], outcomes: list[OperationStatus]) -> None:
        """Write an output for each input, and append the outcome of each to `outcomes`. Raises
        TransactionRequestFailed.
        """
        for place, source in inputs:
            output = self._output(place)
            await self._producer.enlist(output)
            if self._producer.retired:
                break
            self._send(output, source, outcomes, txn)
        await self._producer.flushed()

    # --------------------------------------------------------------------------------------------------- zombies

    async def run_as_zombie(self, zombie_run: ZombieRun, still: Callable[[], Awaitable[None]], end: trio.Event) -> None:
        """Run a zombie's only transaction: it writes its first output, pauses, and then continues as if nothing had
        happened. `still` lets a successor begin, and returns when the zombie is woken. Once `end` is set, the zombie
        does not wait for inputs any more. `zombie_run` names the successor, and collects the results of the woken
        zombie's requests.

        The zombie writes at most one output for each input. If a successor has its transactional id, the zombie tries
        to commit even after errors, because exactly this commit must be refused. Without a successor it aborts after an
        error, as any application does.
        """
        gathered = await self._gather(zombie_run, end)
        if gathered is None:
            return
        inputs, at, who = gathered
        subscriber, transactions = self._own()
        recorder, identity, outcomes = self._recorder, self._producer.identity, list[OperationStatus]()
        txn = recorder.begin_txn(self.process, self._producer.id, self._producer.timeout_ms)
        stood = whole = False
        try:
            # All requests that V1 needs go first: then only partitions and groups can fence the woken zombie.
            for place, _ in inputs:
                await self._producer.enlist(self._output(place))
            await transactions.add_offsets(subscriber.member.coordination.group)
            self._send(self._output(inputs[0][0]), inputs[0][1], outcomes, txn)
            await self._producer.flushed()
            if stood := outcomes == [OperationStatus.OK]:
                subscriber.halt(still=True)
                await still()
                whole = await self._send_after_wake(txn, zombie_run, inputs, outcomes, at, who)
        except TransactionRequestFailed as failure:
            await self._producer.flushed()
            recorder.txn_ended(txn, OperationStatus.FAIL, "none", *identity, failure.name)
            return
        how = "commit" if stood and (whole or zombie_run.successor >= 0) else "abort"
        recorder.ask_end(self.process, txn, how)
        recorder.flush()
        if stood:
            zombie_run.tries(end=True)
        ended = await self._producer.end(commit=how == "commit")
        if stood:
            zombie_run.results.append(f"end {ended.error or 'ok'}")
        recorder.txn_ended(txn, ended.status, how, *identity, ended.error, unanswered=self._producer.unanswered)
        recorder.flush()

    def _own(self) -> tuple[Subscriber, TransactionManager]:
        assert isinstance(self._clients, OwnClients), "a library is not asked to be one (Traffic.zombies)"
        return self._clients.subscriber, self._clients.transactions

    async def _gather(
        self, zombie_run: ZombieRun, end: trio.Event
    ) -> tuple[list[tuple[Place, int]], dict[Place, int], CommitIdentity] | None:
        """Poll until there are at least two inputs for a zombie's transaction: the zombie writes an output for the
        first input before its pause, and for the others after it. Return the inputs, the position after them in each
        partition, and the member that read them.

        Return None if the process must end (`is_over`), if the load's readers may end (`end` is set), or if the fault
        that wanted the zombie has withdrawn it. A successor then processes the inputs.
        """
        inputs, at, read_as = list[tuple[Place, int]](), dict[Place, int](), CommitIdentity()
        subscriber, _ = self._own()
        while not self.is_over and not end.is_set() and not zombie_run.woken:
            polled = await subscriber.poll()
            who = subscriber.member.who
            # Offsets are committed as one member: what an earlier generation read may have another owner by now.
            if inputs and who != read_as:
                subscriber.rewind()
                inputs, at = [], {}
                continue
            read_as = who
            inputs += [(got.place, value) for got in polled.fetched for value in values_of(got)]
            at |= {got.place: got.position for got in polled.fetched if got.records}
            if len(inputs) > 1 and who.generation >= 0:
                return inputs, at, who
        return None

    async def _send_after_wake(
        self,
        txn: int,
        zombie_run: ZombieRun,
        inputs: Sequence[tuple[Place, int]],
        outcomes: list[OperationStatus],
        at: Mapping[Place, int],
        who: CommitIdentity,
    ) -> bool:
        """Send the outputs that the zombie did not send before its pause, and append their outcomes to `outcomes`,
        which already holds those of the earlier outputs. Then commit the offsets. Return whether all outputs and the
        offsets were accepted.
        """
        for place, source in inputs[1:]:
            if self._producer.retired:
                break
            zombie_run.tries()
            self._send(self._output(place), source, outcomes, txn)
            await self._producer.flushed()
            zombie_run.results.append(f"send {outcomes[-1].name.lower()}")
        offsets = await self._clients.commit_in(txn, at, who)
        zombie_run.results.append(f"offsets {offsets.error or 'ok'}")
        return outcomes == [OperationStatus.OK] * len(inputs) and offsets.status is OperationStatus.OK
