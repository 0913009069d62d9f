"""The tables that a history becomes: what the finders, slow and fast, read.

Everything is an integer, because that is what makes both Python and Spark quick. Times are nanoseconds on the run's
one monotonic clock. -1 stands for "not known" everywhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from squall.checkers.history.group_activity import GroupActivityCounter
from squall.checkers.history.group_tables import (
    GenerationAssignment,
    GroupCommit,
    MemberPause,
    PartitionOwnership,
    PipelineOutput,
    ReportedCommittedOffset,
)
from squall.checkers.history.partition import ObservedPartition as ObservedPartition
from squall.checkers.history.reader_tables import InvalidatedPosition, TimeLookup

SCHEMA = 1
"""Of the Parquet files and of conversion.json."""

SEND, POLL, EMPTY_POLL, LISTED, LISTED_START, DELETED = range(6)
"""Row.kind (the first three) and Told.kind (the last five). LISTED: a latest or last stable offset that was asked for;
LISTED_START: an earliest one; DELETED: records before `log_start` were deleted by request."""
TRUNCATED, OUT_OF_RANGE = 0, 1
"""Thrown.kind. The leader's log ends the epoch of what the reader read last before its position (LOG_TRUNCATED); or its
log does not reach to that position (OFFSET_OUT_OF_RANGE)."""
OK, FAIL, INFO = 0, 1, 2
"""Final status of an operation: done; definitely not done; may have been done. No completion is INFO."""
NOT_A_READER = 2
"""Row.iso of a send. 0 is read_uncommitted, 1 is read_committed."""
NOT_ENDED, COMMIT, ABORT = 0, 1, 2
"""Txn.how: what the client asked for at the end of a transaction, if it came to that."""
PRODUCER = "producer"
"""Process.role of those that write."""
LATE_END = "late end"
"""Evidence: an EndTxn of an earlier transaction of the same producer id and epoch may have ended this one, KAFKA-17754.
With transactions V2 each transaction has an epoch of its own, so this never is the evidence."""


class RecordRow(NamedTuple):
    """Describes one record handed over or received; or a stretch of offsets of which a poll returned nothing
    (EMPTY_POLL): before the first of its records, behind the last one, or all that it passed.
    """

    kind: int
    st: int
    proc: int
    part: int
    op: int
    idx: int
    """Position inside the operation."""
    off: int
    """Offset; of an empty stretch its end."""
    val: int
    """The value; -1 where the payload did not verify, and of an empty poll."""
    iso: int
    t0: int
    """Send: handed over. Poll: this call began."""
    t1: int
    """Send: its result came (-1: none ever did). Poll: this call returned."""
    final: int
    """0, or the round of the final read."""
    seg: int
    """How often this reader's position in this partition was forgotten: reads of one `seg` follow each other."""
    before: int
    """Offset of the record that this reader got before this one in the same `seg`; -1 where this is the first. Of an
    empty stretch over which the reader was moved: its begin."""
    inside: int
    """1 where it got that one from the same poll."""
    key: int
    """Dense id of the key of a send to a compacted partition, else -1."""
    tries: int
    """An acknowledged send was handed to a connection so often; -1 of clients that do not report it, and of reads."""


class ReportedBounds(NamedTuple):
    """Holds what one answer said of a partition, beside its records."""

    kind: int
    part: int
    proc: int
    op: int
    idx: int
    """Position inside the operation's answer."""
    st: int
    iso: int
    final: int
    epoch: int
    """Leader epoch that answered; -1 where the client does not know it."""
    hw: int
    lso: int
    log_start: int
    position: int
    """The reader's, after this answer."""
    records: int
    last_off: int
    """Highest offset among the records of this answer."""
    hw_before: int
    lso_before: int
    """As told to this client before, of this partition, by the same leader epoch, and for a latest offset by earlier
    ones, too (KIP-207); -1 where that says nothing."""
    t0: int
    t1: int


class Txn(NamedTuple):
    """Describes one transaction, as its client saw it."""

    op: int
    proc: int
    id: int
    """Index into History.names: its transactional id."""
    st: int
    """OK: it ended as `how` says. FAIL: it definitely did not commit. INFO: it may have ended either way; if it never
    asked for an end (`how` is NOT_ENDED), the broker can only have aborted it."""
    how: int
    t0: int
    """It began."""
    te: int
    """Its end was asked for; -1 if it never was."""
    t1: int
    """The answer to that; -1 if none ever came."""
    producer_id: int
    epoch: int
    """Of the producer when it began; -1 if not known."""
    timeout_ms: int
    late_commit: int
    """1 where a commit that an earlier transaction of the same producer id and epoch asked for may arrive only now:
    its client asked again, because a request for it was not answered. See `LATE_END`."""
    late_abort: int
    """The same of an abort."""
    unanswered: int
    """Requests for its end that were sent and never answered; -1 where its client does not tell."""

    @property
    def committed(self) -> bool:
        """The coordinator acknowledged the commit."""
        return self.st == OK and self.how == COMMIT

    @property
    def never_commits(self) -> bool:
        """It was aborted, it failed, or its client never asked for a commit."""
        return self.how != COMMIT or self.st == FAIL


