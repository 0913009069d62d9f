"""Defines the tables into which a history is parsed, and which all finders read.

All values are integers, because that makes both Python and Spark fast. Times are nanoseconds on the run's monotonic
clock. -1 means "not known" everywhere.
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
"""Is the version number of the format of the Parquet files and of conversion.json. Files of another version must be
converted again.
"""

SEND, POLL, EMPTY_POLL, LISTED, LISTED_START, DELETED = range(6)
"""Are the values of RecordRow.kind (the first three) and ReportedBounds.kind (the last five). LISTED is a latest or
last stable offset that was requested, LISTED_START an earliest offset; DELETED says that records before `log_start`
were deleted by request.
"""
TRUNCATED, OUT_OF_RANGE = 0, 1
"""Are the values of InvalidatedPosition.kind. TRUNCATED (LOG_TRUNCATED): the leader's log has the epoch of the reader's
last record, but that epoch ends there before the reader's position. OUT_OF_RANGE (OFFSET_OUT_OF_RANGE): the position is
outside of the leader's log.
"""
OK, FAIL, INFO = 0, 1, 2
"""Are the final statuses of an operation: done; definitely not done; may have been done. An operation without a
completion is INFO.
"""
NOT_A_READER = 2
"""Is the value of RecordRow.iso for sends, which have no isolation level. For reads, 0 is read_uncommitted and 1 is
read_committed.
"""
NOT_ENDED, COMMIT, ABORT = 0, 1, 2
"""Are the values of Txn.how: the end of a transaction that the client requested, if any."""
PRODUCER = "producer"
"""Is the ClientProcess.role of processes that write."""
EXECUTOR = "executor"
"""Is the ClientProcess.role of processes of a load that read one given range after the other."""
LATE_END = "late end"
"""Is the `Witness.evidence` of an anomaly that a late EndTxn may have caused: it was sent for an earlier transaction
with the same producer id and epoch, and may have ended this transaction (KAFKA-17754). It never occurs with
transactions V2, because each transaction has its own epoch.
"""


class RecordRow(NamedTuple):
    """Describes one record that was sent or received; or, as EMPTY_POLL, a stretch of offsets of which a poll returned
    nothing: before the first of its records, behind the last one, or all that it passed.
    """

    kind: int
    st: int
    proc: int
    part: int
    op: int
    idx: int
    """Is the record's index in its operation."""
    off: int
    """Is the record's offset. An EMPTY_POLL describes a stretch of offsets that a poll passed over without returning a
    record: for it, this is the first offset after the stretch.
    """
    val: int
    """Is the record's value; -1 if the payload did not verify, and for an empty poll."""
    iso: int
    t0: int
    """Is when a record was sent, or when the call of a poll began."""
    t1: int
    """Is when the result of a send came (-1: never), or when the call of a poll returned."""
    final: int
    """Is the number, from 1, of the round of final reads that returned the record; 0 if it came from another operation.
    In each round fresh readers read everything.
    """
    seg: int
    """Counts how often the reader's position in this partition became unknown: reads with the same `seg` follow each
    other.
    """
    before: int
    """Is the offset of the record that this reader got before this one from the partition; -1 if there is none, or if
    the reader's position became unknown in between (`seg`). An EMPTY_POLL describes a stretch of offsets that a poll
    passed over without returning a record: for it, this is the first offset of the stretch; -1 if the reader passed
    over no record that should still exist.
    """
    inside: int
    """Is 1 if the reader's previous record (`before`) came from the same poll, else 0."""
    key: int
    """Identifies the key of a send to a compacted partition by a number; -1 for other rows."""
    tries: int
    """Counts how often an acknowledged send was written to a connection; -1 for clients that do not report it, and for
    reads.
    """


class ReportedBounds(NamedTuple):
    """Holds what one response said of a partition beside its records: high watermark, last stable offset and log start.
    """

    kind: int
    part: int
    proc: int
    op: int
    idx: int
    """Is the index in the operation's response, which has an entry for each partition."""
    st: int
    iso: int
    final: int
    epoch: int
    """Is the leader epoch that answered; -1 if the client does not know it."""
    hw: int
    lso: int
    log_start: int
    position: int
    """Is the reader's position after this response."""
    records: int
    last_off: int
    """Is the highest offset among the records of this response; -1 if it had none."""
    hw_before: int
    lso_before: int
    """Is the least value that `lso` may have: what the client had seen before in the same leader epoch; for a latest
    offset also what it had seen in earlier epochs (KIP-207). -1 if it had seen none. `hw_before` is the least value of
    `hw`, by the same rules.
    """
    t0: int
    t1: int


