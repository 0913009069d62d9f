"""Reads the transactions of a run directory: from the history, the traces, and the partition logs of brokers that write
no traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.reports.run_files import Json, RunFiles, integer, mapping
from squall.reports.story_facts import ACKNOWLEDGED, FAILED, HISTORY_LIMIT, UNKNOWN, SentRecord, json_lines
from squall.reports.transactions.disk import WallClockAxis, read_logs
from squall.reports.transactions.observed import (
    LOGS,
    PREPARE_COMMIT,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TRACES,
    CoordinatorDecision,
    ObservedTxn,
    ObservedTxnMarker,
    ProducerTakeover,
    ReportedWatermarks,
    TransactionFacts,
    TxnRecord,
    ValueRead,
)

_STATES = (ACKNOWLEDGED, FAILED, UNKNOWN)


def transactions_of(files: RunFiles) -> TransactionFacts:
    """Return all known facts about the run's transactions. Missing or damaged files raise no error and add no facts."""
    found = TransactionFacts()
    path = files.path / "history.jsonl"
    try:
        if path.stat().st_size > HISTORY_LIMIT:
            found.too_large = True
            return found
    except OSError:
        return found
    history = _TransactionHistoryReader(files, found)
    for line in json_lines(path):
        history.take(line)
    if found.txns:
        states, found.markers = _traced(files)
        found.source = TRACES if states or found.markers else ""
        if not found.known:
            partitions = {name for txn in found.txns for name in txn.partitions}
            states, found.markers = read_logs(files, WallClockAxis(files, *history.clock), sorted(partitions))
            found.source = LOGS if states or found.markers else ""
        _share_states(found, states)
        _share_markers(found)
    return found


# ------------------------------------------------------------------------------------------------------------ history


class _TransactionHistoryReader:
    """Reads transactions, their records and the reads of these records from the history, line by line."""

    def __init__(self, files: RunFiles, found: TransactionFacts) -> None:
        self._files, self._found = files, found
        self._names = dict(files.part_names)
        self._txns: dict[int, ObservedTxn] = {}
        self._open: dict[int, SentRecord] = {}
        self._isolation: dict[int, int] = {}
        self._polls: dict[int, tuple[int, bool, int]] = {}
        self._values: set[int] = set()
        self.clock = -1, -1
        """Holds (wall ms, monotonic ns) of the history's header; -1 if unknown."""

    def take(self, line: Json) -> None:
        """Read one line of the history."""
        kind = line.get("e")
        if kind == "i":
            self._invoked(line)
        elif kind == "c":
            self._completed(line)
        elif kind == "x":
            self._event(line)
        elif kind == "h":
            self.clock = integer(line.get("wall_ms")), integer(line.get("mono_ns"))
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
            txn = ObservedTxn(op, process, str(line.get("x")), self._at(line.get("t")), timeout)
            self._txns[op] = txn
            self._found.txns.append(txn)
        elif f == "send":
            txn_of = self._txns.get(integer(line.get("x")))
            if txn_of is not None:
                sent = SentRecord(integer(line.get("v")), process, self._at(line.get("t")))
                part = integer(line.get("part"))
                txn_of.parts.append(TxnRecord(sent, self._names.get(part, f"partition {part}")))
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
        told = self._found.watermarks.setdefault(self._names.get(part, f"partition {part}"), [])
        told.append(ReportedWatermarks(at, process, isolation, lso, hw))
        for pair in got[5] if isinstance(got[5], list) else ():
            if isinstance(pair, list) and len(pair) == 2 and pair[1] in self._values:
                read = ValueRead(at, process, isolation, final, pair[1], integer(pair[0]), lso, hw, inside)
                self._found.reads.setdefault(pair[1], []).append(read)

    def _event(self, line: Json) -> None:
        at, process = self._at(line.get("t")), integer(line.get("p"))
        if line.get("kind") == "txn_end" and (txn := self._txns.get(integer(line.get("x")))) is not None:
            txn.asked, txn.how = at, str(line.get("how"))
        elif line.get("kind") == "txn_init":
            asked, ids = self._at(line.get("t0")), (integer(line.get("pid")), integer(line.get("pe")))
            self._found.taken_over.append(ProducerTakeover(asked, at, process, str(line.get("x")), *ids))


