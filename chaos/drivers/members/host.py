"""Runs driver programs that are group members of a workload (`squall.workloads.libraries.LibraryConsumer`). This is the
harness's end of the pipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from squall.broker.overriding import override
from squall.chaos.drivers.frames import frame
from squall.chaos.drivers.messages import decode_read_message
from squall.chaos.drivers.process import CLIENT_ENDED, DriverProcess
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.group_notes import MemberIdentity
from squall.workloads.libraries import (
    AssignmentReceived,
    CommittedOffsets,
    LibraryConsumer,
    MemberIdentified,
    MemberLeft,
    MemberListener,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PolledRecords,
)

LEAST_S = 30.0
"""Is the least time, in seconds, after which a library that does not answer is killed. The library's own time-outs are
added to it.
"""


class LibraryMember(LibraryConsumer):
    """Controls one driver program whose library is a group member. `hearing` gets what the library's callbacks report,
    in order.
    """

    ended = False

    def __init__(
        self,
        process: DriverProcess,
        hearing: MemberListener,
        limit_s: float,
        flush: Callable[[], None],
        say: Callable[[list[Any]], None] | None = None,
    ) -> None:
        """Control this process. hearing: gets the member's events. limit_s: the time, in seconds, that the library's
        own settings allow for a request. flush: writes the history to its file. say: sends a message to the process, if
        another object writes to its pipe; None: this object writes to the pipe.
        """
        self._say = say or self._tell_it
        self._process, self._hearing, self._flush = process, hearing, flush
        self._limit_s = LEAST_S + limit_s
        self._busy = ""
        """Names the request that the driver program has not answered yet; empty if there is none."""
        self._read: list[PolledRecords] = []
        self._end = CommitOutcome(OperationStatus.OK)
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
                    self.took(message)
                    self._flush()
                nursery.cancel_scope.cancel()
        finally:
            self._process.kill()
            self.over()
            await self._process.end()

    def took(self, message: list[Any]) -> None:
        """Handle a message that has come from the driver program, and wake the tasks that wait for a reply."""
        self._heard(message)
        self._tell()

    def over(self) -> None:
        """Record that the driver program has ended."""
        self.ended = True
        self._tell()

    def _heard(self, message: list[Any]) -> None:
        match message:
            case ["giving", str(id_), int(generation), list(at)]:
                offsets = self._hearing.offsets_to_commit(MemberIdentity(id_, generation), _at(at))
                # The commit must be in the history before a byte of its request can be sent.
                self._flush()
                self._say(["now", [[*place, position] for place, position in offsets.items()]])
            case ["kept", now, int(status), str(error), list(errors)]:
                why = {(topic, index): each for topic, index, each in errors}
                end = CommitOutcome(OperationStatus(status), error, why, unanswered=-1)
                if now:
                    self._hearing.commit_ended(end)
                else:
                    self._end, self._busy = end, ""
            case ["p", str(id_), int(generation)]:
                self._hearing.heard(MemberIdentified(MemberIdentity(id_, generation)))
                self._busy = ""
            case ["left"]:
                self._busy = ""
            case ["r", *_]:
                read = decode_read_message(message)
                assert isinstance(read, PolledRecords), message
                self._read.append(read)
                self._hearing.heard(read)
            case _:
                self._hearing.heard(decode_callback(message))

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something = trio.Event()
            lines, self._lines = self._lines, []
            await self._process.send(b"".join(lines))

    # ----------------------------------------------------------------------------------------------------- member

    @override
    async def poll(self) -> list[PolledRecords]:
        # The caller of an earlier request may have been cancelled while its answer was still to come.
        await self._answered()
        self._read = []
        await self._ask(["poll"])
        return self._read

    @override
    async def commit(self, who: MemberIdentity, offsets: Mapping[Place, int]) -> CommitOutcome:
        await self._answered()
        # Is the outcome if the program ends before it answers.
        self._end = CommitOutcome(OperationStatus.INFO, CLIENT_ENDED, unanswered=-1)
        self._flush()
        await self._ask(["offsets", *who, [[*place, position] for place, position in offsets.items()]])
        return self._end

    @override
    async def rewind(self) -> None:
        await self._answered()
        self._say(["rewind"])

    @override
    async def leave(self) -> None:
        await self._answered()
        await self._ask(["leave"])

    @override
    def halt(self, *, still: bool) -> None:
        self._process.set_stopped(still=still)

    @override
    def kill(self) -> None:
        self._process.kill()

    # ------------------------------------------------------------------------------------------------------ parts

    async def _ask(self, message: list[Any]) -> None:
        self._busy = str(message[0])
        self._say(message)
        await self._answered()

    async def _answered(self) -> None:
        with trio.move_on_after(self._limit_s) as scope:
            while self._busy and not self.ended:
                await self._changed.wait()
        if scope.cancelled_caught:
            self._process.kill()
            self.ended = True

    def _tell_it(self, message: list[Any]) -> None:
        self._lines.append(frame(message))
        self._something.set()

    def _tell(self) -> None:
        # A trio.Event cannot be reset: tasks that wait now have the old one, later waits get the new one.
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def decode_callback(message: list[Any]) -> Any:
    """Return a message about a group member as an event of `squall.workloads.libraries`: ["joined", ...] as
    AssignmentReceived, for example.
    """
    match message:
        case ["joined", str(id_), int(generation), list(places)]:
            return AssignmentReceived(MemberIdentity(id_, generation), [(topic, index) for topic, index in places])
        case ["stood", str(id_), int(generation), int(began_ns), stable, list(offsets), list(asked), str(error)]:
            places = [(topic, index) for topic, index in asked]
            return CommittedOffsets(
                MemberIdentity(id_, generation), began_ns, bool(stable), places, _at(offsets), error
            )
        case ["began", str(id_), int(generation), list(rows)]:
            at = {(topic, index): position for topic, index, position, _ in rows}
            reset = [(topic, index) for topic, index, _, committed in rows if not committed]
            return PartitionsAssigned(MemberIdentity(id_, generation), at, reset)
        case ["gave", str(id_), int(generation), list(at)]:
            return PartitionsRevoked(MemberIdentity(id_, generation), _at(at))
        case ["lost", str(id_), int(generation), list(at)]:
            return PartitionsLost(MemberIdentity(id_, generation), _at(at))
        case ["out", str(why)]:
            return MemberLeft(why)
    return decode_read_message(message)


def _at(rows: list[Any]) -> dict[Place, int]:
    return {(topic, index): position for topic, index, position in rows}
