"""Defines what a configuration guarantees under which faults, as data: the guarantee matrix.

A row of the guarantee matrix holds for a configuration, and a cell of the row for a class of faults. A cell lists the
anomalies that may happen all the same, each with its reason, and says where that is written. An anomaly that no cell
permits fails the run. So does a permitted one whose mechanism did not happen (`reasons.mechanism_of`), because then the
reason explains nothing.

If records may be lost, the consequences of a loss are permitted too (`ACKED_ONLY`, `COMMITTED`), for example that the
offset of a lost record is given to another record. They are never permitted among final reads, because the cluster has
converged by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from squall.checkers import promises, reasons
from squall.checkers.anomalies.registry import CATALOG, LOSS
from squall.checkers.history.tables import LATE_END
from squall.checkers.promises import IDEMPOTENCE, ONE_IN_FLIGHT


class FaultClass(StrEnum):
    """Classifies faults by what they can do to data."""

    P = "P"
    """Covers faults of processes: kill, pause, restart. Data that was written to files stays."""
    N = "N"
    """Covers faults of the network: partitions, delay, lost connections."""
    C = "C"
    """Covers clock skew."""
    W1 = "W1"
    """Covers a power loss of one node at a time: data that was not synced may be lost."""
    WM = "WM"
    """Covers a power loss of several nodes before they have caught up with each other."""
    D = "D"
    """Covers disk damage on one replica: bit rot, a lost segment."""
    DM = "DM"
    """Covers disk damage on a replica while no other replica was in sync: no other replica may have the lost data."""


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """Holds the settings of one client process and its cluster on which guarantees depend. In `acks`, -1 means all; in
    `flush_messages`, None means never.
    """

    acks: int = -1
    min_isr: int = 1
    replication_factor: int = 1
    idempotence: bool = True
    max_in_flight: int = 5
    unclean: bool = False
    """Is the setting unclean.leader.election.enable."""
    flush_messages: int | None = None
    isolation: int = 1
    """Is a reader's isolation level: 0 read_uncommitted, 1 read_committed."""
    transaction_version: int = 0
    """Is a producer's version of transactions: 0 none, 1 V1, 2 V2 (KIP-890)."""
    hw_truncation: bool = False
    """Is True if followers truncate to the high watermark, as before KIP-101."""
    foreign_brokers: bool = False
    """Is True if the brokers are not Squall's. Apache Kafka may read a Fetch response's high watermark, last stable
    offset and records at different times, so they may contradict each other. After disk damage it may serve bad
    records.
    """
    isr_by_messages: bool = False
    """Is True if a follower more than `replica.lag.max.messages` records behind leaves the ISR, as before KIP-16."""
    unclean_by_request: bool = False
    """Is True if an administrator requests unclean elections while the cluster runs."""
    commits: str = ""
    """Says how a member of a group commits positions: "auto", "before" or "after" its outputs are written, or in their
    "transaction"; empty if the process is no member.
    """
    requests_doubled: bool = False
    """Is True if the network delivers requests twice, which TCP never does."""

    @property
    def effective_min_isr(self) -> int:
        """Return min.insync.replicas, but at most the number of replicas."""
        return min(self.min_isr, self.replication_factor)


@dataclass(frozen=True, slots=True)
class PermissionCell:
    """Lists what may happen under one class of faults: it maps an anomaly, or anomaly/evidence, to the reason."""

    permits: Mapping[str, str]
    source: str


NO_FAULT, ALWAYS, ANY = "no fault", "P, N or C", "any faults"
"""Name the faults that a cell of the guarantee matrix covers, for cells that are not about a single class."""


@dataclass(frozen=True, slots=True)
class PermissionCellName:
    """Refers to a cell of the guarantee matrix; or to a promise, and then `row` is its name, such as "transactions"."""

    row: str
    under: str
    source: str


@dataclass(frozen=True, slots=True)
class GuaranteeRow:
    """Describes one row of the guarantee matrix: a kind of configuration, and for each class of faults a cell that
    lists what is permitted. `always` applies without faults, and to faults of processes, network and clocks.
    """

    name: str
    holds: Callable[[RunConfiguration], bool]
    always: PermissionCell
    w1: PermissionCell
    wm: PermissionCell
    d: PermissionCell
    dm: PermissionCell

    def cells(self, classes: Iterable[FaultClass]) -> list[tuple[PermissionCellName, PermissionCell]]:
        """Return (name, cell) of the row's cells that apply under these fault classes; the worst class comes last."""
        by_class = {
            FaultClass.W1: self.w1,
            FaultClass.WM: self.wm,
            FaultClass.D: self.d,
            FaultClass.DM: self.dm,
        }
        same = all(cell is self.always for cell in by_class.values())
        classes = tuple(classes)
        present = () if same else classes
        found = [(NO_FAULT if not classes else ANY if same else ALWAYS, self.always)]
        found += [(each.value, cell) for each, cell in by_class.items() if each in present]
        return [(PermissionCellName(self.name, under, cell.source), cell) for under, cell in found]


