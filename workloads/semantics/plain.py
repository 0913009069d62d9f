"""A process without transactions: it commits where it stands before or after it writes.

Before (at most once): what it has committed and not written when it is gone, nobody ever writes. After (at least once):
what it has written and not committed is written again by whoever reads next.
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
"""Where each stands, and its value."""


class NonTransactionalProcess(InstanceProcess):
    """Its producer is idempotent, so that no request of its own writes an output twice."""

    @abstractmethod
    async def _deal_with(
        self, inputs: InputValues, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None
    ) -> None: ...

    async def _write(self, inputs: InputValues, due: InstanceAction | None) -> bool:
        """An output for each input. Whether all were acknowledged."""
        outcomes: list[OperationStatus] = []
        for place, source in inputs:
            if self._hands.retired:
                break
            self._send(self._output(place), source, outcomes)
        await self._hands.flushed()
        self._finished |= bool(self._hands.retired)
        self._falls(due, SENT)
        return outcomes == [OperationStatus.OK] * len(inputs)

    async def _commit(self, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None) -> CommitOutcome:
        if is_crash(due, ENDING):
            # It asks, and does not live to hear the answer.
            with self._env.timeout(LAST_WORD_S):
                await self._hands.commit(at, who)
            raise ProcessCrashed
        end = await self._hands.commit(at, who)
        self._falls(due, OFFSETS)
        return end


class AtMostOnce(NonTransactionalProcess):
    """It commits first.

    Where a request to commit was not answered, the process goes once it has done what it may: that request could come
    late, and set the group back behind what is written by then. The next generation refuses it.
    """

    commits = "before"

    @override
    async def _deal_with(
        self, inputs: InputValues, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None
    ) -> None:
        if due is not None and due.do == ABORT:
            await self._hands.rewind()
            return
        end = await self._commit(at, who, due)
        self._finished = end.status is OperationStatus.INFO or end.unanswered > 0
        if end.status is not OperationStatus.OK:
            await self._hands.rewind()
            return
        await self._write(inputs, due)
        self._falls(due, ENDED)
        self._dealt_with(at)


class AtLeastOnce(NonTransactionalProcess):
    """It commits last, and goes back to where its group stands if that, or a write, did not succeed."""

    commits = "after"

    @override
    async def _deal_with(
        self, inputs: InputValues, at: Mapping[Place, int], who: CommitIdentity, due: InstanceAction | None
    ) -> None:
        done = await self._write(inputs, due)
        await self._halts(due)
        if done and (due is None or due.do != ABORT):
            done = (await self._commit(at, who, due)).status is OperationStatus.OK
            self._falls(due, ENDED)
        else:
            done = False
        if done:
            self._dealt_with(at)
        else:
            await self._hands.rewind()
