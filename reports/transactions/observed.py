"""Holds the known facts about a run's transactions: actions of clients, decisions of coordinators, markers, and reads
of the records. Pure.

Every time is in seconds since the load began. Clients' times come from the history; coordinators' and markers' times
come from traces, or from the logs of brokers that write no traces.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.reports.story_facts import UNKNOWN, SentRecord

COMMIT, ABORT, NOT_ENDED = "commit", "abort", "none"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PREPARE_COMMIT = "PrepareCommit"
TRACES, LOGS = "traces", "logs"
"""Decisions and markers come from the brokers' traces; if brokers write no traces (Apache Kafka), from their logs on
disk.
"""


@dataclass(frozen=True, slots=True)
class CoordinatorDecision:
    """Describes a change of a transaction's state, as its coordinator appended it."""

    t: float
    node: int
    """Is the coordinator's broker id; -1 if it is not known."""
    id: str
    state: str
    """Is Kafka's name of the state: Ongoing, PrepareCommit, CompleteAbort and so on."""
    producer_id: int
    epoch: int
    coordinator_epoch: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObservedTxnMarker:
    """Describes a WriteTxnMarkers that reached the leader of one partition. `offset` is -1 if the marker was refused,
    or in the log already.
    """

    t: float
    node: int
    partition: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    offset: int
    error: int

    @property
    def word(self) -> str:
        """Returns commit or abort."""
        return COMMIT if self.commit else ABORT


@dataclass(frozen=True, slots=True)
class ValueRead:
    """Describes a record as a reader got it, with the watermarks in the same answer; -1 if they are not known."""

    t: float
    process: int
    isolation: int
    final: bool
    value: int
    offset: int
    lso: int
    hw: int
    inside: int = -1
    """Is the operation of the transaction that the poll was part of; -1 for none."""


@dataclass(frozen=True, slots=True)
class ReportedWatermarks:
    """Holds a partition's last stable offset and high watermark in one answer to a reader."""

    t: float
    process: int
    isolation: int
    lso: int
    hw: int


@dataclass(frozen=True, slots=True)
class ProducerTakeover:
    """Reports that a process initialised a transactional id, which fences all earlier producers of the id."""

    asked: float
    t: float
    process: int
    id: str
    producer_id: int
    epoch: int


@dataclass(slots=True)
class TxnRecord:
    """Describes one record of a transaction, and its partition."""

    sent: SentRecord
    partition: str


@dataclass
class ObservedTxn:
    """Describes one transaction. `done` is None if its client never learned the outcome, `asked` is None if the client
    never asked for an end.
    """

    op: int
    process: int
    id: str
    began: float
    timeout_s: float
    asked: float | None = None
    how: str = NOT_ENDED
    done: float | None = None
    state: str = UNKNOWN
    error: str = ""
    producer_id: int = -1
    epoch: int = -1
    parts: list[TxnRecord] = field(default_factory=list)
    states: list[CoordinatorDecision] = field(default_factory=list)
    """Lists the states that the coordinator gave the transaction, in order."""
    markers: list[ObservedTxnMarker] = field(default_factory=list)

    @property
    def partitions(self) -> list[str]:
        """Returns the partitions to which it sent records, by name."""
        return sorted({part.partition for part in self.parts})

    @property
    def decisions(self) -> list[CoordinatorDecision]:
        """Returns its states Prepare..., in order. There are several if an EndTxn that was meant for another
        transaction ended it.
        """
        return [each for each in self.states if each.state.startswith("Prepare")]

    @property
    def decision(self) -> CoordinatorDecision | None:
        """Returns the coordinator's last decision; None if there is none."""
        return self.decisions[-1] if self.states and self.decisions else None

    def contradicts(self, marker: ObservedTxnMarker) -> bool:
        """Return whether a marker has an outcome that its coordinator never decided."""
        decided = [each.state == PREPARE_COMMIT for each in self.decisions]
        return bool(decided) and not marker.error and marker.commit not in decided

    def first(self, prefix: str) -> CoordinatorDecision | None:
        """Return its first state whose name begins with `prefix`; None if there is none."""
        return next((each for each in self.states if each.state.startswith(prefix)), None)


@dataclass
class TransactionFacts:
    """Holds all transactions of a run. `source` is the source of decisions and markers; empty if they are not known."""

    txns: list[ObservedTxn] = field(default_factory=list)
    reads: dict[int, list[ValueRead]] = field(default_factory=dict)
    """Maps a value that was sent in a transaction to its reads, in order."""
    watermarks: dict[str, list[ReportedWatermarks]] = field(default_factory=dict)
    """Maps a partition to its watermarks in readers' answers, in order."""
    taken_over: list[ProducerTakeover] = field(default_factory=list)
    markers: list[ObservedTxnMarker] = field(default_factory=list)
    final_readers: set[int] = field(default_factory=set)
    """Holds the processes of final readers."""
    source: str = ""
    too_large: bool = False
    """Is True if the history is longer than HISTORY_LIMIT, so that nothing was read."""

    @property
    def known(self) -> bool:
        """Is True if decisions and markers are known."""
        return bool(self.source)

    def ignorance(self, who: str) -> str:
        """Say what is not known because the brokers write no traces; empty if they write them. `who` names the brokers'
        program, such as "Apache Kafka"; empty for Squall's own.
        """
        if self.source == TRACES:
            return ""
        said = f"{who or 'This cluster'} writes no trace"
        if self.source == LOGS:
            told = "decisions and markers are told from its logs, by the brokers' clocks, to the millisecond"
            return f"{said}: {told}; which broker wrote them, and requests that were refused, are not known."
        told = "what coordinators decided and when markers were written is not known"
        return f"{said}, and its logs are not there: {told}. What is told here is what clients and readers saw."

    def of_op(self, op: int) -> ObservedTxn | None:
        """Return the transaction of that operation; None if there is none."""
        return next((txn for txn in self.txns if txn.op == op), None)

    def offset_of(self, part: TxnRecord) -> int:
        """Return the offset of a record: as its sender learned, else as a reader got it; -1 if it is not known."""
        if part.sent.offset >= 0:
            return part.sent.offset
        return next((read.offset for read in self.reads.get(part.sent.value, ())), -1)

    def of_value(self, value: int) -> ObservedTxn | None:
        """Return the transaction that sent the value; None if there is none."""
        return next((txn for txn in self.txns if any(part.sent.value == value for part in txn.parts)), None)