@dataclass(frozen=True, slots=True)
class PermittedAnomalies:
    """Lists the anomalies that the guarantees permit to one client process in a run, each with its reasons and with the
    cell of the guarantee matrix that permits it.
    """

    row: str
    permitted: Mapping[str, str]
    """Maps each permitted anomaly, or anomaly/evidence such as "stale-ack/acks", to the first reason for it."""
    sources: tuple[str, ...]
    classes: tuple[str, ...] = ()
    cells: Mapping[str, PermissionCellName] = field(default_factory=dict)
    """Maps each permitted anomaly to the first cell of the guarantee matrix that permits it."""
    ways: Mapping[str, tuple[tuple[str, PermissionCellName], ...]] = field(default_factory=dict)
    """Maps each permitted anomaly to all (reason, cell of the matrix) that permit it; `permitted` and `cells` have only
    the first. A reason applies only if its mechanism happened (`reasons.mechanism_of`).
    """
    forbids: PermissionCellName | None = None
    """Is the cell of the guarantee matrix that forbids a loss under the run's worst faults; None if it is not known."""
    order: str = IDEMPOTENCE
    """Is the setting that guarantees the order of a producer's records, a key of `promises.ORDER`."""

    def cell_of(self, anomaly: str, evidence: str) -> PermissionCellName | None:
        """Return the cell of the guarantee matrix that permits a finding. If none does, return the promise that the
        finding breaks; for a loss, return the cell that forbids it.
        """
        permits = self.cells.get(anomaly) or self.cells.get(f"{anomaly}/{evidence}")
        return permits or self._promise(anomaly)

    def _promise(self, anomaly: str) -> PermissionCellName | None:
        """Return the promise that an anomaly breaks (`promises.broken_by`). Return `forbids` for a loss, and for every
        anomaly if the run is held to "safe" (EXPECTATIONS).
        """
        if self.forbids is None or self.forbids == SAFE_EXPECTED or anomaly not in CATALOG or anomaly in LOSS:
            return self.forbids
        row, source = promises.broken_by(CATALOG[anomaly], self.order)
        return PermissionCellName(row, self.forbids.under, source)

    def ways_of(self, anomaly: str, evidence: str) -> tuple[tuple[str, PermissionCellName], ...]:
        """Return each (reason, cell of the matrix) that permits an anomaly with this evidence. Pairs for this evidence
        alone come before those for any evidence. A reason applies only if its mechanism happened.
        """
        of_evidence = self.ways.get(f"{anomaly}/{evidence}", ()) if evidence else ()
        return (*of_evidence, *self.ways.get(anomaly, ()))


def _shadow(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, reasons.FOLLOWS)


ACKED_ONLY = dict.fromkeys(("inconsistent-offset/acks", "stale-ack/acks", "send-reorder/acks"), reasons.REPLACED)
"""Maps each consequence of losing records that were acknowledged but never readable to the reason that permits it."""
COMMITTED = {
    **ACKED_ONLY,
    **_shadow("inconsistent-offset/reads", "duplicate/reads", "send-reorder/reads", "wrong-offset/reads"),
    **_shadow("offset-regression/high watermark", "offset-regression/last stable offset"),
    **_shadow("thrown-back/log truncated", "thrown-back/offset out of range"),
}
"""Maps each consequence of losing records that readers got to the reason that permits it."""


def _loses(
    reason: str, shadows: Mapping[str, str], source: str, more: Mapping[str, str] | None = None
) -> PermissionCell:
    return PermissionCell({"lost-write": reason, "unseen": reason, **shadows, **(more or {})}, source)


_ACKS = "Kafka documentation, producer configuration `acks`"
_MIN_ISR = "Kafka documentation, topic configuration `min.insync.replicas`"
_FLUSH = "Kafka documentation, topic configuration `flush.messages`"
_UNCLEAN = "Kafka documentation, topic configuration `unclean.leader.election.enable`"
_LAST_REPLICA = "KIP-966: Eligible Leader Replicas (the last replica standing)"
_NOTHING = "Kafka documentation, design, Replication: a committed message is not lost while one in-sync replica lives"

