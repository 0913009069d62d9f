"""Writes the history of a user's program that is a group member: the program polls and commits by itself, and reports
what it does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from squall.broker.overriding import override
from squall.workloads import payload
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.libraries import (
    LibraryMemberEvent,
    OffsetCommitBegan,
    OffsetCommitEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PolledRecords,
    ProgramListener,
    ProgramOutput,
)
from squall.workloads.library_subscriber import GONE, LibrarySubscriber
from squall.workloads.subscriber import MANUAL

KEYS = 64


class ProgramSubscriber(LibrarySubscriber, ProgramListener):
    """Runs one OS process of a user's program that is a group member, and records it as one process of the history. The
    program polls and commits by itself.

    `outputs` lists the partitions to which the program writes; it is empty if the program only reads. `record_bytes` is
    the size of each record that it writes. `commits` says when the program commits its offsets: `before` or `after` it
    writes, or in the same `transaction`; empty if the program only reads.
    """

    POLLS_BY_ITSELF = True

    def __init__(self, *of: Any, outputs: Collection[Place], commits: str, record_bytes: int) -> None:
        super().__init__(*of)
        self._outputs, self._about, self._record_bytes = outputs, {"commits": commits}, record_bytes
        self._commits: dict[int, tuple[int, Mapping[Place, int]]] = {}
        """Holds the unfinished commits, by the number that the program gave each: the operation id in the history, and
        the offsets.
        """
        self._sequence = 0

    @override
    def declare(self, role: str, about: Mapping[str, object], process: int | None = None) -> int:
        """Add the program to the history as a process, and return the process's id. If `process` is given, the program
        is that process already, and none is added. A program that writes outputs gets the role `producer` instead of
        `role`. `about` holds the settings to record with the process.
        """
        writes = bool(self._outputs)
        return super().declare("producer" if writes else role, {**about, **(self._about if writes else {})}, process)

    @override
    async def commit(self, why: str, only: Collection[Place] | None = None) -> CommitOutcome | None:
        """Do nothing: the program commits by itself."""
        return None

    @override
    def heard(self, said: LibraryMemberEvent) -> None:
        match said:
            case OffsetCommitBegan(who, number, at):
                self._commits[number] = self.notes.begin_commit(who, at, MANUAL), at
            case OffsetCommitEnded(number, error):
                op, at = self._commits.pop(number)
                self._ended(
                    op, at, CommitOutcome(OperationStatus.INFO if error else OperationStatus.OK, error, unanswered=-1)
                )
            case _:
                if isinstance(said, PartitionsAssigned | PartitionsRevoked | PartitionsLost):
                    self._is(said.who)
                super().heard(said)
                if isinstance(said, PolledRecords):
                    self._moved({each.place: each.position for each in said.parts})

    @override
    def crashed(self) -> None:
        """Record that the program's OS process has ended. The results of its unfinished commits are unknown."""
        super().crashed()
        for op, at in self._commits.values():
            self._ended(op, at, CommitOutcome(OperationStatus.INFO, GONE, unanswered=-1))
        self._commits.clear()

    # ------------------------------------------------------------------------------------------ of ProgramListener

    @override
    def has(self, place: Place) -> bool:
        return place in self._recorder.partitions

    @override
    def output(self, place: Place, source: int) -> ProgramOutput | None:
        if place not in self._outputs:
            return None
        sequence = self._sequence
        self._sequence += 1
        key, value = f"{self.process}-{sequence % KEYS}", payload.value_of(self.process, sequence)
        content, digest = payload.make(value, key.encode(), (), self._record_bytes)
        part, size = self._recorder.partitions[place], len(content)
        op = self._recorder.invoke_send(self.process, part, value, key, digest, size, source=source)
        # The program may send the record as soon as it has it.
        self._recorder.flush()
        self._counters.sent += 1
        return ProgramOutput(key, content, partial(self._written, op, part, self._env.mono()))

    def _written(self, op: int, part: int, handed_over: float, outcome: Outcome) -> None:
        if outcome.status is OperationStatus.OK:
            self._recorder.send_ok(op, outcome.offset, outcome.timestamp_ms)
            self._counters.acknowledge(part, handed_over, self._env.mono())
            return
        self._recorder.send_not_ok(op, outcome.status, outcome.error)
        if outcome.status is OperationStatus.INFO:
            self._counters.info += 1
        else:
            self._counters.failed += 1