class TxnOperation(NamedTuple):
    """An operation inside a transaction."""

    txn: int
    """Operation id of the transaction."""
    kind: int
    """SEND or POLL."""
    op: int
    part: int
    """-1 for a poll."""
    val: int
    """-1 for a poll."""


class InitProducerIdResult(NamedTuple):
    """A producer got its id and epoch for a transactional id: from then on all earlier ones are fenced. Or it was
    refused them, and both are -1."""

    t: int
    proc: int
    id: int
    """Index into History.names: the transactional id."""
    producer_id: int
    epoch: int
    t0: int
    """It asked."""


class OperationRow(NamedTuple):
    """Describes one operation."""

    op: int
    f: int
    """Index into History.names."""
    proc: int
    part: int
    st: int
    t0: int
    t1: int
    err: int
    """Index into History.names."""


class PartitionFinalRead(NamedTuple):
    """Says how far one fresh reader came in one partition."""

    part: int
    proc: int
    round: int
    iso: int
    t0: int
    t1: int
    start: int
    log_start: int
    reached: int
    end: int
    """The end as known when it began; -1 where it never reached it."""
    whole: int
    """1 where it left nothing out between `start` and `reached`."""

    @property
    def complete(self) -> bool:
        """It read everything from the log start to the end as known when it began."""
        return bool(self.whole) and 0 <= self.end <= self.reached and self.start <= max(self.log_start, 0)


@dataclass(slots=True)
class ClientProcess:
    """A logical process: a producer, a reader, or the reader of a final read."""

    proc: int
    role: str
    client: str
    version: str
    zone: str
    settings: Mapping[str, Any]
    first_t: int = -1
    last_t: int = -1
    """When the history first and last mentions it otherwise than by a send: until then, at least, it was at work."""

    @property
    def isolation(self) -> int:
        """0 read_uncommitted, 1 read_committed."""
        return 1 if self.settings.get("isolation") in (1, "read_committed") else 0

    @property
    def request_timeout_ns(self) -> int:
        """After this long without an answer its client asks again; 0 where that is not known."""
        timeout_ms = self.settings.get("request_timeout_ms")
        return timeout_ms * 1_000_000 if isinstance(timeout_ms, int) else 0

    @property
    def round(self) -> int:
        """Of a final read, from 1."""
        round_ = self.settings.get("round")
        return round_ if type(round_) is int and 0 < round_ < 128 else 1


@dataclass(frozen=True, slots=True)
class PositionChange:
    """A reader was given, gave up or moved its position: at `t` by process `proc`."""

    t: int
    proc: int
    kind: str
    part: int = -1
    position: int = -1


@dataclass(frozen=True, slots=True)
class HistoryProblem:
    """Why an input could not be read to its end. `line` counts from 1; 0 where it is about the whole file."""

    file: str
    line: int
    why: str
    untrusted: bool = False
    """What stands before that line may be damaged as well, nobody knows where: then it proves nothing."""

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: {self.why}" if self.line else f"{self.file}: {self.why}"


class IntegerTable:
    """Rows of integers, one after the other in one array: the quickest thing to append to that stays small.

    `data` may be extended directly, by whole rows. An interrupted row is cut off by `truncate`.
    """

    __slots__ = ("data", "row_type", "width")

    def __init__(self, row_type: Any) -> None:
        self.row_type = row_type
        self.width = len(row_type._fields)
        self.data = array("q")

    def __len__(self) -> int:
        return len(self.data) // self.width

    def append(self, row: tuple[int, ...]) -> None:
        """Add one row. TypeError or OverflowError where a value is no 64-bit integer."""
        assert len(row) == self.width, row
        self.data.extend(row)

    def rows(self) -> Iterator[Any]:
        """The rows, as `row_type`."""
        return map(partial(tuple.__new__, self.row_type), zip(*[iter(self.data)] * self.width, strict=True))

    def column(self, name: str) -> array[int]:
        """All values of one column."""
        return self.data[self.row_type._fields.index(name) :: self.width]

    def truncate(self, length: int) -> None:
        """Drop all rows after the first `length`, and what there is of an unfinished one."""
        del self.data[length * self.width :]


OF_GROUPS = ("holds", "grants", "stills", "commits", "fetches", "outputs")
"""Tables that histories converted before there were groups lack."""
LARGE = ("records", "told", "ops", "thrown", "lookups", "txns", "members", "inits", *OF_GROUPS)
"""Every `IntegerTable` of a history."""


