"""What a configuration promises under which faults: the matrix, as data.

A row holds for a configuration, a cell for a class of faults. A cell lists the anomalies that may happen all the same,
each with the reason, and says where that is written. What no cell permits fails the run.

Where records may be lost, what the loss looks like from further away is permitted too (`ACKED_ONLY`, `COMMITTED`): the
offset of a lost record is given to another one. Never among final reads: there, the cluster has converged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from checkers.anomalies.anomaly import Need
from checkers.anomalies.registry import CATALOG
from checkers.history.tables import LATE_END


class FaultClass(StrEnum):
    """What a fault can do to data."""

    P = "P"
    """Processes: kill, pause, restart. What was written to files stays."""
    N = "N"
    """Network: partitions, delay, lost connections."""
    C = "C"
    """Clock skew."""
    W1 = "W1"
    """Power loss of one node at a time: what was not synced may be gone."""
    WM = "WM"
    """Power loss of several nodes before they caught up with each other."""
    D = "D"
    """Disk damage on one replica: bit rot, a lost segment."""
    DM = "DM"
    """Disk damage on a replica while no other was in sync: what it loses nobody else may have."""


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """What matters of how one process used the cluster. acks: -1 is all. flush_messages: None is never."""

    acks: int = -1
    min_isr: int = 1
    replication_factor: int = 1
    idempotence: bool = True
    max_in_flight: int = 5
    unclean: bool = False
    """unclean.leader.election.enable"""
    flush_messages: int | None = None
    isolation: int = 1
    """0 read_uncommitted, 1 read_committed; of readers."""
    transaction_version: int = 0
    """Of producers. 0: no transactions. 1: V1. 2: V2 (KIP-890)."""
    hw_truncation: bool = False
    """Followers truncate to the high watermark, as before KIP-101."""
    marks_of_several_moments: bool = False
    """Fetch answers tell high watermark and last stable offset as each was when it was looked at, before the records
    were: Apache Kafka does, our own broker does not."""
    isr_by_messages: bool = False
    """A follower that lacks more than so many records leaves the ISR, as before KIP-16."""
    unclean_by_request: bool = False
    """Somebody asks for unclean elections while the cluster runs."""
    commits: str = ""
    """How a member of a group commits positions: auto, before or after its outputs are written, or in their
    transaction. Empty: it is no member."""
    requests_doubled: bool = False
    """The network delivers requests twice, which TCP never does."""

    @property
    def effective_min_isr(self) -> int:
        """More than there are replicas cannot be asked for."""
        return min(self.min_isr, self.replication_factor)


@dataclass(frozen=True, slots=True)
class Cell:
    """What may happen under one class of faults, and why: anomaly, or anomaly/evidence, to reason."""

    permits: Mapping[str, str]
    source: str


ALWAYS, ANY = "no fault, P, N or C", "any faults"
"""Faults that a cell is about, where that is not one class."""


GROUP_ROW = "consumer groups"
"""The row that is cited for findings of groups."""
ABOUT_GROUPS = frozenset({Need.MEMBERS, Need.POSITIONS, Need.OUTPUTS})
"""An anomaly that needs one of these in its history is one of groups."""


@dataclass(frozen=True, slots=True)
class CellName:
    """Which cell of the matrix: its row, the faults that it is about, and where what it says is written."""

    row: str
    under: str
    source: str


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of configuration. `always` holds under P, N and C, and where no fault is at all."""

    name: str
    holds: Callable[[RunConfiguration], bool]
    always: Cell
    w1: Cell
    wm: Cell
    d: Cell
    dm: Cell

    def cells(self, classes: Iterable[FaultClass]) -> list[tuple[CellName, Cell]]:
        """Those that apply, each once; the one of the worst faults is the last."""
        by_class = {
            FaultClass.W1: self.w1,
            FaultClass.WM: self.wm,
            FaultClass.D: self.d,
            FaultClass.DM: self.dm,
        }
        same = all(cell is self.always for cell in by_class.values())
        present = () if same else tuple(classes)
        found = [(ANY if same else ALWAYS, self.always)]
        found += [(each.value, cell) for each, cell in by_class.items() if each in present]
        return [(CellName(self.name, under, cell.source), cell) for under, cell in found]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What one process may see."""

    row: str
    permitted: Mapping[str, str]
    """Anomaly, or anomaly/evidence, to reason."""
    sources: tuple[str, ...]
    classes: tuple[str, ...] = ()
    cells: Mapping[str, CellName] = field(default_factory=dict)
    """The cell of each that is permitted."""
    forbids: CellName | None = None
    """The cell that forbids the rest: of the worst faults that landed."""

    def cell_of(self, anomaly: str, evidence: str) -> CellName | None:
        """The cell that permits a finding, or the one that forbids it."""
        permits = self.cells.get(anomaly) or self.cells.get(f"{anomaly}/{evidence}")
        return permits or self._of_groups(anomaly) or self.forbids

    def _of_groups(self, anomaly: str) -> CellName | None:
        """What forbids findings of groups: no row is about them, unless nothing at all is permitted."""
        known = CATALOG.get(anomaly)
        if self.forbids is None or self.forbids == SAFE_EXPECTED or known is None or not ABOUT_GROUPS & {*known.needs}:
            return None
        return CellName(GROUP_ROW, self.forbids.under, known.source)

    def why(self, anomaly: str, evidence: str) -> str | None:
        """The reason why a finding is permitted; None where it is not."""
        found = self.permitted.get(anomaly)
        return found if found is not None else self.permitted.get(f"{anomaly}/{evidence}")


def _shadow(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "this follows from the loss of a record: another record gets its offset")


ACKED_ONLY = _shadow("inconsistent-offset/acks", "stale-ack/acks", "send-reorder/acks")
"""Records may be lost that were acknowledged, but never readable."""
COMMITTED = {
    **ACKED_ONLY,
    **_shadow("inconsistent-offset/reads", "duplicate/reads", "send-reorder/reads", "wrong-offset/reads"),
    **_shadow("offset-regression/high watermark", "offset-regression/last stable offset"),
    **_shadow("thrown-back/log truncated", "thrown-back/offset out of range"),
}
"""Records may be lost that readers got."""


def _loses(reason: str, shadows: Mapping[str, str], source: str, more: Mapping[str, str] | None = None) -> Cell:
    return Cell({"lost-write": reason, "unseen": reason, **shadows, **(more or {})}, source)


_ACKS = "Kafka documentation, producer configuration `acks`"
_MIN_ISR = "Kafka documentation, topic configuration `min.insync.replicas`"
_FLUSH = "Kafka documentation, topic configuration `flush.messages`"
_UNCLEAN = "Kafka documentation, topic configuration `unclean.leader.election.enable`"
_LAST_REPLICA = "KIP-966: Eligible Leader Replicas (the last replica standing)"
_NOTHING = "Kafka documentation, design, Replication: a committed message is not lost while one in-sync replica lives"

_ACKS_0_LOST = "nobody waits for an answer: the record may never have arrived"
_ACKS_0_ORDER = {"send-reorder": "a batch may be lost on the way, and later batches are appended all the same"}
_ACKS_1_LOST = "only the leader had the record, and another replica leads now"
_LAST_LOST = "there may have been one in-sync replica only, and it lost what it had not synced"
_ALL_LOST = "every in-sync replica lost what it had not synced: Kafka relies on replication, not on fsync"
_DAMAGED_LOST = "the damaged replica may have been the only one in sync"
SEGMENT_LOST = "a segment inside the log was lost with its file: readers go on behind it"
"""Why readers may skip records: in a log that lost a file (`fault_classes.logs_with_holes`), and in no other."""
_HOLE = dict.fromkeys(("poll-skip", "int-poll-skip"), SEGMENT_LOST)

_SAFE = Cell({}, _NOTHING)
_SYNCED = Cell({}, _FLUSH)
_ACKS_0 = _loses(_ACKS_0_LOST, ACKED_ONLY, _ACKS, _ACKS_0_ORDER)
_ACKS_0_W = _loses(_ACKS_0_LOST, COMMITTED, _ACKS, _ACKS_0_ORDER)
_ACKS_0_D = _loses(
    _ACKS_0_LOST,
    COMMITTED,
    _ACKS,
    {**_ACKS_0_ORDER, **_HOLE, "corrupt": "the damaged replica leads, and no other has the record"},
)
_ACKS_1 = _loses(_ACKS_1_LOST, ACKED_ONLY, _ACKS)
_ACKS_1_W = _loses(_ACKS_1_LOST, COMMITTED, _ACKS)
_ACKS_1_D = _loses(_ACKS_1_LOST, COMMITTED, _ACKS, _HOLE)
_LAST = _loses(_LAST_LOST, COMMITTED, _LAST_REPLICA)
_DAMAGED = _loses(_DAMAGED_LOST, COMMITTED, _MIN_ISR, _HOLE)
_DAMAGED_LAST = _loses(_DAMAGED_LOST, COMMITTED, _LAST_REPLICA, _HOLE)
_RESTORED = Cell({}, f"{_MIN_ISR}: the damaged replica is caught by its checksums and restored from the others")


def _all(config: RunConfiguration) -> bool:
    return config.acks == -1


BASE: tuple[Row, ...] = (
    Row("acks=0", lambda c: c.acks == 0, _ACKS_0, _ACKS_0_W, _ACKS_0_W, _ACKS_0_D, _ACKS_0_D),
    Row("acks=1", lambda c: c.acks == 1, _ACKS_1, _ACKS_1_W, _ACKS_1_W, _ACKS_1_D, _ACKS_1_D),
    Row(
        "acks=all, min ISR 2 or more, flush.messages=1",
        lambda c: _all(c) and c.effective_min_isr > 1 and c.flush_messages == 1,
        *(_SAFE, _SYNCED, _SYNCED, _RESTORED, _DAMAGED_LAST),
    ),
    Row(
        "acks=all, flush.messages=1",
        lambda c: _all(c) and c.flush_messages == 1,
        *(_SAFE, _SYNCED, _SYNCED, _DAMAGED, _DAMAGED),
    ),
    Row(
        "acks=all, min ISR 2 or more",
        lambda c: _all(c) and c.effective_min_isr > 1,
        *(_SAFE, _SAFE, _loses(_ALL_LOST, COMMITTED, _NOTHING), _RESTORED, _DAMAGED_LAST),
    ),
    Row("acks=all, min ISR 1", _all, _SAFE, _LAST, _LAST, _DAMAGED, _DAMAGED),
)
"""The first one that holds is the configuration's."""


