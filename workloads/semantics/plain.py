"""A process without transactions: it commits where it stands before or after it writes.

Before (at most once): what it has committed and not written when it is gone, nobody ever writes. After (at least once):
what it has written and not committed is written again by whoever reads next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from workloads.client.cluster import Place
from workloads.client.groups.offsets import CommitEnd, Sender, commit
from workloads.client.outcomes import Status
from workloads.group_notes import Identity
from workloads.pipeline.life import COMMIT_LIMIT_S, LAST_WORD_S, Crash, Life, is_crash
from workloads.pipeline.steps import ABORT, ENDED, ENDING, OFFSETS, SENT, Step

Inputs = Sequence[tuple[Place, int]]
"""Where each stands, and its value."""


class PlainLife(Life):
    """Its producer is idempotent, so that no request of its own writes an output twice."""

    @abstractmethod
    async def _deal_with(self, inputs: Inputs, at: Mapping[Place, int], who: Sender, due: Step | None) -> None: ...

    async def _write(self, inputs: Inputs, due: Step | None) -> bool:
        """An output for each input. Whether all were acknowledged."""
        outcomes: list[Status] = []
        for place, source in inputs:
            if self._writer.retired:
                break
            self._send(self._output(place), source, outcomes)
        await self._writer.flushed()
        self._finished |= bool(self._writer.retired)
        self._falls(due, SENT)
        return outcomes == [Status.OK] * len(inputs)

    async def _commit(self, at: Mapping[Place, int], who: Sender, due: Step | None) -> CommitEnd:
        if is_crash(due, ENDING):
            # It asks, and does not live to hear the answer.
            with self._env.timeout(LAST_WORD_S):
                await self._ask_to_commit(at, who)
            raise Crash
        end = await self._ask_to_commit(at, who)
        self._falls(due, OFFSETS)
        return end

    async def _ask_to_commit(self, at: Mapping[Place, int], who: Sender) -> CommitEnd:
        member, notes = self.subscriber.member, self.subscriber.notes
        op = notes.begin_commit(Identity(who.member_id, who.generation), at, "manual")
        self._recorder.flush()
        gone = lambda: bool(member.out) or member.who != who  # noqa: E731
        end = await commit(member.coordination, who, at, COMMIT_LIMIT_S, gone=gone)
        notes.committed(op, end.status, end.error, end.errors, unanswered=end.unanswered)
        self._recorder.flush()
        if member.who == who:
            member.heed(end.code)
        return end


class AtMostOnce(PlainLife):
    """It commits first.

    Where a request to commit was not answered, the process goes once it has done what it may: that request could come
    late, and set the group back behind what is written by then. The next generation refuses it.
    """

    commits = "before"

    async def _deal_with(self, inputs: Inputs, at: Mapping[Place, int], who: Sender, due: Step | None) -> None:
        """As `Life._deal_with`."""
        if due is not None and due.do == ABORT:
            self.subscriber.rewind()
            return
        end = await self._commit(at, who, due)
        self._finished = end.status is Status.INFO or end.unanswered > 0
        if end.status is not Status.OK:
            self.subscriber.rewind()
            return
        await self._write(inputs, due)
        self._falls(due, ENDED)
        self._dealt_with(at)


class AtLeastOnce(PlainLife):
    """It commits last, and goes back to where its group stands if that, or a write, did not succeed."""

    commits = "after"

    async def _deal_with(self, inputs: Inputs, at: Mapping[Place, int], who: Sender, due: Step | None) -> None:
        """As `Life._deal_with`."""
        done = await self._write(inputs, due)
        await self._halts(due)
        if done and (due is None or due.do != ABORT):
            done = (await self._commit(at, who, due)).status is Status.OK
            self._falls(due, ENDED)
        else:
            done = False
        if done:
            self._dealt_with(at)
        else:
            self.subscriber.rewind()
