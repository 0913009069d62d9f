"""What a run directory knows of its transactions: what clients did, what coordinators decided, which markers stand
where, and who read the records. Pure but for reading the history.

Every time is in seconds since the load began. Clients' times are in the history; coordinators' and markers' in traces,
which Apache Kafka does not write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reports.run_files import Json, RunFiles, integer, mapping
from reports.story_facts import ACKNOWLEDGED, FAILED, HISTORY_LIMIT, UNKNOWN, Sent, json_lines

COMMIT, ABORT, NOT_ENDED = "commit", "abort", "none"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATIONS = ("read_uncommitted", "read_committed")
_STATES = (ACKNOWLEDGED, FAILED, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Decided:
    """A change of a transaction's state, as its coordinator appended it."""

    t: float
    node: int
    id: str
    state: str
    """Ongoing, PrepareCommit, CompleteAbort and so on, as Kafka names them."""
    producer_id: int
    epoch: int
    coordinator_epoch: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Marker:
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
class Read:
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
class Told:
    """A partition's marks as one answer had them."""

    t: float
    process: int
    isolation: int
    lso: int
    hw: int


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A process was given a transactional id: from then on all earlier ones are fenced."""

    asked: float
    t: float
    process: int
    id: str
    producer_id: int
    epoch: int


@dataclass(slots=True)
class Part:
    """One record of a transaction, and its partition."""

    sent: Sent
    partition: str


@dataclass
class Txn:
    """One transaction. `done` None: its client was never told; `asked` None: it never asked for an end."""

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
    parts: list[Part] = field(default_factory=list)
    states: list[Decided] = field(default_factory=list)
    """What its coordinator did with it, in order."""
    markers: list[Marker] = field(default_factory=list)

    @property
    def partitions(self) -> list[str]:
        """Those it sent to, by name."""
        return sorted({part.partition for part in self.parts})

    def contradicts(self, marker: Marker) -> bool:
        """Whether a marker says otherwise than its coordinator decided."""
        decided = self.first("Prepare")
        return decided is not None and not marker.error and (decided.state == "PrepareCommit") is not marker.commit

    def first(self, prefix: str) -> Decided | None:
        """Its first state whose name begins so."""
        return next((each for each in self.states if each.state.startswith(prefix)), None)


@dataclass
class Transactions:
    """All of a run. `known`: a coordinator's trace tells of states, a leader's of markers."""

    txns: list[Txn] = field(default_factory=list)
    reads: dict[int, list[Read]] = field(default_factory=dict)
    """Value -> who got it, in order; only of values that were sent in transactions."""
    told: dict[str, list[Told]] = field(default_factory=dict)
    """Partition -> what answers said of its marks, in order."""
    taken_over: list[TakenOver] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    final_readers: set[int] = field(default_factory=set)
    """Processes."""
    known: bool = False
    too_large: bool = False
    """The history is longer than HISTORY_LIMIT: nothing was read."""

    def of_op(self, op: int) -> Txn | None:
        """The transaction of that operation."""
        return next((txn for txn in self.txns if txn.op == op), None)

    def of_value(self, value: int) -> Txn | None:
        """The transaction that sent it."""
        return next((txn for txn in self.txns if any(part.sent.value == value for part in txn.parts)), None)


def transactions_of(files: RunFiles) -> Transactions:
    """Everything that is known. Raises nothing for the state of the files."""
    found = Transactions()
    path = files.path / "history.jsonl"
    try:
        if path.stat().st_size > HISTORY_LIMIT:
            found.too_large = True
            return found
    except OSError:
        return found
    history = _History(files, found)
    for line in json_lines(path):
        history.take(line)
    if found.txns:
        _read_traces(files, found)
    return found


# ------------------------------------------------------------------------------------------------------------ history


class _History:
    """Transactions, their records and who read them, line by line."""

    def __init__(self, files: RunFiles, found: Transactions) -> None:
        self._files, self._found = files, found
        self._names = dict(files.part_names)
        self._txns: dict[int, Txn] = {}
        self._open: dict[int, Sent] = {}
        self._isolation: dict[int, int] = {}
        self._polls: dict[int, tuple[int, bool, int]] = {}
        self._values: set[int] = set()

    def take(self, line: Json) -> None:
        """One line of the history."""
        kind = line.get("e")
        if kind == "i":
            self._invoked(line)
        elif kind == "c":
            self._completed(line)
        elif kind == "x":
            self._event(line)
        elif kind == "t":
            self._names[integer(line.get("part"))] = f"{line.get('topic')}-{line.get('index')}"
        elif kind == "p":
            process = integer(line.get("p"))
            isolation = mapping(line.get("settings")).get("isolation")
            self._isolation[process] = READ_COMMITTED if isolation in (1, "read_committed") else READ_UNCOMMITTED
            if line.get("role") == "final":
                self._found.final_readers.add(process)

    def _at(self, ns: Any) -> float:
        return self._files.seconds(ns) or 0.0

    def _invoked(self, line: Json) -> None:
        op, process, f = integer(line.get("op")), integer(line.get("p")), line.get("f")
        if f == "txn":
            timeout = integer(line.get("timeout"), 0) / 1000
            txn = Txn(op, process, str(line.get("x")), self._at(line.get("t")), timeout)
            self._txns[op] = txn
            self._found.txns.append(txn)
        elif f == "send":
            txn_of = self._txns.get(integer(line.get("x")))
            if txn_of is not None:
                sent = Sent(integer(line.get("v")), process, self._at(line.get("t")))
                part = integer(line.get("part"))
                txn_of.parts.append(Part(sent, self._names.get(part, f"partition {part}")))
                self._open[op] = sent
                self._values.add(sent.value)
        elif f in ("poll", "final_read"):
            self._polls[op] = process, f == "final_read" or process in self._found.final_readers, integer(line.get("x"))

    def _completed(self, line: Json) -> None:
        op, at = integer(line.get("op")), self._at(line.get("t"))
        known = line.get("st") if line.get("st") in (0, 1, 2) else 2
        state = _STATES[integer(known)]
        if (sent := self._open.pop(op, None)) is not None:
            sent.done, sent.state, sent.offset = at, state, integer(line.get("off"))
            sent.error = str(line.get("err") or "")
        elif (txn := self._txns.get(op)) is not None:
            txn.done, txn.state, txn.error = at, state, str(line.get("err") or "")
            txn.producer_id, txn.epoch = integer(line.get("pid")), integer(line.get("pe"))
        elif (poll := self._polls.pop(op, None)) is not None:
            for got in line.get("got") or ():
                if isinstance(got, list) and len(got) >= 6:
                    self._got(at, *poll, got)

    def _got(self, at: float, process: int, final: bool, inside: int, got: list[Any]) -> None:
        isolation, (hw, lso) = self._isolation.get(process, 0), (integer(got[2]), integer(got[3]))
        part = integer(got[0])
        told = self._found.told.setdefault(self._names.get(part, f"partition {part}"), [])
        told.append(Told(at, process, isolation, lso, hw))
        for pair in got[5] if isinstance(got[5], list) else ():
            if isinstance(pair, list) and len(pair) == 2 and pair[1] in self._values:
                read = Read(at, process, isolation, final, pair[1], integer(pair[0]), lso, hw, inside)
                self._found.reads.setdefault(pair[1], []).append(read)

    def _event(self, line: Json) -> None:
        at, process = self._at(line.get("t")), integer(line.get("p"))
        if line.get("kind") == "txn_end" and (txn := self._txns.get(integer(line.get("x")))) is not None:
            txn.asked, txn.how = at, str(line.get("how"))
        elif line.get("kind") == "txn_init":
            asked, ids = self._at(line.get("t0")), (integer(line.get("pid")), integer(line.get("pe")))
            self._found.taken_over.append(TakenOver(asked, at, process, str(line.get("x")), *ids))


# ------------------------------------------------------------------------------------------------------------- traces


def _read_traces(files: RunFiles, found: Transactions) -> None:
    """Give each transaction what coordinators and leaders did with it."""
    states: dict[str, list[Decided]] = {}
    for node, trace in files.traces.items():
        for line in trace:
            at = files.seconds(line["t"] * 1e9)
            if at is None:
                continue
            if line["e"] == "transaction_state":
                state = _state(at, node, line)
                states.setdefault(state.id, []).append(state)
            elif line["e"] == "txn_marker":
                found.markers.append(_marker(at, node, line))
    found.known = bool(states or found.markers)
    found.markers.sort(key=lambda marker: marker.t)
    by_id: dict[str, list[Txn]] = {}
    for txn in found.txns:
        by_id.setdefault(txn.id, []).append(txn)
    for name, txns in by_id.items():
        _share_out(sorted(txns, key=lambda txn: txn.began), sorted(states.get(name, []), key=lambda each: each.t))
    _share_markers(found)


def _state(at: float, node: int, line: Json) -> Decided:
    listed = line.get("partitions")
    pairs = [each for each in listed if isinstance(each, list) and len(each) == 2] if isinstance(listed, list) else []
    return Decided(
        at,
        node,
        str(line.get("transactional_id")),
        str(line.get("state")),
        integer(line.get("producer_id")),
        integer(line.get("epoch")),
        integer(line.get("coordinator_epoch")),
        tuple(f"{topic}-{index}" for topic, index in pairs),
    )


def _marker(at: float, node: int, line: Json) -> Marker:
    return Marker(
        at,
        node,
        f"{line.get('topic')}-{line.get('partition')}",
        integer(line.get("producer")),
        integer(line.get("epoch")),
        integer(line.get("coordinator_epoch")),
        line.get("commit") is True,
        integer(line.get("offset")),
        integer(line.get("error"), 0),
    )


def _share_out(txns: list[Txn], states: list[Decided]) -> None:
    """States of one transactional id, in order of time, to its transactions, in order of begin.

    A transaction has the states from its first Ongoing after it began until the Ongoing that follows a Complete. The
    same state told twice, by a coordinator that took over, is told once.
    """
    runs: list[list[Decided]] = []
    for state in states:
        if state.state == "Ongoing" and not (runs and runs[-1] and runs[-1][-1].state == "Ongoing"):
            runs.append([])
        if runs and state.state not in ("Empty", "Dead"):
            runs[-1].append(state)
    place = 0
    for number, txn in enumerate(txns):
        until = txns[number + 1].began if number + 1 < len(txns) else float("inf")
        while place < len(runs) and runs[place][0].t < txn.began:
            place += 1
        if place < len(runs) and runs[place][0].t < until:
            txn.states = runs[place]
            place += 1


def _share_markers(found: Transactions) -> None:
    """A marker belongs to the latest Prepare of its producer id, epoch and outcome before it; where no such decision
    was made, to the latest of its producer id and epoch, which it contradicts.
    """
    prepared: dict[tuple[int, int], list[tuple[float, bool, Txn]]] = {}
    for txn in found.txns:
        decided = txn.first("Prepare")
        if decided is not None:
            commit = decided.state == "PrepareCommit"
            prepared.setdefault((decided.producer_id, decided.epoch), []).append((decided.t, commit, txn))
    for marker in found.markers:
        before = [each for each in prepared.get((marker.producer_id, marker.epoch), []) if each[0] <= marker.t]
        same = [each for each in before if each[1] is marker.commit] or before
        if same:
            max(same, key=lambda each: each[0])[2].markers.append(marker)


def values_of(txns: Iterable[Txn]) -> set[int]:
    """All values that they sent."""
    return {part.sent.value for txn in txns for part in txn.parts}