_ACKS_0_ORDER = {"send-reorder": reasons.ACKS_0_ORDER}
_HOLE = dict.fromkeys(("poll-skip", "int-poll-skip"), reasons.SEGMENT_LOST)

_SAFE = PermissionCell({}, _NOTHING)
_SYNCED = PermissionCell({}, _FLUSH)
_ACKS_0 = _loses(reasons.ACKS_0_LOST, ACKED_ONLY, _ACKS, _ACKS_0_ORDER)
_ACKS_0_W = _loses(reasons.ACKS_0_LOST, COMMITTED, _ACKS, _ACKS_0_ORDER)
_ACKS_0_D = _loses(
    reasons.DAMAGED_ALONE,
    COMMITTED,
    _ACKS,
    {**_ACKS_0_ORDER, **_HOLE, **dict.fromkeys(("corrupt", "wrong-lookup"), reasons.ACKS_0_CORRUPT)},
)
_ACKS_1 = _loses(reasons.ACKS_1_LOST, ACKED_ONLY, _ACKS)
_ACKS_1_W = _loses(reasons.ACKS_1_LOST, COMMITTED, _ACKS)
_ACKS_1_D = _loses(reasons.DAMAGED_ALONE, COMMITTED, _ACKS, _HOLE)
_LAST = _loses(reasons.LAST_LOST, COMMITTED, _LAST_REPLICA)
_DAMAGED = _loses(reasons.DAMAGED_LOST, COMMITTED, _MIN_ISR, _HOLE)
_DAMAGED_LAST = _loses(reasons.DAMAGED_LOST, COMMITTED, _LAST_REPLICA, _HOLE)
_RESTORED = PermissionCell(
    {}, f"{_MIN_ISR}: the damaged replica is caught by its checksums and restored from the others"
)


def _all(config: RunConfiguration) -> bool:
    return config.acks == -1


BASE: tuple[GuaranteeRow, ...] = (
    GuaranteeRow("acks=0", lambda c: c.acks == 0, _ACKS_0, _ACKS_0_W, _ACKS_0_W, _ACKS_0_D, _ACKS_0_D),
    GuaranteeRow("acks=1", lambda c: c.acks == 1, _ACKS_1, _ACKS_1_W, _ACKS_1_W, _ACKS_1_D, _ACKS_1_D),
    GuaranteeRow(
        "acks=all, min ISR 2 or more, flush.messages=1",
        lambda c: _all(c) and c.effective_min_isr > 1 and c.flush_messages == 1,
        *(_SAFE, _SYNCED, _SYNCED, _RESTORED, _DAMAGED_LAST),
    ),
    GuaranteeRow(
        "acks=all, flush.messages=1",
        lambda c: _all(c) and c.flush_messages == 1,
        *(_SAFE, _SYNCED, _SYNCED, _DAMAGED, _DAMAGED),
    ),
    GuaranteeRow(
        "acks=all, min ISR 2 or more",
        lambda c: _all(c) and c.effective_min_isr > 1,
        *(_SAFE, _SAFE, _loses(reasons.ALL_LOST, COMMITTED, _NOTHING), _RESTORED, _DAMAGED_LAST),
    ),
    GuaranteeRow("acks=all, min ISR 1", _all, _SAFE, _LAST, _LAST, _DAMAGED, _DAMAGED),
)
"""Lists the base rows of the guarantee matrix; the first that holds for a configuration is its row."""


def _added(name: str, holds: Callable[[RunConfiguration], bool], cell: PermissionCell) -> GuaranteeRow:
    return GuaranteeRow(name, holds, cell, cell, cell, cell, cell)


LATE = (
    *("G1a", "dirty-read", "torn-txn", "lost-txn", "G1c"),
    *("lost-position", "uncommitted-offset", "eos-duplicate", "eos-loss"),
)
"""Names the anomalies that a late EndTxn may cause: one that was sent for an earlier transaction (`LATE_END`)."""

