"""Parses history.jsonl, line by line, into tables, and joins each completion with its invocation.

If the harness is killed, its history may end anywhere. Such a prefix is a history, too: operations under way have no
completion, and an anomaly that the prefix proves is proven for the whole run. So parsing stops at the first line that
cannot be understood. If that line is no JSON, the lines before it count. If it contradicts them, or the CRC-32 in the
last line does not match them, any line may be wrong, and none counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

import msgspec

from squall.checkers.history import groups, log_starts
from squall.checkers.history.late_ends import UNKNOWN, LateEndTxnTracker
from squall.checkers.history.positions import FinalReadTracker, LastSeenWatermarks, ReaderPositionTracker, passages
from squall.checkers.history.retention import RetentionTracker
from squall.checkers.history.seal import seals_of
from squall.checkers.history.tables import (
    ABORT,
    COMMIT,
    EMPTY_POLL,
    FAIL,
    INFO,
    LARGE,
    LISTED,
    NOT_A_READER,
    NOT_ENDED,
    OK,
    OUT_OF_RANGE,
    POLL,
    SCHEMA,
    SEND,
    TRUNCATED,
    ClientProcess,
    History,
    HistoryProblem,
    ObservedPartition,
    PositionChange,
    check_integers,
    int64,
    offsets_of,
)
from squall.checkers.history.values import LIMIT, SEQUENCE_BITS

FILE = "history.jsonl"
STATUS = ("ok", "fail", "info")
THROWN = {"log_truncated": TRUNCATED, "offset_out_of_range": OUT_OF_RANGE}
"""Maps the events that report an invalid position of a reader to `InvalidatedPosition.kind`."""
HOW = {"none": NOT_ENDED, "commit": COMMIT, "abort": ABORT}
"""Maps the requested end of a transaction to `Txn.how`."""
MOVES = ("assign", "seek", "subscribe", "crash_client", "admin", "list_offsets")
"""Lists all operations other than sends, reads and transactions. Any other name is damage: its effect is not known."""
ACKS = ("all", "-1", -1, 0, 1)
LISTS = ("latest", "lso", "earliest", "timestamp")
"""Lists the kinds of offsets that a `list_offsets` operation may request."""
DRAIN_ROWS = 1 << 20
"""Is the number of records after which `HistoryParser.drain` is called to empty the tables, to bound memory."""
END = "end"
"""Is the kind of the last line, which counts the lines before it; `"ends": true` in the header announces that line."""
SEAL = "crc32"
"""Is the field of the last line with the CRC-32 of the bytes before it; `seal` in the header announces that field."""
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, RecursionError)
_OpenOperation = tuple[str, int, int, int, dict[str, Any]]
"""Is an operation under way: its name, process, time of invocation, partition, and parsed invocation line."""


class MalformedLine(ValueError):
    """Reports a line that is JSON but cannot be part of a history."""


class HistoryParser:
    """Parses the lines passed to `feed`, until `finish`. `drain` is called when tables are large, and must empty them.
    `apart` lists when faults kept brokers apart; `skew_ms` is by how many ms brokers' clocks may have been off.
    """

    def __init__(self, apart: Sequence[tuple[int, int]] = (), skew_ms: int = 0) -> None:
        self.history = History()
        self.drain: Callable[[History], None] | None = None
        self._retention = RetentionTracker(skew_ms)
        self._open: dict[int, _OpenOperation] = {}
        self._last_op, self._completed_at = -1, -1
        self._ended, self._sealed, self._crc = False, False, 0
        self._last_value: dict[int, int] = {}
        self._processes: dict[int, ClientProcess] = {}
        self._partitions: dict[int, ObservedPartition] = {}
        self._positions = ReaderPositionTracker()
        self._watermarks = LastSeenWatermarks()
        self._finals = FinalReadTracker()
        self._names: dict[str, int] = {}
        self._keys: dict[tuple[int, str], int] = {}
        self._outcomes: dict[str, Counter[str]] = {}
        self._ends_asked: dict[int, tuple[int, int]] = {}
        """Maps each transaction under way to (requested end, when it was requested, in ns)."""
        self._late_ends = LateEndTxnTracker()
        self._groups = groups.GroupTableBuilder(
            self.history, self._name, self._positions.forget_one, self._processes, self._partitions, apart
        )
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "h": self._header, "p": self._process, "t": self._partition, "i": self._invoked, "c": self._completed,
            "x": self._event,
        }  # fmt: skip

    def feed(self, lines: Iterable[bytes]) -> None:
        """Parse lines, each with its line feed, up to the end or to the first line that cannot be understood."""
        history, handlers, decode = self.history, self._handlers, msgspec.json.decode
        # Taken before each line: `len` of the arrays costs a fifth of `len` of the tables.
        arrays = [getattr(history, name).data for name in LARGE]
        enough = DRAIN_ROWS * history.records.width
        for raw in (lines := iter(lines)):
            marks = [*map(len, arrays)]
            try:
                line = decode(raw)
                handler = handlers.get(line["e"])
                if handler is None:
                    raise MalformedLine(f"a line of the unknown kind {line['e']!r}")
                if not history.lines and line["e"] != "h":
                    raise MalformedLine("the history does not begin with its header")
                if self._ended:
                    raise MalformedLine("a line behind the one that says that it is the last")
                handler(line)
            except _UNREADABLE as error:
                # The line may have filled several tables before it failed; none of its rows counts.
                for values, mark in zip(arrays, marks, strict=True):
                    del values[mark:]
                self._stop(raw, error, sum(1 for _ in lines))
                return
            history.lines += 1
            self._crc = crc32(raw, self._crc)
            if self.drain is not None and marks[0] >= enough:
                self.drain(history)

    def finish(self) -> History:
        """Return the history; it includes operations without a completion."""
        history = self.history
        for op, (f, proc, t0, part, line) in sorted(self._open.items()):
            self._count(f, INFO, "")
            history.ops.append((op, self._name(f), proc, part, INFO, t0, -1, self._name("")))
            if f == "send":
                self._sent(op, {"st": INFO, "t": -1}, t0, line)
            elif f == "txn":
                self._transacted(op, {"st": INFO, "t": -1}, line)
            elif f in groups.ANSWERED:
                self._groups.answered(f, op, {"st": INFO, "t": -1}, line)
        self._groups.finish()
        self._retention.finish(self._completed_at)
        history.declared = self._retention.seal
        history.partitions = [self._partitions[part] for part in sorted(self._partitions)]
        history.processes = [self._processes[proc] for proc in sorted(self._processes)]
        history.names = list(self._names)
        history.outcomes = {f: dict(sorted(counts.items())) for f, counts in sorted(self._outcomes.items())}
        history.finals = self._finals.finish(self._partitions)
        if not history.lines and history.problem is None:
            history.problem = HistoryProblem(FILE, 0, "nothing is in it")
        if history.ends and not self._ended and history.problem is None:
            why = "the history ends here without its last line: the harness was killed, or the file was cut"
            history.problem = HistoryProblem(FILE, history.lines, why)
        return history

    def _stop(self, raw: bytes, error: Exception, left: int) -> None:
        """Record why parsing stops at this line. `left` is the number of lines after it."""
        # A harness that is killed leaves half a line: that is no damage.
        if not raw.endswith(b"\n") and isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
            self.history.torn_bytes = len(raw)
            return
        known = isinstance(error, MalformedLine | msgspec.DecodeError)
        why = str(error) if known else f"{type(error).__name__}: {error}"
        if raw.lstrip(b"[ ").startswith(b"{:"):
            why = "this is EDN, as Jepsen writes histories, and no JSON"
        why += f"; the {left} lines after it were not read" if left > 1 else ""
        # Bytes that are no JSON are damaged themselves. A line that contradicts an earlier line may be the sound one.
        damaged_here = isinstance(error, msgspec.DecodeError | UnicodeDecodeError)
        self.history.problem = HistoryProblem(FILE, self.history.lines + 1, why, not damaged_here)

    def _header(self, line: dict[str, Any]) -> None:
        if self.history.lines:
            raise MalformedLine("a second header")
        if line["schema"] != SCHEMA:
            raise MalformedLine(f"schema {line['schema']}, and this program reads {SCHEMA}")
        self.history.run = str(line["run"])
        self.history.wall_ms, self.history.mono_ns = int64(line["wall_ms"]), int64(line["mono_ns"])
        self._retention.began(self.history.wall_ms, self.history.mono_ns)
        self.history.ends, self._sealed = bool(line.get("ends", False)), "seal" in line
        self.history.seals.update(seals_of(line.get("seals", {})))

    def _process(self, line: dict[str, Any]) -> None:
        proc = int64(line["p"])
        if proc in self._processes or not 0 <= proc < LIMIT:
            raise MalformedLine(f"process {proc} is declared twice, or is no process")
        role, client, version, zone = (str(line.get(name, "")) for name in ("role", "client", "version", "zone"))
        settings = dict(line.get("settings", {}))
        if settings.get("acks", -1) not in ACKS:
            raise MalformedLine(f"process {proc} has acks = {settings['acks']!r}, which no producer has")
        self._processes[proc] = ClientProcess(proc, role, client, version, zone, settings)

    def _partition(self, line: dict[str, Any]) -> None:
        part, cleanup, added = int64(line["part"]), str(line.get("cleanup", "delete")), line.get("added") is True
        if part in self._partitions or not 0 <= part < LIMIT:
            raise MalformedLine(f"partition {part} is declared twice, or is no partition")
        limits = int64(line.get("retention_ms", -1)), int64(line.get("retention_bytes", -1))
        partition = ObservedPartition(part, str(line["topic"]), int64(line["index"]), cleanup, *limits, added=added)
        self._partitions[part] = self._retention.declared(partition, line)

    def _invoked(self, line: dict[str, Any]) -> None:
        # An operation without a completion is used only by `finish`, so its line must be validated here.
        op, proc, t0, part = int64(line["op"]), int64(line["p"]), int64(line["t"]), int64(line.get("part", -1))
        f = line["f"]
        if not isinstance(f, str) or not isinstance(line.get("k"), str | None):
            raise MalformedLine("a name or a key that is no text")
        if op != self._last_op + 1:
            raise MalformedLine(f"operation {op} after operation {self._last_op}: ids are given one after the other")
        if t0 < self.history.mono_ns:
            raise MalformedLine(f"operation {op} is invoked at {t0}, before the run began at {self.history.mono_ns}")
        if proc not in self._processes:
            raise MalformedLine(f"process {proc} was never declared")
        if part != -1 and part not in self._partitions:
            raise MalformedLine(f"partition {part} was never declared")
        if f == "send":
            if part == -1:
                raise MalformedLine("a send to no partition")
            self._new_value(proc, int64(line["v"]))
            self._inside(line, SEND, op, part, int64(line["v"]))
            self._retention.sent(part, int64(line.get("b", 0)), self._processes[proc])
            self._groups.sent(op, line, self._processes[proc])
        elif f in ("poll", "final_read"):
            at = offsets_of(line["at"])
            if not at.keys() <= self._partitions.keys():
                raise MalformedLine(f"a partition of {sorted(at)} was never declared")
            self._positions.assigned(proc, at)
            self._inside(line, POLL, op, -1, -1)
        elif f == "txn":
            if not isinstance(line["x"], str) or int64(line["timeout"]) < 0:
                raise MalformedLine("a transaction without its transactional id or its time-out")
        elif f in groups.OPERATIONS:
            self._groups.asked(f, line, self._open)
        elif f in MOVES:
            self._moved(f, proc, t0, part, line)
        else:
            raise MalformedLine(f"an operation of the unknown name {f!r}")
        self._last_op = op
        self._open[op] = (f, proc, t0, part, line)

    def _new_value(self, proc: int, value: int) -> None:
        # Finders know a record by its value alone, so no value may be there twice.
        if value >> SEQUENCE_BITS != proc or value <= self._last_value.get(proc, -1):
            raise MalformedLine(f"value {value} is not a new one of process {proc}")
        self._last_value[proc] = value

    def _completed(self, line: dict[str, Any]) -> None:
        op, st, t1 = line["op"], line["st"], line["t"]
        if type(op) is not int or type(st) is not int or type(t1) is not int:
            raise MalformedLine(f"operation {op!r}, status {st!r} or time {t1!r} is no whole number")
        if op not in self._open:
            raise MalformedLine(f"operation {op} completes, but is not under way")
        if st not in (OK, FAIL, INFO):
            raise MalformedLine(f"status {st}")
        f, proc, t0, part, invoked = self._open[op]
        if t1 < t0:
            raise MalformedLine(f"operation {op} completes at {t1}, and was invoked at {t0}")
        # The recorder writes each completion at once, by one clock: this order shows damage.
        if t1 < self._completed_at:
            raise MalformedLine(f"operation {op} completes at {t1}, behind a line of {self._completed_at}")
        self._completed_at = t1
        if f == "send":
            self._sent(op, line, t0, invoked)
        else:
            self._active(proc, int64(t1))
        log_starts.add_log_start(self.history.told, op, line, invoked, self._processes[proc])
        if f in ("poll", "final_read"):
            self._polled(op, line, invoked, t0)
        elif f == "list_offsets":
            self._listed(op, line, invoked, t0)
        elif f == "txn":
            self._transacted(op, line, invoked)
        elif f in groups.ANSWERED:
            self._groups.answered(f, op, line, invoked)
        error = str(line.get("err", ""))
        self.history.ops.append((op, self._name(f), proc, part, st, t0, t1, self._name(error)))
        self._count(f, st, error)
        del self._open[op]

    def _sent(self, op: int, line: dict[str, Any], t0: int, invoked: dict[str, Any]) -> None:
        part, key, key_id, st = invoked["part"], invoked.get("k"), -1, line["st"]
        if key is not None and self._partitions[part].compacted:
            key_id = self._keys.setdefault((part, key), len(self._keys))
        self.history.group_activities.sent(part, st)
        # Without an acknowledgement it is not known where, or how often, the record was appended.
        off, tries = (int64(line.get("off", -1)), int64(line.get("n", -1))) if st == OK else (-1, -1)
        if off >= 0:
            self._retention.appended(invoked, off, int64(line.get("ts", -1)), self._processes[invoked["p"]].client)
        head = (SEND, st, invoked["p"], part, op, 0, off, invoked["v"], NOT_A_READER, t0, line["t"])
        self.history.records.append((*head, 0, 0, -1, 0, key_id, tries))

    def _polled(self, op: int, line: dict[str, Any], invoked: dict[str, Any], t0: int) -> None:
        proc, f, st, t1 = invoked["p"], invoked["f"], line["st"], line["t"]
        process = self._processes[proc]
        final = process.round if f == "final_read" else 0
        isolation, idx = process.isolation, 0
        if final:
            self._finals.began(proc, isolation, final, t0, offsets_of(invoked["at"]))
        for number, entry in enumerate(line.get("got", ())):
            part, position, hw, lso, log_start, pairs, *more = entry
            check_integers((part, position, hw, lso, log_start, *more))
            partition = self._partitions[part]
            if log_start > partition.log_start:
                partition.log_start = int64(log_start)
                self._retention.starts_at(part, log_start, t1)
            self._positions.log_starts_at(proc, part, partition.removed_before(log_start))
            seg = self._positions.seg(proc, part)
            tail = (isolation, t0, t1, final, seg)
            highest = -1
            if pairs:
                highest = self._received(pairs, (POLL, st, proc, part, op), idx, tail)
                partition.seen = max(partition.seen, int64(highest))
                self.history.read_inside += len(pairs) if isolation == 1 and "x" in invoked else 0
            stood = invoked["at"].get(str(part), position)
            if pairs and self._positions.last_read(proc, part)[0] >= 0:
                stood = -1
            # What a final read leaves out is judged as lost (`loss`, `atomicity`), and not as a skip.
            for before, after in () if pairs and final else passages(stood, pairs, partition, position, log_start):
                self.history.holes += before >= 0
                self.history.records.append((EMPTY_POLL, st, proc, part, op, idx, after, -1, *tail, before, 0, -1, -1))
            idx += len(pairs) or 1
            epoch = more[0] if more else -1
            told_before = self._watermarks.fetched((proc, part, epoch), hw, lso)
            kind = POLL if pairs else EMPTY_POLL
            reported = (kind, part, proc, op, number, st, isolation, final, epoch, hw, lso, log_start)
            self.history.told.append((*reported, position, len(pairs), highest, *told_before, t0, t1))
            self._positions.moved(proc, part, int64(position), (pairs[-1][0], op) if pairs else None)
            if final:
                self._finals.reached(proc, part, position, log_start, t1)
            else:
                self.history.group_activities.polled(proc, len(pairs))
        if final:
            self._finals.ended(proc, offsets_of(line.get("end", {})))
        # A failed poll may have moved the reader all the same.
        if st != OK:
            self._positions.forget(proc)

    def _received(self, pairs: list[list[int]], head: tuple[int, ...], idx: int, tail: tuple[int, ...]) -> int:
        """Add the records of one partition of one poll, and return the highest offset. `pairs` holds [offset, value] of
        each, `idx` is the first record's. `head` and `tail` are the values of `RecordRow` before `idx` and after `val`.
        """
        _, _, proc, part, op = head
        add, highest = self.history.records.data.extend, -1
        before, op_before = self._positions.last_read(proc, part)
        inside = int(op_before == op)
        for off, val in pairs:
            if type(off) is not int or type(val) is not int:
                raise MalformedLine(f"value {val!r} at offset {off!r}: no whole numbers")
            add((*head, idx, off, val, *tail, before, inside, -1, -1))
            idx += 1
            if off != before + 1 and before >= 0:
                self.history.holes += 1
            if off < 0 or val < -1:
                raise MalformedLine(f"value {val} at offset {off}")
            before, inside = off, 1
            if off > highest:
                highest = off
            if val == -1:
                self.history.corrupt += 1
        return highest

    def _listed(self, op: int, line: dict[str, Any], invoked: dict[str, Any], t0: int) -> None:
        """Record the answer to a `list_offsets`: to `latest` a high watermark, to `lso` a last stable offset."""
        which = invoked.get("which", "latest")
        if line["st"] != OK:
            return
        # Kafka answers -1 if no record is as new as a timestamp. A log always has a start and an end.
        if int64(line["off"]) < (-1 if which == "timestamp" else 0):
            raise MalformedLine(f"operation {op} found offset {line['off']}, which no log has")
        if (known := int64(line.get("known", -1))) >= 0:
            self.history.lookups.append((op, invoked["p"], invoked["part"], known, line["off"], t0, line["t"]))
        if which not in ("latest", "lso"):
            return
        process = self._processes[invoked["p"]]
        hw, lso = (-1, line["off"]) if which == "lso" else (line["off"], -1)
        part, epoch = invoked["part"], line.get("epoch", -1)
        check_integers((part, epoch, line["off"]))
        before = self._watermarks.listed((process.proc, part, epoch), hw, lso)
        reported = (LISTED, part, process.proc, op, 0, OK, process.isolation, 0, epoch, hw, lso, -1, -1, 0, -1)
        self.history.told.append((*reported, *before, t0, line["t"]))

    def _inside(self, line: dict[str, Any], kind: int, op: int, part: int, val: int) -> None:
        """Record the transaction of which an operation is part, if it is part of one."""
        txn = line.get("x")
        if txn is None:
            return
        under_way = self._open.get(int64(txn))
        # In a client library's transaction the polls come from a consumer, which is another process.
        if under_way is None or under_way[0] != "txn" or (kind == SEND and under_way[1] != line["p"]):
            raise MalformedLine(f"operation {op} is part of {txn}, which is no transaction of this process under way")
        self.history.members.append((txn, kind, op, part, val))
        if kind == SEND:
            self._partitions[part].transactional = True

    def _transacted(self, op: int, line: dict[str, Any], invoked: dict[str, Any]) -> None:
        """Record the end of a transaction. If the history ended before it, `line` has status INFO and time -1."""
        how, asked = self._ends_asked.pop(op, (NOT_ENDED, -1))
        reported = HOW[line.get("how", "none")]
        if line["t"] != -1 and reported not in (how, NOT_ENDED):
            raise MalformedLine(f"transaction {op} ends otherwise than it was asked to")
        if line["st"] == OK and NOT_ENDED in (how, reported):
            raise MalformedLine(f"transaction {op} ended well, and nobody asked for its end")
        pid, epoch = int64(line.get("pid", -1)), int64(line.get("pe", -1))
        proc = invoked["p"]
        row = (op, proc, self._name(invoked["x"]), line["st"], how, invoked["t"], asked, line["t"], pid, epoch)
        late = self._late_ends.before(proc, epoch)
        unanswered = int64(line.get("unanswered", UNKNOWN))
        self.history.txns.append((*row, invoked["timeout"], int(COMMIT in late), int(ABORT in late), unanswered))
        self._late_ends.ended(self._processes[proc], epoch, how, (asked, line["t"]), unanswered)

    def _of_transactions(self, kind: str, t: int, proc: int, line: dict[str, Any]) -> None:
        if kind == "txn_end":
            txn, how = int64(line["x"]), HOW[line["how"]]
            under_way = self._open.get(txn)
            if under_way is None or under_way[0] != "txn" or txn in self._ends_asked or how == NOT_ENDED:
                raise MalformedLine(f"{txn} is no transaction that is to end now")
            if t < under_way[2]:
                raise MalformedLine(f"transaction {txn} is to end at {t}, and began at {under_way[2]}")
            self._ends_asked[txn] = how, t
        elif kind == "txn_init":
            if not isinstance(line["x"], str) or proc not in self._processes:
                raise MalformedLine("a transactional id that is no text, or of no process")
            name, t0 = self._name(line["x"]), int64(line["t0"])
            self.history.inits.append((t, proc, name, int64(line["pid"]), int64(line["pe"]), t0))

    def _moved(self, f: str, proc: int, t0: int, part: int, line: dict[str, Any]) -> None:
        """Record a change of a reader's position: its reads before and after do not follow each other."""
        positions = offsets_of(line.get("at", {}))
        if f == "list_offsets" and (part == -1 or line.get("which", "latest") not in LISTS):
            raise MalformedLine(f"offsets are listed of partition {part}, and {line.get('which')!r} of it is asked for")
        if f == "seek":
            for each in positions or ([part] if part != -1 else []):
                self._positions.forget_one(proc, each)
        if f in ("assign", "subscribe", "crash_client") or (f == "seek" and not positions and part == -1):
            self._positions.forget(proc)
            self._groups.gone(t0, proc, f)
        if f == "admin":
            self._retention.administered(part, line, t0)
        self.history.assignments += [PositionChange(t0, proc, f, *place) for place in (positions or {part: -1}).items()]

    def _event(self, line: dict[str, Any]) -> None:
        kind, proc = str(line["kind"]), int64(line.get("p", -1))
        if kind == END:
            self._end(int64(line["t"]), int64(line["lines"]), line.get(SEAL))
            # Histories of early versions have no seals at all; one with half of them was edited.
            if self.history.seals and "seals" not in line:
                raise MalformedLine("the header names the run's plan, and this line does not name its other files")
            self.history.seals.update(seals_of(line.get("seals", {})))
        if proc != -1:
            self._active(proc, int64(line["t"]))
        if kind == "rebalance" and proc != -1:
            self._positions.forget(proc)
            self.history.assignments.append(PositionChange(int64(line["t"]), proc, kind))
        self._groups.event(kind, proc, line)
        if kind == "topic_settings":
            self._retention.configured(line)
        if kind in ("txn_end", "txn_init"):
            self._of_transactions(kind, int64(line["t"]), proc, line)
        if kind in THROWN and line["part"] in self._partitions and proc in self._processes:
            where = (line["part"], THROWN[kind], int64(line["position"]), int64(line["log_start"]), int64(line["end"]))
            self.history.thrown.append((int64(line["t"]), proc, *where))
            self._retention.thrown(int64(line["t"]), *where[:3])

    def _end(self, t: int, lines: int, crc: int | None) -> None:
        self._ended = True
        if lines != self.history.lines:
            raise MalformedLine(f"{lines} lines were written before this one, and {self.history.lines} are here")
        if t < self._completed_at:
            raise MalformedLine(f"the run ended at {t}, and an operation completed at {self._completed_at}")
        if crc is None and self._sealed:
            raise MalformedLine(f"the header promises the {SEAL} of the lines before this one, and it is not here")
        if crc is not None and crc != self._crc:
            raise MalformedLine(f"the lines before this one were changed after they were written: their {SEAL} differs")

    def _active(self, proc: int, t: int) -> None:
        process = self._processes[proc]
        process.first_t = t if process.first_t < 0 else process.first_t
        process.last_t = max(process.last_t, t)

    def _name(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def _count(self, f: str, st: int, error: str) -> None:
        counts = self._outcomes.setdefault(f, Counter())
        counts[STATUS[st]] += 1
        if error:
            counts[f"error {error}"] += 1


def parse(lines: Iterable[bytes], apart: Sequence[tuple[int, int]] = (), skew_ms: int = 0) -> History:
    """Return the history in `lines`, each with its line feed. `HistoryParser` explains the other parameters."""
    parser = HistoryParser(apart, skew_ms)
    parser.feed(lines)
    return parser.finish()
