"""Defines what a program that is a member of a group says of itself, a JSON object a line (docs/workloads/command.md).

A program polls and commits by itself, so these lines are reports and not answers. Each is written before what it makes
possible: an offset is reported as processed before its commit is asked for, and a commit before its request is sent.
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
    """A partition that came to a member. `offset`: where it begins; None: it begins with what it processes first."""

    partition: JsonCount
    offset: JsonCount | None = None


class PartitionPosition(msgspec.Struct):
    """A partition, and the next offset to be read in it."""

    partition: JsonCount
    offset: JsonCount


class AssignedReport(msgspec.Struct, tag="assigned"):
    """Reports that these partitions came to those that the member has. Without a generation it is unknown what assigned
    them.
    """

    assigned: list[StartPosition]
    member: str = ""
    generation: JsonCount | None = None


class RevokedReport(msgspec.Struct, tag="revoked"):
    """The member has given these partitions up in good order: nothing of them is processed any more."""

    partitions: list[JsonCount]


class LostReport(msgspec.Struct, tag="lost"):
    """The member has learnt that these partitions are not its own any more."""

    partitions: list[JsonCount]


class ProcessedReport(msgspec.Struct, tag="processed"):
    """The member has processed these records."""

    records: list[FetchedRecord]


class CommitBeganReport(msgspec.Struct, tag="commit"):
    """The member is about to commit these offsets."""

    id: JsonCount
    offsets: list[PartitionPosition]


class CommitEndedReport(msgspec.Struct, tag="committed"):
    """Reports that a commit was acknowledged. With an error its result is unknown."""

    id: JsonCount
    error: str = ""


class OutputRequest(msgspec.Struct, tag="output"):
    """The member makes an output of `source`, a record that it has read, and asks what it is to write."""

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
"""Fields of reports that are no plain value, and what they hold."""


class MemberLineProtocol(LineProtocol):
    """The protocol of one process of a member. Its reports are messages ["m", report]."""

    TYPES = "ready, assigned, revoked, lost, processed, commit, committed, output, ok, fail or info"
    decoder = msgspec.json.Decoder(ReadyReply | Report | OkReply | FailReply | InfoReply, dec_hook=_number)

    def __init__(self) -> None:
        super().__init__()
        self._commits: set[int] = set()
        self._outputs: set[int] = set()

    def encode(self, message: list[Any]) -> bytes:
        """Encode as `LineProtocol.encode`, and keep the record that is the output of this id."""
        match message:
            case ["write", op, topic, partition, key, value]:
                self._asked[op] = partition
                about = {"topic": topic, "partition": partition, "key": key, "value": b64encode(value).decode()}
                return self.line({"type": "write", "id": op, **about})
        return super().encode(message)

    def _explained(self, why: str) -> str:
        """Explain as `LineProtocol._explained`, and say what a missing field holds."""
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
    """Take a new id. Wrong if the program has used it before."""
    if op in known:
        raise ProtocolViolation(f"it began {what} {op} twice: each has an id of its own")
    known.add(op)
