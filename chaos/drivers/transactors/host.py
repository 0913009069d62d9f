"""Runs driver programs that are transactional producers of a workload (`squall.workloads.libraries`). This is the
harness's end of the pipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from squall.broker.overriding import override
from squall.chaos.drivers.frames import frame
from squall.chaos.drivers.library import DriverConfig
from squall.chaos.drivers.members.host import LibraryMember
from squall.chaos.drivers.messages import decode_read_message
from squall.chaos.drivers.process import CLIENT_ENDED, FINISH_SLACK_S, DriverProcess
from squall.chaos.drivers.transactors.outcomes import ABORT, BEGIN, COMMIT, INIT, OFFSETS
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.transactions import EndTxnResult, ProducerIdAndEpoch, TransactionRequestFailed
from squall.workloads.group_notes import MemberIdentity as Member
from squall.workloads.libraries import (
    ConsumingTransactionalSender,
    PolledRecords,
    PollError,
    ReaderAssigned,
    ReaderPositionReset,
    TransactionalMember,
)


class _CallResult(NamedTuple):
    status: OperationStatus
    error: str


LOST = _CallResult(OperationStatus.INFO, CLIENT_ENDED)
"""Is the result of a transactional call that the driver program did not answer: unknown."""


class LibraryTransactor(ConsumingTransactionalSender, TransactionalMember):
    """Controls one driver program with a library's transactional producer. When the program ends, an open transaction
    is neither committed nor aborted.
    """

    id, timeout_ms = "", 0
    identity = ProducerIdAndEpoch(-1, -1)
    retired = ""
    unanswered = -1

    def __init__(self, process: DriverProcess, config: DriverConfig, flush: Callable[[], None]) -> None:
        self._process, self._flush = process, flush
        self.id, self.timeout_ms = config.transactional_id, config.transaction_timeout_ms
        self._limit_s = config.delivery_timeout_ms / 1000 + FINISH_SLACK_S
        self._records: dict[int, Callable[[Outcome], None]] = {}
        self._next = 0
        self._call: str = ""
        self._answer: _CallResult | None = None
        self._polled: list[ReaderAssigned | PolledRecords | ReaderPositionReset | PollError] = []
        self._polls = False
        self._lines: list[bytes] = []
        self._something, self._changed = trio.Event(), trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until the driver program has ended. If this task is cancelled, kill the program at once."""
        try:
            await self._process.wait_until_ready()
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                while (message := await self._process.next()) is not None:
                    self._heard(message)
                    self._flush()
                    self._tell()
                nursery.cancel_scope.cancel()
        finally:
            self._process.kill()
            self._end_of_all()
            await self._process.end()

    def _heard(self, message: list[object]) -> None:
        match message:
            case ["o", list(outcomes)]:
                for op, status, offset, timestamp_ms, error in outcomes:
                    self._records.pop(op)(Outcome(OperationStatus(status), offset, timestamp_ms, error))
            case ["t", str(call), int(status), str(error), int(producer_id), int(epoch), str(ends)]:
                assert call == self._call, message
                self.identity = ProducerIdAndEpoch(producer_id, epoch)
                self.retired = self.retired or ends
                self._answer = _CallResult(OperationStatus(status), error)
            case ["p"]:
                self._polls = False
            case ["a" | "r" | "k" | "e", *_]:
                self._polled.append(decode_read_message(message))
            case _:
                raise AssertionError(f"a transactor said what none says: {message!r}")

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something = trio.Event()
            lines, self._lines = self._lines, []
            # The invocation must be in the history before a byte of it can reach a broker.
            self._flush()
            await self._process.send(b"".join(lines))

    # ----------------------------------------------------------------------------------------------------- transactions

    @override
    async def init(self) -> ProducerIdAndEpoch:
        await self._done(INIT)
        return self.identity

    @override
    async def begin(self) -> None:
        await self._done(BEGIN)

    @override
    async def enlist(self, place: Place) -> None:
        """Do nothing: the library adds the partition to the transaction before it sends a record."""

    @override
    def send(
        self, place: Place, key: bytes | None, value: bytes, timestamp_ms: int, on_outcome: Callable[[Outcome], None], /
    ) -> None:
        if self.retired == CLIENT_ENDED:
            on_outcome(Outcome(OperationStatus.FAIL, -1, -1, CLIENT_ENDED))
            return
        op = self._next
        self._next += 1
        self._records[op] = on_outcome
        self._say(["s", op, *place, key, value, timestamp_ms])

    @override
    async def flushed(self) -> None:
        """Wait until every record has its outcome. If the library does not finish in time, kill its driver program. The
        outcome of each record that has none by then is unknown.
        """
        if not await self._until(lambda: not self._records):
            self._process.kill()
            await self._until(lambda: not self._records)

    @override
    async def end(self, *, commit: bool) -> EndTxnResult:
        return EndTxnResult(*await self._ask(COMMIT if commit else ABORT))

    @override
    async def poll(self) -> Sequence[ReaderAssigned | PolledRecords | ReaderPositionReset | PollError]:
        if self.retired == CLIENT_ENDED:
            return ()
        self._polled, self._polls = [], True
        self._say(["poll"])
        if not await self._until(lambda: not self._polls or self.retired == CLIENT_ENDED):
            self._process.kill()
            self.retired = self.retired or CLIENT_ENDED
        return self._polled

    @override
    async def offsets(self, who: Member, at: Mapping[Place, int]) -> CommitOutcome:
        answer = await self._ask(OFFSETS, *who, [[*place, position] for place, position in at.items()])
        return CommitOutcome(answer.status, answer.error, unanswered=-1)

    # --------------------------------------------------------------------------------------------------- calls

    async def _done(self, call: str) -> None:
        """Request a call, such as "begin", and wait until it is done. Raise TransactionRequestFailed if it does not
        succeed.
        """
        answer = await self._ask(call)
        if answer.status is not OperationStatus.OK:
            raise TransactionRequestFailed(answer.error, doubt=answer.status is OperationStatus.INFO)

    async def _ask(self, call: str, *about: object) -> _CallResult:
        if self.retired == CLIENT_ENDED:
            # FAIL and not INFO: this call was never sent.
            return _CallResult(OperationStatus.FAIL, CLIENT_ENDED)
        self._call, self._answer = call, None
        self._say([call, *about])
        if not await self._until(lambda: self._answer is not None or self.retired == CLIENT_ENDED):
            self._process.kill()
            self.retired = self.retired or CLIENT_ENDED
        return self._answer or LOST

    async def _until(self, true: Callable[[], bool]) -> bool:
        with trio.move_on_after(self._limit_s):
            while not true():
                await self._changed.wait()
        return true()

    def _say(self, message: list[object]) -> None:
        self._lines.append(frame(message))
        self._something.set()

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _end_of_all(self) -> None:
        self.retired = CLIENT_ENDED
        for on_outcome in list(self._records.values()):
            on_outcome(Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED))
        self._records.clear()
        self._flush()
        self._tell()

    def close(self) -> None:
        """Kill the driver program, without aborting an open transaction."""
        self._process.kill()


class LibraryTransactionalMember(LibraryTransactor):
    """Controls one driver program that is a transactional producer and a group member. Messages about the membership go
    to `member`.
    """

    member: LibraryMember

    def say(self, message: list[object]) -> None:
        """Send a message to the driver program."""
        self._say(message)

    def _heard(self, message: list[object]) -> None:
        if message[0] in ("o", "t"):
            super()._heard(message)
        else:
            self.member.took(message)

    def _end_of_all(self) -> None:
        super()._end_of_all()
        self.member.over()