# ------------------------------------------------------------------------------------------------------------- traces


def _traced(files: RunFiles) -> tuple[list[CoordinatorDecision], list[ObservedTxnMarker]]:
    """Return the events that coordinators and leaders traced, in order of time."""
    states, markers = [], []
    for node, trace in files.traces.items():
        for line in trace:
            at = files.seconds(line["t"] * 1e9)
            if at is not None and line["e"] == "transaction_state":
                states.append(_state(at, node, line))
            elif at is not None and line["e"] == "txn_marker":
                markers.append(_marker(at, node, line))
    return sorted(states, key=lambda each: each.t), sorted(markers, key=lambda each: each.t)


def _state(at: float, node: int, line: Json) -> CoordinatorDecision:
    listed = line.get("partitions")
    pairs = [each for each in listed if isinstance(each, list) and len(each) == 2] if isinstance(listed, list) else []
    return CoordinatorDecision(
        at,
        node,
        str(line.get("transactional_id")),
        str(line.get("state")),
        integer(line.get("producer_id")),
        integer(line.get("epoch")),
        integer(line.get("coordinator_epoch")),
        tuple(f"{topic}-{index}" for topic, index in pairs),
    )


def _marker(at: float, node: int, line: Json) -> ObservedTxnMarker:
    return ObservedTxnMarker(
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


def _share_states(found: TransactionFacts, states: Sequence[CoordinatorDecision]) -> None:
    """Give each transaction the states of its transactional id from its begin to the begin of the next transaction."""
    txns: dict[str, list[ObservedTxn]] = {}
    for txn in found.txns:
        txns.setdefault(txn.id, []).append(txn)
    of_id: dict[str, list[CoordinatorDecision]] = {}
    for state in states:
        of_id.setdefault(state.id, []).append(state)
    for name, own in txns.items():
        _share_out(sorted(own, key=lambda txn: txn.began), _runs(of_id.get(name, [])))


def _runs(states: Sequence[CoordinatorDecision]) -> list[list[CoordinatorDecision]]:
    """Split the states of a transactional id into transactions: each begins with an Ongoing that follows another state,
    because the coordinator writes Ongoing again for each added partition. Empty and Dead are left out.
    """
    runs: list[list[CoordinatorDecision]] = []
    for state in states:
        # A coordinator writes Ongoing again for each partition that is added.
        if state.state == "Ongoing" and not (runs and runs[-1][-1].state == "Ongoing"):
            runs.append([])
        if runs and state.state not in ("Empty", "Dead"):
            runs[-1].append(state)
    return runs


def _share_out(txns: Sequence[ObservedTxn], runs: Sequence[list[CoordinatorDecision]]) -> None:
    place = 0
    for number, txn in enumerate(txns):
        until = txns[number + 1].began if number + 1 < len(txns) else float("inf")
        while place < len(runs) and runs[place][0].t < until:
            # Earlier states are of a transaction that the history does not have.
            if runs[place][0].t >= txn.began:
                txn.states += runs[place]
            place += 1


def _share_markers(found: TransactionFacts) -> None:
    """Give each marker to its transaction: the one whose coordinator decided last before the marker, with the same
    producer id, epoch and outcome. If none decided that outcome, give it to the last one with the same producer id and
    epoch, although the marker contradicts it.
    """
    prepared: dict[tuple[int, int], list[tuple[float, bool, ObservedTxn]]] = {}
    for txn in found.txns:
        for decided in txn.decisions:
            commit = decided.state == PREPARE_COMMIT
            prepared.setdefault((decided.producer_id, decided.epoch), []).append((decided.t, commit, txn))
    for marker in found.markers:
        before = [each for each in prepared.get((marker.producer_id, marker.epoch), []) if each[0] <= marker.t]
        same = [each for each in before if each[1] is marker.commit] or before
        if same:
            max(same, key=lambda each: each[0])[2].markers.append(marker)