class Txn(NamedTuple):
    """Describes one transaction, as its client saw it."""

    op: int
    proc: int
    id: int
    """Is the index of its transactional id in History.names."""
    st: int
    """Is OK if the transaction ended as `how` says, FAIL if it definitely did not commit, and INFO if its end is not
    known. It is never OK if the client requested no end (`how` is NOT_ENDED): the broker can only have aborted the
    transaction then.
    """
    how: int
    t0: int
    """Is when the transaction began."""
    te: int
    """Is when its end was requested; -1 if it never was."""
    t1: int
    """Is when the request for its end was answered; -1 if it never was."""
    producer_id: int
    epoch: int
    """Is the producer's epoch when the transaction began; -1 if not known."""
    timeout_ms: int
    late_commit: int
    """Is 1 if a commit request of an earlier transaction with the same producer id and epoch may arrive only now,
    because it was not answered and its client sent it again. See `LATE_END`.
    """
    late_abort: int
    """Is 1 if an abort request of an earlier transaction with the same producer id and epoch may arrive only now,
    because it was not answered and its client sent it again.
    """
    unanswered: int
    """Counts requests for its end that were sent and never answered; -1 if its client does not report it."""

    @property
    def committed(self) -> bool:
        """Return whether the coordinator acknowledged the commit."""
        return self.st == OK and self.how == COMMIT

    @property
    def never_commits(self) -> bool:
        """Return whether the transaction was aborted, or failed, or its client never requested a commit."""
        return self.how != COMMIT or self.st == FAIL


class TxnOperation(NamedTuple):
    """Describes a send or a poll inside a transaction."""

    txn: int
    """Is the operation id of the transaction."""
    kind: int
    """Is SEND if the operation wrote a record, POLL if it read records."""
    op: int
    part: int
    """Is the partition of a send; -1 for a poll."""
    val: int
    """Is the value of a send; -1 for a poll."""


class InitProducerIdResult(NamedTuple):
    """Records the result of an InitProducerId request. Either the producer got a producer id and an epoch for its
    transactional id, which fences all earlier producers with that id; or the request was refused, and `producer_id` and
    `epoch` are -1.
    """

    t: int
    proc: int
    id: int
    """Is the index of the transactional id in History.names."""
    producer_id: int
    epoch: int
    t0: int
    """Is when the producer sent its request."""


class OperationRow(NamedTuple):
    """Describes one operation of a history."""

    op: int
    f: int
    """Is the index of the operation's name in History.names."""
    proc: int
    part: int
    st: int
    t0: int
    t1: int
    err: int
    """Is the index of the error's name in History.names."""


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
    """Is the log end as it was known when the read began; -1 if the read never reached it."""
    whole: int
    """Is 1 if the read left nothing out between `start` and `reached`."""

    @property
    def complete(self) -> bool:
        """Return whether the read got everything from the log start to the end as it was known when the read began."""
        return bool(self.whole) and 0 <= self.end <= self.reached and self.start <= max(self.log_start, 0)


@dataclass(slots=True)
class ClientProcess:
    """Describes a process of the history in Jepsen's sense: a producer, a reader, or the reader of a final read.
    Several may share an OS process.
    """

    proc: int
    role: str
    client: str
    version: str
    zone: str
    settings: Mapping[str, Any]
    first_t: int = -1
    last_t: int = -1
    """Is when the history last mentions the process, in ns; `first_t` is when it first does. Both are -1 if it never
    does; sends do not count. The process ran at least until `last_t`.
    """

    @property
    def isolation(self) -> int:
        """Return the isolation level: 0 read_uncommitted, 1 read_committed."""
        return 1 if self.settings.get("isolation") in (1, "read_committed") else 0

    @property
    def keeps_reading(self) -> bool:
        """Return whether the process reads whenever there is something to read. A producer that polls inside its
        transactions does not, and an executor of a load reads only what it is given.
        """
        return self.role not in (PRODUCER, EXECUTOR)

    @property
    def request_timeout_ns(self) -> int:
        """Return the time in ns after which its client sends an unanswered request again; 0 if that is not known."""
        timeout_ms = self.settings.get("request_timeout_ms")
        return timeout_ms * 1_000_000 if isinstance(timeout_ms, int) else 0

    @property
    def round(self) -> int:
        """Return the number, from 1, of the round of final reads to which this reader belongs."""
        round_ = self.settings.get("round")
        # `RecordRow.final` is stored in 8 bits.
        return round_ if type(round_) is int and 0 < round_ < 128 else 1


@dataclass(frozen=True, slots=True)
class PositionChange:
    """Records that, at `t`, the reader `proc` was assigned, gave up or moved its position."""

    t: int
    proc: int
    kind: str
    part: int = -1
    position: int = -1


@dataclass(frozen=True, slots=True)
class HistoryProblem:
    """Says why a file could not be read to its end. `line` counts from 1; 0 if the problem concerns the whole file."""

    file: str
    line: int
    why: str
    untrusted: bool = False
    """Is True if the lines before may be damaged as well, at unknown places: then they prove nothing."""

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: {self.why}" if self.line else f"{self.file}: {self.why}"


