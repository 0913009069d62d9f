"""Defines what a program that is a group member reports, one JSON object for each line (docs/workloads/command.md).

A program polls and commits by itself, so these lines are reports and not replies. It writes a report before it takes
the next step: it reports that it has processed an offset before it begins to commit the offset, and reports a commit
before it sends the request.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec

from squall.chaos.drivers.library import FAIL, INFO, OK
from squall.chaos.drivers.lines import (
    FailReply,
    FetchedRecord,
    InfoReply,
    JsonCount,
    LineProtocol,
    OkReply,
    ProtocolViolation,
    ReadyReply,
    _number,
    _short,
)


class StartPosition(msgspec.Struct):
    """Names a partition that was assigned to a member, and the offset at which the member begins; None: it begins with
    the record that it processes first.
    """

    partition: JsonCount
    offset: JsonCount | None = None


class PartitionPosition(msgspec.Struct):
    """Names a partition and the next offset to be read in it."""

    partition: JsonCount
    offset: JsonCount


class AssignedReport(msgspec.Struct, tag="assigned"):
    """Reports that these partitions were added to those that the member owns. Without a generation it is unknown which
    generation assigned them.
    """

    assigned: list[StartPosition]
    member: str = ""
    generation: JsonCount | None = None


class RevokedReport(msgspec.Struct, tag="revoked"):
    """Reports that the member has given these partitions up, and processes no more of their records."""

    partitions: list[JsonCount]


class LostReport(msgspec.Struct, tag="lost"):
    """Reports that the member has learnt that it does not own these partitions any more."""

    partitions: list[JsonCount]


class ProcessedReport(msgspec.Struct, tag="processed"):
    """Reports that the member has processed these records."""

    records: list[FetchedRecord]


class CommitBeganReport(msgspec.Struct, tag="commit"):
    """Reports that the member is about to commit these offsets."""

    id: JsonCount
    offsets: list[PartitionPosition]


class CommitEndedReport(msgspec.Struct, tag="committed"):
    """Reports that a commit was acknowledged; with an error, that its result is unknown."""

    id: JsonCount
    error: str = ""


class OutputRequest(msgspec.Struct, tag="output"):
    """Asks what to write as the output of `source`, a record that the member has read."""

    id: JsonCount
    partition: JsonCount
    source: FetchedRecord


Report = (
    AssignedReport
    | RevokedReport
    | LostReport
    | ProcessedReport
    | CommitBeganReport
    | CommitEndedReport
    | OutputRequest
)


POSITIONS, RECORD = "a list of {partition, offset}", "{partition, offset, key, value}"
FORMS = {
    "assigned": POSITIONS,
    "offsets": POSITIONS,
    "partitions": "a list of numbers",
    "records": f"a list of {RECORD}",
    "source": RECORD,
}
"""Maps a field of the program's reports to a description of what it must hold. The error about a missing field contains
the description. Only fields with lists or objects are listed.
"""


class MemberLineProtocol(LineProtocol):
    """Decodes the lines of a program that is a group member, whose reports become messages ["m", report]."""

    TYPES = "ready, assigned, revoked, lost, processed, commit, committed, output, ok, fail or info"
    decoder = msgspec.json.Decoder(ReadyReply | Report | OkReply | FailReply | InfoReply, dec_hook=_number)

    def __init__(self) -> None:
        super().__init__()
        self._commits: set[int] = set()
        self._outputs: set[int] = set()

    def encode(self, message: list[Any]) -> bytes:
        """Return a request as a line. Besides the requests of `LineProtocol`, there is ["write", op, topic, partition,
        key, value], the reply to an OutputRequest: the program must write this record.
        """
        match message:
            case ["write", op, topic, partition, key, value]:
                self._asked[op] = partition
                about = {"topic": topic, "partition": partition, "key": key, "value": b64encode(value).decode()}
                return self.line({"type": "write", "id": op, **about})
        return super().encode(message)

    def _explained(self, why: str) -> str:
        """Rephrase msgspec's error, with the name of the field first. If a field is missing, add what it has to hold,
        such as "a list of numbers".
        """
        field = why.removeprefix("Object missing required field `").rstrip("`")
        return super()._explained(why) + (f", {FORMS[field]}" if field in FORMS else "")

    def _meaning(self, said: Any) -> list[Any]:
        match said:
            case CommitBeganReport(op):
                _fresh(op, self._commits, "commit")
            case CommitEndedReport(op):
                if op not in self._commits:
                    raise ProtocolViolation(
                        f"it said committed of commit {op}, which it has not begun, or has ended already"
                    )
                self._commits.discard(op)
            case OutputRequest(op):
                _fresh(op, self._outputs, "output")
            case OkReply(op, partition, offset, timestamp_ms):
                self._placed(op, partition)
                return ["outcome", int(op), OK, int(offset), int(timestamp_ms), ""]
            case FailReply(op, error) | InfoReply(op, error):
                self._settled(op, "fail" if isinstance(said, FailReply) else "info")
                return ["outcome", int(op), FAIL if isinstance(said, FailReply) else INFO, -1, -1, _short(error)]
        return ["m", said]


def _fresh(op: int, known: set[int], what: str) -> None:
    """Add the id of a new operation to `known`. Raise ProtocolViolation if the program has used this id before. what:
    names the operation in the error, such as "commit".
    """
    if op in known:
        raise ProtocolViolation(f"it began {what} {op} twice: each has an id of its own")
    known.add(op)
