"""The tables that a history becomes: what the finders, slow and fast, read.

Everything is an integer, because that is what makes both Python and Spark quick. Times are nanoseconds on the run's
one monotonic clock. -1 stands for "not known" everywhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SCHEMA = 1
"""Of the Parquet files and of conversion.json."""

SEND, POLL, EMPTY_POLL, LISTED = 0, 1, 2, 3
"""Record.kind (the first three) and Told.kind (the last three)."""
OK, FAIL, INFO = 0, 1, 2
"""Final status of an operation: done; definitely not done; may have been done. No completion is INFO."""
NOT_A_READER = 2
"""Record.iso of a send. 0 is read_uncommitted, 1 is read_committed."""
SEQUENCE_BITS = 40
"""A value is `process << 40 | sequence`."""


class Record(NamedTuple):
    """One record handed over or received, or one partition of which a poll returned nothing."""

    kind: int
    st: int
    proc: int
    part: int
    op: int
    idx: int
    """Position inside the operation."""
    off: int
    """Offset; of an empty poll the position."""
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
    key: int
    """Dense id of the key of a send to a compacted partition, else -1."""


class Told(NamedTuple):
    """What one answer said of a partition, beside its records."""

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
    t0: int
    t1: int


class Op(NamedTuple):
    """One operation."""

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


class FinalRead(NamedTuple):
    """How far one fresh reader came in one partition."""

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
class Partition:
    """A partition, and which part of it the final reads allow to judge."""

    part: int
    topic: str
    index: int
    cleanup: str
    retention_ms: int
    deletable: bool
    """Retention or a delete-records request may remove records from its beginning."""
    log_start: int = -1
    """Highest log start that any answer told."""
    cover_from: int = -1
    cover_to: int = -1
    """[cover_from, cover_to): what one final reader went through without a gap."""
    cover_t0: int = -1
    """When the last complete final read began: what was acknowledged before then must be in it. -1: there is none."""

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.topic}-{self.index}"

    @property
    def compacted(self) -> bool:
        """Records may go once a later one has their key."""
        return "compact" in self.cleanup

    @property
    def judged_from(self) -> int:
        """Below this offset nothing counts as lost: it was removed, as configured."""
        return max(self.log_start, 0) if self.deletable else 0


@dataclass(frozen=True, slots=True)
class Process:
    """A logical process: a producer, a reader, or the reader of a final read."""

    proc: int
    role: str
    client: str
    version: str
    zone: str
    settings: Mapping[str, Any]

    @property
    def isolation(self) -> int:
        """0 read_uncommitted, 1 read_committed."""
        return 1 if self.settings.get("isolation") in (1, "read_committed") else 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A reader was given, gave up or moved its position: at `t` by process `proc`."""

    t: int
    proc: int
    kind: str
    part: int = -1
    position: int = -1


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an input could not be read to its end. `line` counts from 1; 0 where it is about the whole file."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: {self.why}" if self.line else f"{self.file}: {self.why}"


class Table:
    """Columns of integers, all of one length. Rows are whole: an interrupted one is cut off by `truncate`."""

    __slots__ = ("columns", "row_type")

    BYTES = frozenset(("kind", "st", "iso", "final", "whole"))
    INTS = frozenset(("proc", "part", "idx", "seg", "key", "epoch", "f", "err", "records", "round"))

    def __init__(self, row_type: Any) -> None:
        self.row_type = row_type
        codes = {name: "b" if name in self.BYTES else "i" if name in self.INTS else "q" for name in row_type._fields}
        self.columns: dict[str, array[int]] = {name: array(code) for name, code in codes.items()}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def append(self, row: tuple[int, ...]) -> None:
        """Add one row. TypeError or OverflowError where a value does not fit."""
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)

    def rows(self) -> Iterator[Any]:
        """The rows, as `row_type`."""
        return map(self.row_type._make, zip(*self.columns.values(), strict=True))

    def truncate(self, length: int) -> None:
        """Drop what was added after the table had `length` rows."""
        for column in self.columns.values():
            del column[length:]


@dataclass(slots=True)
class History:
    """A whole history in memory, or, where a converter wrote the large tables out meanwhile, what is left of it."""

    run: str = ""
    wall_ms: int = -1
    mono_ns: int = -1
    lines: int = 0
    torn_bytes: int = 0
    """Length of an unfinished last line, which was left out."""
    problem: Problem | None = None
    """Why reading stopped early. What stands before that line is a sound history: it is one cut short."""
    names: list[str] = field(default_factory=list)
    """Of operations and errors, by Op.f and Op.err."""
    partitions: list[Partition] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    finals: list[FinalRead] = field(default_factory=list)
    records: Table = field(default_factory=lambda: Table(Record))
    told: Table = field(default_factory=lambda: Table(Told))
    ops: Table = field(default_factory=lambda: Table(Op))
    corrupt: int = 0
    """Received records whose payload did not verify."""
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Operation -> "ok" | "fail" | "info" | "error NAME" -> how many."""

    def process(self, proc: int) -> Process | None:
        """The process of that id."""
        return next((process for process in self.processes if process.proc == proc), None)


def producer_of(value: int) -> int:
    """The process that a value belongs to."""
    return value >> SEQUENCE_BITS


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as nemesis.jsonl last told of it. Times in ns on the run's clock, -1 where it never came to that."""

    id: int
    action: str
    target: str
    resolved: tuple[Any, ...]
    """What it hit: node ids, or links as the runtime names them."""
    params: Mapping[str, Any]
    asked: int
    began: int
    ended: int
    evidence: Mapping[str, Any] | None
    error: str
