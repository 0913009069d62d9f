"""Writes the history during a run: every operation's invocation and completion, one JSON object per line.

Recorded operations survive kill -9 of the harness: lines are appended to the file directly, so a killed harness loses
at most the lines that were not flushed. Two promises make the history usable even then, and callers keep them by
`flush`:

- a send's invocation is in the file before any of its bytes can reach a broker (the producer flushes before it sends
bytes), else the log could hold a record that the history does not have;
- completions are in the file before control returns to the event loop, so nothing acts on an unrecorded result.

Between two calls of `flush` lines are gathered in memory, because one append for each of 5,000 records a second costs
more than the records. Reads change nothing in the cluster: their invocation and completion are written together when
they complete, each with its own time, and an operation id is given when the first line is written.

The line formats are the contract with `squall.checkers.history`. Times are the run's monotonic clock in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from squall.broker.env import Env
from squall.checkers.history.seal import declared_seal
from squall.workloads.client.outcomes import OperationStatus

SCHEMA = 1
SEND = "send"
SEAL = "crc32"
"""Names the field of the history's last line that holds the CRC-32 of all bytes before that line."""
GATHER_BYTES = 64 * 1024
"""Lines of the history are appended to its file at the latest when this many bytes are waiting."""

_json = msgspec.json.Encoder()
# Most lines are those of sends: formatting a template costs less than encoding a dict.
_SEND = b'{"e":"i","op":%d,"p":%d,"f":"send","t":%d,"part":%d,"v":%d,"k":%s,"d":%d,"b":%d}\n'
_SEND_INSIDE = b'{"e":"i","op":%d,"p":%d,"f":"send","t":%d,"part":%d,"v":%d,"k":%s,"d":%d,"b":%d,"x":%d}\n'
_SENT = b'{"e":"c","op":%d,"st":0,"t":%d,"off":%d,"ts":%d}\n'
_SENT_SO_OFTEN = b'{"e":"c","op":%d,"st":0,"t":%d,"off":%d,"ts":%d,"n":%d}\n'
_NOT_SENT = b'{"e":"c","op":%d,"st":%d,"t":%d,"off":-1,"ts":-1,"err":%s}\n'