def _added(name: str, holds: Callable[[RunConfiguration], bool], cell: Cell) -> Row:
    return Row(name, holds, cell, cell, cell, cell, cell)


_UNCLEAN_LOST = "a replica that was not in sync may lead: what it lacks is gone"
_SENT_AGAIN = "a send whose answer was lost is sent again, and the broker cannot tell that it has the record already"
_REORDERED = "a batch that failed is sent again after the ones that were in flight with it"
_BEFORE_101 = "a follower that truncates to its high watermark drops what was committed, and keeps what was not"
_SEVERAL_MOMENTS = "the high watermark is looked at first, then the last stable offset, then the log: each may be newer"
_REQUESTED = "somebody asked for a leader that was not in sync: what it lacks is gone"
_DOUBLED = "one copy of a request was refused, and the other one appended a moment later"
_DELAYED_END = (
    "its client asked twice for the end of an earlier transaction, and the first EndTxn may have come late: with "
    "transactions V1 it then ends this one, which has the same epoch"
)

_BY_TIME = "positions are committed by time: the member may have written the output already, or not yet"
_BEFORE = "the member commits a position before it writes the outputs: one that ends in between never writes them"
_AFTER = (
    "the member commits a position after it wrote the outputs: one that ends in between leaves them to be made again"
)
LATE = (
    *("G1a", "dirty-read", "torn-txn", "lost-txn", "G1c"),
    *("lost-position", "uncommitted-offset", "eos-duplicate", "eos-loss"),
)
"""What a late EndTxn may cause."""