@dataclass(slots=True)
class History:
    """A whole history in memory, or, where a converter wrote the large tables out meanwhile, what is left of it."""

    run: str = ""
    wall_ms: int = -1
    mono_ns: int = -1
    lines: int = 0
    ends: bool = False
    """The header promises a last line that counts the others: without it, the history was cut."""
    torn_bytes: int = 0
    """Length of an unfinished last line, which was left out."""
    seals: dict[str, int] = field(default_factory=dict)
    """What header and last line say of the run's other files (`squall.checkers.history.seal`)."""
    problem: HistoryProblem | None = None
    """Why reading stopped early. What stands before that line is a sound history: it is one cut short."""
    names: list[str] = field(default_factory=list)
    """Of operations and errors, by Op.f and Op.err."""
    partitions: list[ObservedPartition] = field(default_factory=list)
    processes: list[ClientProcess] = field(default_factory=list)
    assignments: list[PositionChange] = field(default_factory=list)
    finals: list[PartitionFinalRead] = field(default_factory=list)
    records: IntegerTable = field(default_factory=lambda: IntegerTable(RecordRow))
    told: IntegerTable = field(default_factory=lambda: IntegerTable(ReportedBounds))
    ops: IntegerTable = field(default_factory=lambda: IntegerTable(OperationRow))
    thrown: IntegerTable = field(default_factory=lambda: IntegerTable(InvalidatedPosition))
    lookups: IntegerTable = field(default_factory=lambda: IntegerTable(TimeLookup))
    txns: IntegerTable = field(default_factory=lambda: IntegerTable(Txn))
    members: IntegerTable = field(default_factory=lambda: IntegerTable(TxnOperation))
    inits: IntegerTable = field(default_factory=lambda: IntegerTable(InitProducerIdResult))
    holds: IntegerTable = field(default_factory=lambda: IntegerTable(PartitionOwnership))
    grants: IntegerTable = field(default_factory=lambda: IntegerTable(GenerationAssignment))
    stills: IntegerTable = field(default_factory=lambda: IntegerTable(MemberPause))
    commits: IntegerTable = field(default_factory=lambda: IntegerTable(GroupCommit))
    fetches: IntegerTable = field(default_factory=lambda: IntegerTable(ReportedCommittedOffset))
    outputs: IntegerTable = field(default_factory=lambda: IntegerTable(PipelineOutput))
    corrupt: int = 0
    """Received records whose payload did not verify."""
    holes: int = 0
    """Received records that did not stand right behind the one that the same reader got before, and answers without a
    record that moved a reader."""
    read_inside: int = 0
    """Records that polls at read_committed returned inside transactions."""
    owned: set[int] = field(default_factory=set)
    """Partitions that a member of a group ever owned."""
    owners: set[int] = field(default_factory=set)
    """Processes that ever owned one."""
    resumed: int = 0
    """How often a member began at its group's committed position."""
    group_activities: GroupActivityCounter = field(default_factory=GroupActivityCounter)
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Operation -> "ok" | "fail" | "info" | "error NAME" -> how many."""
    declared: int = 0
    """The `seal.declared_seal` of its partitions and settings of topics."""

    def process(self, proc: int) -> ClientProcess | None:
        """The process of that id."""
        return next((process for process in self.processes if process.proc == proc), None)


def whole(value: Any) -> int:
    """The same, if it is an integer of 64 bits. ValueError else."""
    if type(value) is not int or value.bit_length() > 63:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
    return value


def offsets_of(by_part: Any) -> dict[int, int]:
    """{"3": 17} of JSON into {3: 17}."""
    return {int(part): whole(offset) for part, offset in by_part.items()}


def whole_numbers(values: Iterable[Any]) -> None:
    """ValueError where one of them is no integer: true is 1 to an array, and would pass."""
    for value in values:
        if type(value) is not int:
            raise ValueError(f"{value!r} is no whole number")


@dataclass(frozen=True, slots=True)
class PlayedFault:
    """Describes one fault as nemesis.jsonl last reported it. Times are in ns on the run's clock, -1 where it never came
    to that.
    """

    id: int
    action: str
    fault_class: str
    """As the nemesis says: P, N, C, W1, WM or D; empty where it does not."""
    traits: tuple[str, ...]
    """As the nemesis says (`squall.checkers.fault_traits`)."""
    target: str
    resolved: tuple[Any, ...]
    """What it hit: node ids, or links as the runtime names them."""
    params: Mapping[str, Any]
    asked: int
    began: int
    ended: int
    evidence: Mapping[str, Any] | None
    error: str
    on: int = -1
    """When it was on everywhere: putting it on may take a while after `began`. -1 where the nemesis does not say."""

    @property
    def whole_since(self) -> int:
        """Return the time, ns, from which on every send met the whole fault; -1 if it never began."""
        return max(self.began, self.on)