class PartitionPoll(NamedTuple):
    """Holds the result of one poll for one partition. The history has the fields in this order."""

    part: int
    position: int
    """Gives the position after this poll: the next offset to fetch."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Sequence[tuple[int, int]]
    """Lists (offset, value) in the order received; the value is -1 if the payload did not verify."""
    leader_epoch: int = -1
    """Gives the epoch of the leader that answered; -1 if the epoch is not known."""


class CorruptRecord(NamedTuple):
    """Describes a record whose payload did not verify."""

    part: int
    offset: int
    why: str


@dataclass(slots=True)
class ReadOutcome:
    """Describes how a poll or a final read ended, and what it returned."""

    status: OperationStatus = OperationStatus.OK
    got: Sequence[PartitionPoll] = ()
    bad: Sequence[CorruptRecord] = ()
    end: Mapping[int, int] = field(default_factory=dict)
    """Maps a partition to its end offset, if a final read has reached this offset. A leader had reported the end offset
    when the final read began.
    """
    error: str = ""


Served = Callable[[str, int, int, Sequence[tuple[int, int]]], None]
"""Is called with the records that a poll returned from one partition: topic, partition index, epoch of the leader that
answered, and the records as (offset, value).
"""


class Recorder:
    """Writes the history of one run. All methods are synchronous. An OSError (a full disk) goes to the caller: without
    a history there is no run.
    """

    def __init__(
        self, env: Env, path: str, run: str, *, served: Served | None = None, about: Mapping[str, Any] | None = None
    ) -> None:
        """Create the history file. `served` is called with the records of each poll, separately for each partition.
        `about` holds further fields of the file's first line.
        """
        if env.fs.exists(path):
            raise FileExistsError(f"{path}: a history is never written over")
        self._env = env
        self._served = served
        self._file = env.fs.open(path, create=True)
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        self._written = 0
        self._crc = 0
        """Holds the CRC-32 of all bytes in the file so far."""
        self._next_op = 0
        self._next_process = 0
        self._outcomes: dict[str, list[int]] = {}
        """Maps the name of an operation to four counts: ended ok, fail and info, and begun."""
        self._sends = self._outcomes.setdefault(SEND, [0, 0, 0, 0])
        self._under_way: dict[int, str] = {}
        """Maps each open operation that is no send to its name."""
        self._parts: dict[tuple[str, int], int] = {}
        self.partitions: Mapping[tuple[str, int], int] = self._parts
        """Maps (topic, partition index) to the partition's number in the history ("dense id"), in the order in which
        partitions were declared; without the partitions of deleted topics.
        """
        self.settings: dict[str, Mapping[str, str]] = {}
        """Maps a topic to its settings in force, from the latest call of `topic_settings` for the topic."""
        self._places: list[tuple[str, int]] = []
        self._declared: list[Mapping[str, Any]] = []
        """Lists the retention settings of each partition, in the order of the partitions' numbers in the history."""
        self._declarations = 0
        header = {"e": "h", "schema": SCHEMA, "run": run, "wall_ms": env.wall_ms(), "mono_ns": self.now_ns()}
        # Promises the last line, so that a history without it is known to be cut (`squall.checkers.history.seal`).
        self._put({**header, **(about or {}), "ends": True, "seal": SEAL})
        self.flush()

    @property
    def operations(self) -> int:
        """Counts the operations recorded so far."""
        return self._next_op

    @property
    def contents(self) -> dict[str, Any]:
        """Summarises the history so far for run.json: how many operations of each name ended ok, fail and info (open
        ones are info), the number of processes, each partition with its retention settings, and a CRC-32 of the lines
        that add partitions or topic settings.
        """
        return {
            "outcomes": {
                f: {"ok": ok, "fail": fail, "info": began - ok - fail}
                for f, (ok, fail, _, began) in self._outcomes.items()
            },
            "processes": self._next_process,
            "declared": self._declarations,
            "partitions": [
                {"topic": topic, "index": index, **line}
                for (topic, index), line in zip(self._places, self._declared, strict=True)
            ],
        }

    def place(self, part: int) -> tuple[str, int]:
        """Return (topic, partition index) of the partition that has this number in the history."""
        return self._places[part]

    def now_ns(self) -> int:
        """Return the run's monotonic clock in ns."""
        return int(self._env.mono() * 1e9)

    def process(
        self, role: str, version: str, settings: Mapping[str, Any], *, client: str = "squall", zone: str = ""
    ) -> int:
        """Add a process (Jepsen's logical process, for example one producer) to the history and return its id. `role`
        is producer, reader, final (a final reader) or admin. `client` and `version` name the process's client library,
        and `settings` holds the client's settings.
        """
        process = self._next_process
        self._next_process += 1
        line = {"e": "p", "p": process, "role": role, "client": client, "version": version, "zone": zone}
        self._put({**line, "settings": settings})
        return process

    def partition(
        self,
        topic: str,
        index: int,
        *,
        cleanup: str = "delete",
        retention_ms: int = -1,
        retention_bytes: int = -1,
        added: bool = False,
    ) -> int:
        """Add a partition to the history and return its number there ("dense id"); a second call for the same partition
        adds nothing. Retention is given as configured, -1 for none. `added` is True if the partition is created while
        the load runs.
        """
        known = self._parts.get((topic, index))
        if known is not None:
            return known
        # Written only where it is so: most topics have none, and are there from the beginning.
        size = {"retention_bytes": retention_bytes} if retention_bytes >= 0 else {}
        came = {"added": True} if added else {}
        line = {"cleanup": cleanup, "retention_ms": retention_ms, **size, **came}
        part = self._parts[topic, index] = self._declare((topic, index), line)
        return part

    def topic_settings(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Record which settings are in force for each topic. `settings` maps a topic to its settings (name to value, as
        text), or to an empty mapping if they could not be read. The attribute `self.settings` keeps the latest ones of
        each topic.
        """
        for topic, each in settings.items():
            self.settings[topic] = each
            self._declarations = declared_seal(self._declarations, {"topic": topic, "settings": each})
            self.event("topic_settings", topic=topic, settings=each)

    def _declare(self, place: tuple[str, int], line: Mapping[str, Any]) -> int:
        part = len(self._places)
        self._places.append(place)
        self._declared.append(line)
        self._declarations = declared_seal(self._declarations, {"topic": place[0], "index": place[1], **line})
        self._put({"e": "t", "part": part, "topic": place[0], "index": place[1], **line})
        return part

    def deletes(self, process: int, topic: str, *, topic_id: str = "") -> None:
        """Record that the deletion of a topic is requested now: the next topic of that name is another topic, with
        partitions of its own.
        """
        named = {"id": topic_id} if topic_id else {}
        for place in [place for place in self._parts if place[0] == topic]:
            op = self.invoke(process, "admin", {"what": "delete_topic", "part": self._parts.pop(place), **named})
            self.complete(op, OperationStatus.OK)

    def remakes(self, process: int, topic: str, topic_id: str) -> None:
        """Record that the topic with the id `topic_id` is deleted now and created again with the same partitions. Later
        lines about its name mean the new topic.
        """
        again = {place: self._declared[part] for place, part in self._parts.items() if place[0] == topic}
        self.deletes(process, topic, topic_id=topic_id)
        for place, line in again.items():
            self._parts[place] = self._declare(place, line)

    def invoke_send(
        self,
        process: int,
        part: int,
        value: int,
        key: str | None,
        digest: int,
        size: int,
        txn: int = -1,
        source: int = -1,
    ) -> int:
        """Record that a record is passed to the producer now, and return the operation's id. The record's value and
        headers have `size` bytes. `txn` is the transaction of the send, and `source` the value of the input that the
        record was made from; each is -1 for none.
        """
        if source >= 0:
            fields = {"part": part, "v": value, "k": key, "d": digest, "b": size, "src": source}
            return self.invoke(process, "send", fields if txn < 0 else {**fields, "x": txn})
        op = self._next_op
        self._next_op = op + 1
        self._sends[3] += 1
        line = (op, process, self.now_ns(), part, value, _json.encode(key), digest, size)
        self._add(_SEND % line if txn < 0 else _SEND_INSIDE % (*line, txn))
        return op

    def send_ok(self, op: int, offset: int, timestamp_ms: int, tries: int = -1) -> None:
        """Record that a send was acknowledged at `offset` (-1: acknowledged without an offset, as acks=0 does). `tries`
        counts how often the record was sent; -1 if its client does not report the number.
        """
        self._sends[OperationStatus.OK] += 1
        line = (op, self.now_ns(), offset, timestamp_ms)
        self._add(_SENT % line if tries < 0 else _SENT_SO_OFTEN % (*line, tries))

    def send_not_ok(self, op: int, status: OperationStatus, error: str) -> None:
        """Record that a send was definitely not appended (FAIL), or may or may not have been appended (INFO)."""
        assert status is not OperationStatus.OK, error
        self._sends[status] += 1
        self._add(_NOT_SENT % (op, status, self.now_ns(), _json.encode(error)))

    def invoke(self, process: int, f: str, fields: Mapping[str, Any], began_ns: int = -1) -> int:
        """Record the begin of an operation `f` other than a send, and return the operation's id. `fields` holds what
        else the line says, for example `what` and `part` of the operation `admin`.

        `began_ns` is the time of the begin, -1 for now. A begin in the past is allowed only if the operation changes
        nothing in the cluster.
        """
        op = self._next_op
        self._next_op = op + 1
        self._begins(f)
        if f != SEND:
            self._under_way[op] = f
        at = self.now_ns() if began_ns < 0 else began_ns
        self._put({"e": "i", "op": op, "p": process, "f": f, "t": at, **fields})
        return op

    def complete(self, op: int, status: OperationStatus, error: str = "", **fields: Any) -> None:
        """Record that an operation begun by `invoke` ends now. `fields` holds what else the line says."""
        self._outcomes[self._under_way.pop(op)][status] += 1
        self._put({"e": "c", "op": op, "st": int(status), "t": self.now_ns(), **fields, **_error(error)})

    def begin_txn(self, process: int, transactional_id: str, timeout_ms: int) -> int:
        """Record that a transaction begins now, before any request of it is sent, and return the operation's id."""
        return self.invoke(process, "txn", {"x": transactional_id, "timeout": timeout_ms})

    def ask_end(self, process: int, txn: int, how: str) -> None:
        """Record that the end of a transaction is requested now; `how` is commit or abort. The caller then flushes the
        history, before any byte of the request is sent.
        """
        self.event("txn_end", p=process, x=txn, how=how)

    def txn_ended(
        self,
        txn: int,
        status: OperationStatus,
        how: str,
        producer_id: int,
        epoch: int,
        error: str = "",
        *,
        unanswered: int = -1,
    ) -> None:
        """Record how a transaction ended. OK: as requested. FAIL: it definitely did not commit. INFO: the result is
        unknown.

        `how` is the requested end: commit or abort, or none if no end was requested. `producer_id` and `epoch` are
        those of its producer when the transaction began, -1 if not known. `unanswered` counts requests for its end that
        were sent and never answered; -1 if the number is not known.
        """
        fields = {
            "how": how,
            "pid": producer_id,
            "pe": epoch,
            **({"unanswered": unanswered} if unanswered >= 0 else {}),
        }
        self.complete(txn, status, error, **fields)

    def initialised(self, process: int, transactional_id: str, began_ns: int, producer_id: int, epoch: int) -> None:
        """Record that InitProducerId, sent at `began_ns`, succeeded now: all earlier producers of this id are fenced.
        """
        self.event("txn_init", p=process, x=transactional_id, t0=began_ns, pid=producer_id, pe=epoch)

    def not_initialised(self, process: int, transactional_id: str, began_ns: int, error: str) -> None:
        """Record that InitProducerId, sent at `began_ns`, failed now: for example, it was refused, or not answered in
        time.
        """
        self.event("txn_init", p=process, x=transactional_id, t0=began_ns, pid=-1, pe=-1, **_error(error))

    def read(
        self, process: int, f: str, began_ns: int, at: Mapping[int, int], outcome: ReadOutcome, txn: int = -1
    ) -> int:
        """Record a poll or final read that began at `began_ns` from positions `at` and ends now, and return the
        operation's id.

        The method writes invocation and completion. `txn` is the transaction that a poll is part of, -1 for none.
        """
        op = self._next_op
        self._next_op = op + 1
        self._begins(f)[outcome.status] += 1
        inside = {} if txn < 0 else {"x": txn}
        self._put({"e": "i", "op": op, "p": process, "f": f, "t": began_ns, "at": at, **inside})
        line: dict[str, Any] = {"e": "c", "op": op, "st": int(outcome.status), "t": self.now_ns(), "got": outcome.got}
        if outcome.bad:
            line["bad"] = outcome.bad
        if outcome.end:
            line["end"] = outcome.end
        self._put({**line, **_error(outcome.error)})
        if self._served is not None:
            for got in outcome.got:
                if got.records:
                    self._served(*self._places[got.part], got.leader_epoch, got.records)
        return op

    def _begins(self, f: str) -> list[int]:
        """Count one more operation named `f` as begun. Return the four counts of this name (`_outcomes`), so that the
        caller can also count the operation's end.
        """
        counts = self._outcomes.setdefault(f, [0, 0, 0, 0])
        counts[3] += 1
        return counts

    def event(self, kind: str, **fields: Any) -> None:
        """Record an event that is no operation, for example a rebalance or the errors of a poll."""
        self._put({"e": "x", "t": self.now_ns(), "kind": kind, **fields})

    def flush(self) -> None:
        """Append the gathered lines to the file. The call is cheap if there are none."""
        if self._lines:
            gathered = b"".join(self._lines)
            self._file.append(gathered)
            self._crc = crc32(gathered, self._crc)
            self._lines.clear()
            self._waiting_bytes = 0

    def close(self, **about: Any) -> None:
        """Write the number of lines and their CRC-32, fsync and close the file. Blocks for the disk.

        `about` holds further fields of the last line.
        """
        self.flush()
        self.event("end", **about, lines=self._written, **{SEAL: self._crc})
        self.flush()
        self._file.fsync()
        self._file.close()

    def _put(self, line: Mapping[str, Any]) -> None:
        self._add(_json.encode(line) + b"\n")

    def _add(self, line: bytes) -> None:
        self._lines.append(line)
        self._written += 1
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= GATHER_BYTES:
            self.flush()


def _error(error: str) -> dict[str, str]:
    return {"err": error} if error else {}