ADDED: tuple[Row, ...] = (
    _added(
        "unclean leader election",
        lambda c: c.unclean,
        _loses(
            _UNCLEAN_LOST,
            COMMITTED,
            _UNCLEAN,
            {"wrong-offset": _UNCLEAN_LOST, "offset-regression": _UNCLEAN_LOST},
        ),
    ),
    _added(
        "unclean elections by request",
        lambda c: c.unclean_by_request,
        _loses(
            _REQUESTED,
            COMMITTED,
            "KIP-460: Admin Leader Election RPC",
            {"wrong-offset": _REQUESTED, "offset-regression": _REQUESTED},
        ),
    ),
    _added(
        "requests that arrive twice",
        lambda c: c.requests_doubled,
        Cell({"failed-yet-read": _DOUBLED}, "Kafka protocol guide, network: requests travel over TCP, each once"),
    ),
    _added(
        "idempotence off",
        lambda c: not c.idempotence,
        Cell(
            {"duplicate": _SENT_AGAIN},
            "Kafka documentation, producer configuration `enable.idempotence`; KIP-98",
        ),
    ),
    _added(
        "idempotence off, more than one request in flight",
        lambda c: not c.idempotence and c.max_in_flight > 1,
        Cell(
            {"send-reorder": _REORDERED},
            "Kafka documentation, producer configuration `max.in.flight.requests.per.connection`",
        ),
    ),
    _added(
        "read_uncommitted",
        lambda c: c.isolation == 0,
        Cell(
            dict.fromkeys(("G1a", "dirty-read", "torn-txn"), "read_uncommitted returns what is not committed"),
            "Kafka documentation, consumer configuration `isolation.level`",
        ),
    ),
    _added(
        "transactions V1",
        lambda c: c.transaction_version == 1,
        Cell(
            {f"{name}/{LATE_END}": _DELAYED_END for name in LATE},
            "KAFKA-17754, also in Apache Kafka 4.3; KIP-890 part 2: with V2 each transaction has its own epoch",
        ),
    ),
    _added(
        "auto-commit",
        lambda c: c.commits == "auto",
        Cell(
            dict.fromkeys(("eos-duplicate", "eos-loss"), _BY_TIME),
            "Kafka documentation, consumer configuration `enable.auto.commit`",
        ),
    ),
    _added(
        "positions committed before outputs (at most once)",
        lambda c: c.commits == "before",
        Cell({"eos-loss": _BEFORE}, "Kafka documentation, design, Message Delivery Semantics"),
    ),
    _added(
        "positions committed after outputs (at least once)",
        lambda c: c.commits == "after",
        Cell({"eos-duplicate": _AFTER}, "Kafka documentation, design, Message Delivery Semantics"),
    ),
    _added(
        "positions committed in transactions (exactly once)",
        lambda c: c.commits == "transaction",
        Cell({}, "KIP-98; KIP-447: outputs and positions are committed together"),
    ),
    _added(
        "truncation to the high watermark",
        lambda c: c.hw_truncation,
        _loses(
            _BEFORE_101,
            COMMITTED,
            "KIP-101",
            dict.fromkeys(("inconsistent-offset", "replica-divergence"), _BEFORE_101),
        ),
    ),
    _added(
        "Apache Kafka's fetch answers",
        lambda c: c.marks_of_several_moments,
        Cell(
            {"lso-violation": _SEVERAL_MOMENTS},
            "Apache Kafka 4.3, kafka.cluster.Partition.readRecords: both marks are taken, unlocked, before it reads",
        ),
    ),
    _added(
        "ISR by messages",
        lambda c: c.isr_by_messages,
        Cell(
            dict.fromkeys(("stuck-producer", "not-converged"), "a burst throws every follower out of the ISR"),
            "KIP-16",
        ),
    ),
)
"""Each one that holds permits more."""

