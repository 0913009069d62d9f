"""Collects what is known of the transactions of a run: what clients did, what coordinators decided, which markers are
where, and who read the records. Pure.

Every time is in seconds since the load began. Clients' times are in the history; coordinators' and markers' in traces,
or, of brokers that write none, in their logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from squall.reports.story_facts import UNKNOWN, SentRecord

COMMIT, ABORT, NOT_ENDED = "commit", "abort", "none"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PREPARE_COMMIT = "PrepareCommit"
TRACES, LOGS = "traces", "logs"
"""Where decisions and markers are known from."""


@dataclass(frozen=True, slots=True)
class CoordinatorDecision:
    """A change of a transaction's state, as its coordinator appended it."""

    t: float
    node: int
    """-1: not known."""
    id: str
    state: str
    """Ongoing, PrepareCommit, CompleteAbort and so on, as Kafka names them."""
    producer_id: int
    epoch: int
    coordinator_epoch: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TxnMarker:
    """A WriteTxnMarkers that reached the leader of one partition. `offset` -1: refused, or in the log already."""

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
        """commit or abort."""
        return COMMIT if self.commit else ABORT


@dataclass(frozen=True, slots=True)
class ValueRead:
    """A record as a reader got it, with what the same answer said of the partition; -1: not told."""

    t: float
    process: int
    isolation: int
    final: bool
    value: int
    offset: int
    lso: int
    hw: int
    inside: int = -1
    """The operation of the transaction that the poll was part of."""


@dataclass(frozen=True, slots=True)
class ReportedWatermarks:
    """A partition's marks as one answer had them."""

    t: float
    process: int
    isolation: int
    lso: int
    hw: int


@dataclass(frozen=True, slots=True)
class ProducerTakeover:
    """A process was given a transactional id: from then on all earlier ones are fenced."""

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
    """Describes one transaction. `done` None: its client never learned the outcome; `asked` None: it never asked for an
    end.
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
    """What its coordinator did with it, in order."""
    markers: list[TxnMarker] = field(default_factory=list)

    @property
    def partitions(self) -> list[str]:
        """Those it sent to, by name."""
        return sorted({part.partition for part in self.parts})

    @property
    def decisions(self) -> list[CoordinatorDecision]:
        """Return its states Prepare..., in order: more than one where an EndTxn that was meant for another one ended
        it.
        """
        return [each for each in self.states if each.state.startswith("Prepare")]

    @property
    def decision(self) -> CoordinatorDecision | None:
        """Return what its coordinator decided at last."""
        return self.decisions[-1] if self.states and self.decisions else None

    def contradicts(self, marker: TxnMarker) -> bool:
        """Return whether a marker says something that its coordinator never decided."""
        decided = [each.state == PREPARE_COMMIT for each in self.decisions]
        return bool(decided) and not marker.error and marker.commit not in decided

    def first(self, prefix: str) -> CoordinatorDecision | None:
        """Its first state whose name begins so."""
        return next((each for each in self.states if each.state.startswith(prefix)), None)


@dataclass
class TransactionFacts:
    """All of a run. `source`: where decisions and markers are known from; empty where they are not."""

    txns: list[ObservedTxn] = field(default_factory=list)
    reads: dict[int, list[ValueRead]] = field(default_factory=dict)
    """Value -> who got it, in order; only of values that were sent in transactions."""
    told: dict[str, list[ReportedWatermarks]] = field(default_factory=dict)
    """Partition -> what answers said of its marks, in order."""
    taken_over: list[ProducerTakeover] = field(default_factory=list)
    markers: list[TxnMarker] = field(default_factory=list)
    final_readers: set[int] = field(default_factory=set)
    """Processes."""
    source: str = ""
    too_large: bool = False
    """The history is longer than HISTORY_LIMIT: nothing was read."""

    @property
    def known(self) -> bool:
        """Return whether decisions and markers are known."""
        return bool(self.source)

    def ignorance(self, who: str) -> str:
        """Say what cannot be known; empty if there are traces. `who`: whose brokers they were."""
        if self.source == TRACES:
            return ""
        said = f"{who or 'This cluster'} writes no trace"
        if self.source == LOGS:
            told = "decisions and markers are told from its logs, by the brokers' clocks, to the millisecond"
            return f"{said}: {told}; which broker wrote them, and requests that were refused, are not known."
        told = "what coordinators decided and when markers were written is not known"
        return f"{said}, and its logs are not there: {told}. What is told here is what clients and readers saw."

    def of_op(self, op: int) -> ObservedTxn | None:
        """The transaction of that operation."""
        return next((txn for txn in self.txns if txn.op == op), None)

    def offset_of(self, part: TxnRecord) -> int:
        """Return the offset of a record: as its sender learnt, else as a reader got it; -1 if it is not known."""
        if part.sent.offset >= 0:
            return part.sent.offset
        return next((read.offset for read in self.reads.get(part.sent.value, ())), -1)

    def of_value(self, value: int) -> ObservedTxn | None:
        """The transaction that sent it."""
        return next((txn for txn in self.txns if any(part.sent.value == value for part in txn.parts)), None)
