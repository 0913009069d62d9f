"""Runs the program under test as a group member (`squall.workloads.libraries.LibraryConsumer`). The program polls and
commits by itself, and reports what it does.

Each member writes its reports to a pipe of its own, so the pipes do not show in which order different members wrote. If
a partition moves from one member to another, the previous owner first commits the offset at which the new owner begins,
and gives the partition up. It reports both before the new owner reports its assignment. So `ReportSequencer` empties
all pipes before it handles an assignment.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from squall.broker.overriding import override
from squall.chaos.drivers.lines import FetchedRecord
from squall.chaos.drivers.member_lines import (
    AssignedReport,
    CommitBeganReport,
    CommitEndedReport,
    LostReport,
    OutputRequest,
    ProcessedReport,
    Report,
    RevokedReport,
)
from squall.chaos.drivers.messages import parts_of
from squall.chaos.drivers.process import CLIENT_ENDED, PipedProcess
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.group_notes import NO_GENERATION, MemberIdentity
from squall.workloads.libraries import (
    AssignmentReceived,
    LibraryConsumer,
    MemberIdentified,
    OffsetCommitBegan,
    OffsetCommitEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PolledRecords,
    ProgramListener,
)
from squall.workloads.payload import verify

POLL_S = 0.1
"""Gives the interval, in seconds, at which the workload looks for new reports of a member."""


class ReportSequencer:
    """Handles the reports of all members of a run in an order in which they can have happened."""

    def __init__(self) -> None:
        self._members: list[ProgramMember] = []

    def add(self, member: ProgramMember) -> None:
        """Handle the reports of this member, too."""
        self._members.append(member)

    def remove(self, member: ProgramMember) -> None:
        """Stop handling the reports of this member."""
        if member in self._members:
            self._members.remove(member)

    def hear(self) -> None:
        """Handle all reports in the members' pipes. The reports of one member are handled in the order in which it
        wrote them. Before an assignment is handled, all pipes are emptied once more, because reports that the
        assignment depends on may be in another pipe. Until then, each other member's reports are handled up to its next
        assignment. If several assignments can be handled, the oldest generation is first.
        """
        while True:
            for member in self._members:
                # Counted before the pipes are emptied: whatever preceded one of these reports was written before it was
                # read, and so is read by now. That does not hold for a report that comes with this reading.
                member.before = len(member.reports)
            for member in self._members:
                member.drain()
            while waiting := [member for member in self._members if member.reports]:
                ready = [member for member in waiting if member.before > 0 or not member.begins]
                if not ready:
                    break
                first = min(ready, key=lambda member: (member.begins, member.next_generation))
                first.before -= 1
                first.take()
            if not waiting:
                return


class ProgramMember(LibraryConsumer):
    """Controls one process of the program that is a group member, and passes its reports to `hearing` in order."""

    ended = False

    def __init__(
        self,
        process: PipedProcess,
        hearing: ProgramListener,
        topics: Sequence[str],
        reports: ReportSequencer,
        flush: Callable[[], None],
    ) -> None:
        """Use this process. hearing: gets the member's events. topics: the topic that the member reads, and the topic
        of its outputs, if there is one. reports: sequences the reports of all members. flush: writes the history to its
        file.
        """
        self._process, self._hearing, self._reports, self._flush = process, hearing, reports, flush
        self._topic, self._out_topic = topics[0], topics[-1]
        self.reports: deque[list[Any]] = deque()
        """Holds the reports that were read from the member's pipe and not handled yet."""
        self.before = 0
        """Counts the reports in `reports` that had been read from this member's pipe before the newest emptying of all
        pipes. An assignment among them can be handled.
        """
        self._who = MemberIdentity()
        self._owned: set[Place] = set()
        self._unbegun: set[Place] = set()
        """Holds the owned partitions for which the member has not reported a start offset."""
        self._at: dict[Place, int] = {}
        """Maps each partition to the offset after the last record that the member has processed."""
        self._lines: list[bytes] = []
        self._something, self._changed = trio.Event(), trio.Event()
        self._outcomes: dict[int, Callable[[Outcome], None]] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until the process has ended. If this task is cancelled, kill the process at once."""
        try:
            await self._process.wait_until_ready()
            self._reports.add(self)
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                while not self.ended:
                    await self._process.readable()
                    self._reports.hear()
                    self._process.check_log_size()
                nursery.cancel_scope.cancel()
        finally:
            self.kill()
            await self._process.end()

    # --------------------------------------------------------------------------------------------------- of Reports

    def drain(self) -> None:
        """Move the reports in the member's pipe to `reports`."""
        if not self.ended:
            found = self._process.drain()
            self.ended = found is None
            self.reports += found or ()

    @property
    def begins(self) -> bool:
        """Is True if the member's next report is an assignment, with which it begins to read partitions."""
        return isinstance(self.reports[0][-1], AssignedReport)

    @property
    def next_generation(self) -> int:
        """Returns the generation of the next report, if that is an assignment with a generation; else -1."""
        generation = self.reports[0][-1].generation if self.begins else None
        return NO_GENERATION if generation is None else int(generation)

    def take(self) -> None:
        """Handle the member's next report. Raise HarnessError if the report breaks the protocol."""
        message = self.reports.popleft()
        match message:
            case ["x", why]:
                raise self._process.error_of(self._process.FAILED.format(why=why, log=self._process.log))
            case ["outcome", op, status, offset, timestamp_ms, error]:
                self._outcomes.pop(op)(Outcome(OperationStatus(status), offset, timestamp_ms, error))
            case ["m", report]:
                self._heard(report)
            case _:
                raise AssertionError(message)
        self._flush()
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _heard(self, report: Report) -> None:
        match report:
            case AssignedReport():
                self._assigned(report)
            case RevokedReport(partitions):
                self._gone(partitions, PartitionsRevoked)
            case LostReport(partitions):
                self._gone(partitions, PartitionsLost)
            case ProcessedReport(records):
                self._processed(records)
            case CommitBeganReport(op, offsets):
                at = {(self._topic, int(each.partition)): int(each.offset) for each in offsets}
                self._known(at)
                self._hearing.heard(OffsetCommitBegan(self._who, int(op), at))
            case CommitEndedReport(op, error):
                self._hearing.heard(OffsetCommitEnded(int(op), error))
            case OutputRequest(op, partition, source):
                self._output(int(op), int(partition), source)

    def _assigned(self, report: AssignedReport) -> None:
        generation = NO_GENERATION if report.generation is None else int(report.generation)
        self._who = MemberIdentity(report.member, generation)
        begins = {(self._topic, int(each.partition)): each.offset for each in report.assigned}
        self._known(begins)
        self._owned |= set(begins)
        if generation == NO_GENERATION:
            self._hearing.heard(MemberIdentified(self._who))
        else:
            self._hearing.heard(AssignmentReceived(self._who, sorted(self._owned)))
        self._unbegun |= {place for place, offset in begins.items() if offset is None}
        self._begin({place: int(offset) for place, offset in begins.items() if offset is not None})

    def _begin(self, at: Mapping[Place, int]) -> None:
        """Record that the member reads these partitions from these offsets. Partitions at offset 0 are also listed in
        the event's field `reset` (partitions without a committed offset), because the report does not say whether 0 was
        committed.
        """
        self._at |= at
        if at:
            self._hearing.heard(
                PartitionsAssigned(self._who, at, [place for place, offset in at.items() if not offset])
            )

    def _gone(self, partitions: Sequence[int], how: type[PartitionsRevoked | PartitionsLost]) -> None:
        places = [(self._topic, int(index)) for index in partitions]
        self._known(places)
        self._owned -= set(places)
        self._unbegun -= set(places)
        if at := {place: self._at.pop(place) for place in places if place in self._at}:
            self._hearing.heard(how(self._who, at))

    def _processed(self, records: Sequence[FetchedRecord]) -> None:
        self._known([(self._topic, int(each.partition)) for each in records])
        first: dict[Place, int] = {}
        for each in records:
            first.setdefault((self._topic, int(each.partition)), int(each.offset))
        self._begin({place: offset for place, offset in first.items() if place in self._unbegun})
        self._unbegun -= set(first)
        at = {place: self._at.get(place, offset) for place, offset in first.items()}
        after = dict(at)
        parts = parts_of(records, self._topic, after)
        # A record that is reported after its partition was given up must not bring the partition back.
        self._at |= {place: offset for place, offset in after.items() if place in self._owned}
        self._hearing.heard(PolledRecords(time.monotonic_ns(), at, parts))

    def _output(self, op: int, partition: int, source: FetchedRecord) -> None:
        """Write the output record to the history, and send it to the program. The history has it before the output can
        reach a broker.
        """
        value, why = verify(source.value, None if source.key is None else source.key.encode())
        if why:
            place = f"partition {source.partition}, offset {source.offset}"
            raise self._process.error_of(f"makes an output of no record that Squall sent ({place}: {why})")

        made = self._hearing.output((self._out_topic, partition), value)
        if made is None:
            raise self._process.error_of(f"makes an output, and this run has no partition {partition} for it")
        self._outcomes[op] = made.on_outcome
        self._say(["write", op, self._out_topic, partition, made.key, made.value])

    def _known(self, places: Sequence[Place] | Mapping[Place, Any]) -> None:
        """Raise HarnessError for partitions that the topic does not have."""
        if unknown := [index for topic, index in places if not self._hearing.has((topic, index))]:
            raise self._process.error_of(f"names partition {unknown[0]}, which the topic {self._topic} does not have")

    # ---------------------------------------------------------------------------------------------------------- member

    @override
    async def poll(self) -> list[PolledRecords]:
        """Wait at most POLL_S for reports, and return no records. The program polls by itself, and its records enter
        the history when its reports are handled.
        """
        with trio.move_on_after(POLL_S):
            await self._changed.wait()
        return []

    @override
    async def commit(self, who: MemberIdentity, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Raise AssertionError: the program commits by itself."""
        raise AssertionError("nobody commits for a program")

    @override
    async def rewind(self) -> None:
        """Raise AssertionError: the program reads by itself."""
        raise AssertionError("nobody rewinds a program")

    @override
    async def leave(self) -> None:
        """Ask the program to finish, and wait until its process has ended."""
        self._say(["f"])
        while not self.ended:
            await self._changed.wait()

    @override
    def halt(self, *, still: bool) -> None:
        self._process.set_stopped(still=still)

    @override
    def kill(self) -> None:
        """Kill the process. Reports that it had written before that are handled."""
        self._process.kill()
        if not self.ended:
            self._process.reap()
            self._reports.hear()
        self.ended = True
        self._reports.remove(self)
        for tell in self._outcomes.values():
            tell(Outcome(OperationStatus.INFO, -1, -1, CLIENT_ENDED))
        self._outcomes.clear()
        self._changed.set()

    def _say(self, message: list[Any]) -> None:
        self._lines.append(self._process.encode(message))
        self._something.set()

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something = trio.Event()
            lines, self._lines = self._lines, []
            await self._process.send(b"".join(lines))