LOSS_EXPECTED = _added(
    "a loss is expected (--expect loss)",
    lambda _: False,
    _loses("this run is there to show it", COMMITTED, "the run's plan"),
)

SAFE_EXPECTED = CellName("everything is promised (--expect safe)", ANY, "the run's plan, or --expect safe")

WAITS_FOR_A_MARKER = (
    "the coordinator lost records of epochs: a producer gets an epoch again, partitions that know a newer one refuse "
    "its marker, and until that is written it may begin no other transaction"
)
"""Why a producer may be stuck. It speaks of partitions that transactions write to, and of no others."""
LOST_IN_TRANSACTIONS = {
    **dict.fromkeys(("torn-txn", "lost-txn"), "records of the transaction were lost, or its marker was"),
    **dict.fromkeys(("poll-skip", "int-poll-skip"), "a marker, which no reader gets, stands where a record was lost"),
    **dict.fromkeys(
        ("G1a", "dirty-read", "G1c", "zombie-write"),
        "the coordinator lost records of epochs and decisions: a producer gets an epoch again that wrote before, "
        "and its commits take with them what an earlier transaction of that epoch has left open",
    ),
    "stuck-producer/load": WAITS_FOR_A_MARKER,
}
"""What is permitted too where records of transactions may be lost."""

LEFT_OPEN = dict.fromkeys(
    ("hanging-txn", "stuck-consumer"),
    "the marker of a transaction, or the coordinator's record of it, was lost: nobody ends it any more",
)
"""The same, of those who wait for the last stable offset."""