_MARKS = PermissionCell(
    {"lso-violation": reasons.SEVERAL_MOMENTS},
    "Apache Kafka 4.3, kafka.cluster.Partition.readRecords: both marks are taken, unlocked, before it reads",
)
_UNREADABLE = ("lost-write", "unseen", "corrupt", "wrong-lookup", "stuck-consumer", "stuck-group", "not-converged")
_SERVED = PermissionCell(
    {"lso-violation": reasons.SEVERAL_MOMENTS, **dict.fromkeys(_UNREADABLE, reasons.SERVED_DAMAGED)},
    "measured with Apache Kafka 4.3; LogLoader.recoverLog; AbstractFetcherThread, where a follower asks for a damaged "
    "batch again and again; KIP-966, by default since 4.1: an unclean shutdown ends a replica's eligibility",
)
ADDED: tuple[GuaranteeRow, ...] = (
    _added(
        "unclean leader election",
        lambda c: c.unclean,
        _loses(
            reasons.UNCLEAN_LOST,
            COMMITTED,
            _UNCLEAN,
            {"wrong-offset": reasons.UNCLEAN_LOST, "offset-regression": reasons.UNCLEAN_LOST},
        ),
    ),
    _added(
        "unclean elections by request",
        lambda c: c.unclean_by_request,
        _loses(
            reasons.REQUESTED,
            COMMITTED,
            "KIP-460: Admin Leader Election RPC",
            {"wrong-offset": reasons.REQUESTED, "offset-regression": reasons.REQUESTED},
        ),
    ),
    _added(
        "requests that arrive twice",
        lambda c: c.requests_doubled,
        PermissionCell(
            {"failed-yet-read": reasons.DOUBLED}, "Kafka protocol guide, network: each request travels over TCP once"
        ),
    ),
    _added(
        "idempotence off",
        lambda c: not c.idempotence,
        PermissionCell(
            {"duplicate": reasons.SENT_AGAIN},
            "Kafka documentation, producer configuration `enable.idempotence`; KIP-98",
        ),
    ),
    _added(
        "idempotence off, more than one request in flight",
        lambda c: not c.idempotence and c.max_in_flight > 1,
        PermissionCell(
            {"send-reorder": reasons.REORDERED},
            "Kafka documentation, producer configuration `max.in.flight.requests.per.connection`",
        ),
    ),
    _added(
        "read_uncommitted",
        lambda c: c.isolation == 0,
        PermissionCell(
            dict.fromkeys(("G1a", "dirty-read", "torn-txn"), reasons.UNCOMMITTED),
            "Kafka documentation, consumer configuration `isolation.level`",
        ),
    ),
    _added(
        "transactions V1",
        lambda c: c.transaction_version == 1,
        PermissionCell(
            {f"{name}/{LATE_END}": reasons.DELAYED_END for name in LATE},
            "KAFKA-17754, also in Apache Kafka 4.3; KIP-890 part 2: with V2 each transaction has its own epoch",
        ),
    ),
    _added(
        "auto-commit",
        lambda c: c.commits == "auto",
        PermissionCell(
            {"eos-duplicate": reasons.BY_TIME_BEHIND, "eos-loss": reasons.BY_TIME_AHEAD},
            "Kafka documentation, consumer configuration `enable.auto.commit`; librdkafka, `enable.auto.offset.store`",
        ),
    ),
    _added(
        "positions committed before outputs (at most once)",
        lambda c: c.commits == "before",
        PermissionCell({"eos-loss": reasons.BEFORE}, "Kafka documentation, design, Message Delivery Semantics"),
    ),
    _added(
        "positions committed after outputs (at least once)",
        lambda c: c.commits == "after",
        PermissionCell({"eos-duplicate": reasons.AFTER}, "Kafka documentation, design, Message Delivery Semantics"),
    ),
    _added(
        "positions committed in transactions (exactly once)",
        lambda c: c.commits == "transaction",
        PermissionCell({}, "KIP-98; KIP-447: outputs and positions are committed together"),
    ),
    _added(
        "truncation to the high watermark",
        lambda c: c.hw_truncation,
        _loses(
            reasons.BEFORE_101,
            COMMITTED,
            "KIP-101",
            dict.fromkeys(("inconsistent-offset", "replica-divergence"), reasons.BEFORE_101),
        ),
    ),
    GuaranteeRow(
        "Apache Kafka's fetch answers",
        lambda c: c.foreign_brokers,
        *(_MARKS, _MARKS, _MARKS, _SERVED, _SERVED),
    ),
    _added(
        "ISR by messages",
        lambda c: c.isr_by_messages,
        PermissionCell(
            dict.fromkeys(("stuck-producer", "not-converged"), reasons.BURST),
            "KIP-16",
        ),
    ),
)
"""Lists the rows that a configuration may have besides its base row. Each one that holds permits further anomalies."""

LOSS_EXPECTED = _added(
    "a loss is expected (--expect loss)",
    lambda _: False,
    _loses(reasons.LOSS_IS_SHOWN, COMMITTED, "the run's plan"),
)

SAFE_EXPECTED = PermissionCellName("--expect safe permits no anomaly", ANY, "the run's plan, or --expect safe")

EXPECTATIONS = ("config", "safe", "loss")
"""Lists what a run may be held to: "config", what its configuration guarantees; "safe", no anomaly at all; "loss", a
loss that must be found.
"""