class IntegerTable:
    """Holds rows of integers, one after the other, in one array: appending is fast and memory stays small.

    `data` may be extended directly, by whole rows. `truncate` removes an interrupted row.
    """

    __slots__ = ("data", "row_type", "width")

    def __init__(self, row_type: Any) -> None:
        self.row_type = row_type
        self.width = len(row_type._fields)
        self.data = array("q")

    def __len__(self) -> int:
        return len(self.data) // self.width

    def append(self, row: tuple[int, ...]) -> None:
        """Add one row. Raises TypeError or OverflowError if a value is no 64-bit integer."""
        assert len(row) == self.width, row
        self.data.extend(row)

    def rows(self) -> Iterator[Any]:
        """Return an iterator over the rows, as `row_type`."""
        # The row type's own constructor would take most of the time of a pass over millions of rows.
        return map(partial(tuple.__new__, self.row_type), zip(*[iter(self.data)] * self.width, strict=True))

    def column(self, name: str) -> array[int]:
        """Return all values of one column."""
        return self.data[self.row_type._fields.index(name) :: self.width]

    def truncate(self, length: int) -> None:
        """Remove all rows after the first `length`, and any unfinished row."""
        del self.data[length * self.width :]


OF_GROUPS = ("holds", "grants", "stills", "commits", "fetches", "outputs")
"""Lists the tables of groups; histories that early versions converted lack them."""
LARGE = ("records", "told", "ops", "thrown", "lookups", "txns", "members", "inits", *OF_GROUPS)
"""Lists the attributes of a history that are an `IntegerTable`."""


@dataclass(slots=True)
class History:
    """Holds a whole history in memory; or, if a converter wrote the large tables to files, the rest of it."""

    run: str = ""
    wall_ms: int = -1
    mono_ns: int = -1
    lines: int = 0
    ends: bool = False
    """Is True if the header says that the recorder writes a last line that counts the others: a history without that
    line was cut.
    """
    torn_bytes: int = 0
    """Is the length of an unfinished last line, which was left out; 0 if there is none."""
    seals: dict[str, int] = field(default_factory=dict)
    """Maps other files of the run to their CRC-32, as the header and the last line have them
    (`squall.checkers.history.seal`).
    """
    problem: HistoryProblem | None = None
    """Says where and why reading stopped early; None if all lines were read. The lines before are a correct history
    that was cut short, unless the problem is `untrusted`.
    """
    names: list[str] = field(default_factory=list)
    """Lists the names of operations, errors, groups and transactional ids, to which other tables refer by index."""
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
    """Counts received records whose payload did not verify."""
    holes: int = 0
    """Counts the places at which a reader passed over offsets: a received record that does not directly follow the
    reader's previous one, and a stretch of offsets without a record (EMPTY_POLL).
    """
    read_inside: int = 0
    """Counts records returned by read_committed polls that were part of a transaction."""
    owned: set[int] = field(default_factory=set)
    """Holds the partitions that a member of a group ever owned."""
    owners: set[int] = field(default_factory=set)
    """Holds the processes that ever owned a partition."""
    resumed: int = 0
    """Counts how often a member began at its group's committed position."""
    group_activities: GroupActivityCounter = field(default_factory=GroupActivityCounter)
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Maps each operation to its outcomes, and each outcome to how often it occurred: {"send": {"ok": 120, "info": 3}}.
    Outcomes are "ok", "fail", "info" and "error NAME".
    """
    declared: int = 0
    """Is the CRC-32 of the lines that declare partitions and topic settings (`seal.declared_seal`)."""

    def process(self, proc: int) -> ClientProcess | None:
        """Return the process with this id; None if there is none."""
        return next((process for process in self.processes if process.proc == proc), None)


def int64(value: Any) -> int:
    """Return the value if it is an integer of 64 bits; raise ValueError if not."""
    if type(value) is not int or value.bit_length() > 63:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
    return value


def offsets_of(by_part: Any) -> dict[int, int]:
    """Return offsets by partition id from a JSON object, which has ids as text: {3: 17} for {"3": 17}."""
    return {int(part): int64(offset) for part, offset in by_part.items()}


def check_integers(values: Iterable[Any]) -> None:
    """Raise ValueError if one of the values is no integer: `true` is 1 to an array, so it would pass there."""
    for value in values:
        if type(value) is not int:
            raise ValueError(f"{value!r} is no whole number")


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """Describes one fault as nemesis.jsonl last reported it. Times are in ns on the run's clock, -1 if the fault did
    not come that far.
    """

    id: int
    action: str
    fault_class: str
    """Is the fault's class as the nemesis reports it, a `FaultClass` such as P for processes or N for the network;
    empty if it does not report one.
    """
    traits: tuple[str, ...]
    """Lists traits that say what the fault does, such as "takes down" or "cuts links" (`squall.checkers.fault_traits`).
    """
    target: str
    resolved: tuple[Any, ...]
    """Lists what the fault hit: node ids, or links as the runtime names them."""
    params: Mapping[str, Any]
    asked: int
    began: int
    ended: int
    evidence: Mapping[str, Any] | None
    error: str
    on: int = -1
    """Is when the fault was on everywhere, which may be some time after `began`; -1 if the nemesis does not report it.
    """

    @property
    def whole_since(self) -> int:
        """Return the time in ns from which on the fault was on for every target; -1 if the fault never began."""
        return max(self.began, self.on)