LEFT_UNSTABLE = {
    "stuck-group": "the marker of a transaction that holds positions, or the coordinator's record of it, was lost: "
    "nobody ends it any more, and until then the group is told no position"
}
"""The same, of groups whose positions are committed in transactions (KIP-447: UNSTABLE_OFFSET_COMMIT)."""

LOST_IN_GROUPS = dict.fromkeys(
    ("lost-position", "commit-ahead", "dual-ownership", "uncommitted-offset", "eos-duplicate"),
    "the coordinator lost records of positions, members or decisions, or the group's input was lost",
)
"""The same, of groups, where records may be lost that readers got."""
LOST_OUTPUT = {"eos-loss": "the output was lost, or the record of its transaction was"}

HALF_LOST = "of two copies of a record, the acknowledged one was lost and the other one stays"
"""Why `wrong-offset` is permitted where loss and duplicates both are."""

EXPECTATIONS = ("config", "safe", "loss")
"""What a run is held to: what its configuration promises; everything; a loss, which must be found."""


def guarantee_for(
    config: RunConfiguration, fault_classes: Iterable[FaultClass | str], expect: str = "config"
) -> Guarantee:
    """What may be found in a run of this configuration whose landed faults are of these classes.

    ValueError for a class or an expectation that does not exist.
    """
    if expect not in EXPECTATIONS:
        raise ValueError(f"expect={expect!r}: one of {', '.join(EXPECTATIONS)}")
    present = tuple(FaultClass(each) for each in fault_classes)
    classes = tuple(each.value for each in FaultClass if each in present)
    if expect == "safe":
        return Guarantee(SAFE_EXPECTED.row, {}, (), classes, forbids=SAFE_EXPECTED)
    base = next(row for row in BASE if row.holds(config))
    rows = [base, *(row for row in ADDED if row.holds(config))]
    if expect == "loss":
        rows.append(LOSS_EXPECTED)
    cells = [each for row in rows for each in row.cells(present)]
    permitted: dict[str, str] = {}
    by: dict[str, CellName] = {}
    for name, cell in cells:
        by.update({each: name for each in cell.permits if each not in permitted})
        permitted.update({each: reason for each, reason in cell.permits.items() if each not in permitted})
    if config.transaction_version and "lost-write" in permitted:
        others = {each: why for each, why in permitted.items() if why != SEGMENT_LOST}
        permitted = {**LOST_IN_TRANSACTIONS, **(LEFT_OPEN if config.isolation == 1 else {}), **others}
    if config.commits and "lost-write" in permitted:
        followed = {**LOST_OUTPUT, **(LOST_IN_GROUPS if "duplicate/reads" in permitted else {})}
        if config.commits == "transaction":
            followed |= LEFT_UNSTABLE
        permitted = {**followed, **permitted}
    if {"lost-write", "duplicate"} <= permitted.keys():
        permitted.setdefault("wrong-offset", HALF_LOST)
    # What follows from a loss is permitted by the cell that permits the loss.
    by = {each: by.get(each) or by["lost-write"] for each in permitted}
    sources = dict.fromkeys(name.source for name, _ in cells)
    forbids = base.cells(present)[-1][0]
    return Guarantee("; ".join(row.name for row in rows), permitted, tuple(sources), classes, by, forbids)


def anybody(guarantees: Iterable[Guarantee]) -> Guarantee:
    """For what is nobody's in particular: all that is permitted to somebody."""
    permitted: dict[str, str] = {}
    rows: dict[str, None] = {}
    sources: dict[str, None] = {}
    classes: tuple[str, ...] = ()
    cells: dict[str, CellName] = {}
    forbids = None
    for each in guarantees:
        permitted, cells = {**each.permitted, **permitted}, {**each.cells, **cells}
        forbids = forbids or each.forbids
        rows[each.row] = None
        sources.update(dict.fromkeys(each.sources))
        classes = each.classes
    return Guarantee(" / ".join(rows), permitted, tuple(sources), classes, cells, forbids)


def check_matrix() -> None:
    """Every permitted name is in the catalogue. AssertionError where one is not."""
    for row in (*BASE, *ADDED, LOSS_EXPECTED):
        for cell in (row.always, row.w1, row.wm, row.d, row.dm):
            assert cell.source, row.name
            for name in cell.permits:
                assert name.partition("/")[0] in CATALOG, f"{row.name}: {name}"