def guarantee_for(
    config: RunConfiguration, fault_classes: Iterable[FaultClass | str], expect: str = "config"
) -> PermittedAnomalies:
    """Return the anomalies permitted to a client process with this configuration in a run with these classes of faults.

    `expect` may be "safe" to permit no anomaly, or "loss" to permit losses too (EXPECTATIONS). Raises ValueError if it
    has another value than those of EXPECTATIONS, or if a class does not exist.
    """
    if expect not in EXPECTATIONS:
        raise ValueError(f"expect={expect!r}: one of {', '.join(EXPECTATIONS)}")
    present = tuple(FaultClass(each) for each in fault_classes)
    classes = tuple(each.value for each in FaultClass if each in present)
    if expect == "safe":
        return PermittedAnomalies(SAFE_EXPECTED.row, {}, (), classes, forbids=SAFE_EXPECTED)
    base = next(row for row in BASE if row.holds(config))
    rows = [base, *(row for row in ADDED if row.holds(config))]
    if expect == "loss":
        rows.append(LOSS_EXPECTED)
    cells = [each for row in rows for each in row.cells(present)]
    ways: dict[str, dict[str, PermissionCellName]] = {}
    for name, cell in cells:
        for each, reason in cell.permits.items():
            ways.setdefault(each, {}).setdefault(reason, name)
    if "lost-write" in ways:
        # The cell that permits a loss also permits the loss's consequences.
        by = next(iter(ways["lost-write"].values()))
        for each, reason in _consequences_of_loss(config, ways).items():
            ways.setdefault(each, {}).setdefault(reason, by)
    sources = dict.fromkeys(name.source for name, _ in cells)
    return PermittedAnomalies(
        "; ".join(row.name for row in rows),
        {each: next(iter(found)) for each, found in ways.items()},
        tuple(sources),
        classes,
        {each: next(iter(found.values())) for each, found in ways.items()},
        {each: tuple(found.items()) for each, found in ways.items()},
        base.cells(present)[-1][0],
        IDEMPOTENCE if config.idempotence else ONE_IN_FLIGHT,
    )


def _consequences_of_loss(config: RunConfiguration, permitted: Iterable[str]) -> dict[str, str]:
    """Return the anomalies that a permitted loss permits too, with their reasons: some for clients with transactions,
    some for members of groups, and wrong-offset if a record may have two copies, of which one was lost.
    """
    found: dict[str, str] = {}
    if config.transaction_version:
        found |= reasons.LOST_IN_TRANSACTIONS | (reasons.LEFT_OPEN if config.isolation == 1 else {})
    if config.commits:
        # `duplicate/reads` is permitted only if records that readers got may be lost.
        found |= reasons.LOST_OUTPUT | (reasons.LOST_IN_GROUPS if "duplicate/reads" in permitted else {})
        if config.commits == "transaction":
            found |= reasons.LEFT_UNSTABLE
    if "duplicate" in permitted:
        found["wrong-offset"] = reasons.HALF_LOST
    return found


def union_of(guarantees: Iterable[PermittedAnomalies]) -> PermittedAnomalies:
    """Return a guarantee that permits whatever one of these guarantees permits, for findings that belong to no single
    process.
    """
    ways: dict[str, dict[str, PermissionCellName]] = {}
    rows: dict[str, None] = {}
    sources: dict[str, None] = {}
    classes: tuple[str, ...] = ()
    forbids, order = None, IDEMPOTENCE
    for each in guarantees:
        for name, found in each.ways.items():
            ways[name] = {**ways.get(name, {}), **{why: by for why, by in found if why not in ways.get(name, {})}}
        forbids, order = forbids or each.forbids, each.order
        rows[each.row] = None
        sources.update(dict.fromkeys(each.sources))
        # The classes are the run's, and the same in each.
        classes = each.classes
    return PermittedAnomalies(
        " / ".join(rows),
        {name: next(iter(found)) for name, found in ways.items()},
        tuple(sources),
        classes,
        {name: next(iter(found.values())) for name, found in ways.items()},
        {name: tuple(found.items()) for name, found in ways.items()},
        forbids,
        order,
    )


def check_matrix() -> None:
    """Raise AssertionError if a cell has no source, an unknown anomaly, or a reason without a mechanism."""
    for row in (*BASE, *ADDED, LOSS_EXPECTED):
        for cell in (row.always, row.w1, row.wm, row.d, row.dm):
            assert cell.source, row.name
            for name in cell.permits:
                assert name.partition("/")[0] in CATALOG, f"{row.name}: {name}"
                assert cell.permits[name] in reasons.MECHANISMS, f"{row.name}: {name} has no mechanism"
