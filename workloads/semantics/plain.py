"""Implements processes without transactions, which commit their positions before or after they write.

Before (at most once): if the process crashes after a commit, the outputs that it has not written are never written.
After (at least once): the outputs that it has written and not committed are written again by the next owner.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from squall.broker.overriding import override
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitIdentity, CommitOutcome
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.pipeline.process_run import LAST_WORD_S, InstanceProcess, ProcessCrashed, is_crash
from squall.workloads.pipeline.steps import ABORT, ENDED, ENDING, OFFSETS, SENT, InstanceAction

InputValues = Sequence[tuple[Place, int]]
"""Lists the partition and the value of each input."""


class NonTransactionalProcess(InstanceProcess):
    """Runs one process of an instance without transactions. Its producer is idempotent, so no retry writes an output
    twice.
    """

    @abstractmethod
    async def _process_inputs(
        self, inputs: InputValues, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None
    ) -> None: ...

    async def _write(self, inputs: InputValues, due: InstanceAction | None) -> bool:
        """Write an output for each input. Return whether all were acknowledged. Raise ProcessCrashed if `due` is a
        crash after this step.
        """
        outcomes: list[OperationStatus] = []
        for place, source in inputs:
            if self._clients.retired:
                break
            self._send(self._output(place), source, outcomes)
        await self._clients.flushed()
        self._finished |= bool(self._clients.retired)
        self._crash_if_due(due, SENT)
        return outcomes == [OperationStatus.OK] * len(inputs)

    async def _commit(self, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None) -> CommitOutcome:
        if is_crash(due, ENDING):
            # The request leaves, and the process crashes before the response.
            with self._env.timeout(LAST_WORD_S):
                await self._clients.commit(at, who)
            raise ProcessCrashed
        end = await self._clients.commit(at, who)
        self._crash_if_due(due, OFFSETS)
        return end


class AtMostOnce(NonTransactionalProcess):
    """Commits before processing. If the commit does not succeed, nothing is processed, and the process goes back to the
    group's committed offsets.

    If a commit request was never answered, the process ends after this poll: the request may still arrive later and
    move the group's offset backwards. Once its successor has joined, the coordinator refuses that request because of
    its old generation.
    """

    commits = "before"

    @override
    async def _process_inputs(
        self, inputs: InputValues, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None
    ) -> None:
        if due is not None and due.do == ABORT:
            await self._clients.rewind()
            return
        end = await self._commit(at, who, due)
        # An unanswered commit may arrive after a later one: this generation must end, so that the next fences it.
        self._finished = end.status is OperationStatus.INFO or end.unanswered > 0
        if end.status is not OperationStatus.OK:
            await self._clients.rewind()
            return
        await self._write(inputs, due)
        self._crash_if_due(due, ENDED)
        self._inputs_done(at)


class AtLeastOnce(NonTransactionalProcess):
    """Commits after processing, and goes back to the group's committed offsets if the commit, or a write, did not
    succeed.
    """

    commits = "after"

    @override
    async def _process_inputs(
        self, inputs: InputValues, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None
    ) -> None:
        # Outputs of a failed round stay in the log: reading the inputs again doubles them, which at least once permits.
        done = await self._write(inputs, due)
        await self._halts(due)
        if done and (due is None or due.do != ABORT):
            done = (await self._commit(at, who, due)).status is OperationStatus.OK
            self._crash_if_due(due, ENDED)
        else:
            done = False
        if done:
            self._inputs_done(at)
        else:
            await self._clients.rewind()
