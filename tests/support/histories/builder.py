"""Histories for tests: written by hand with `HistoryBuilder`, or generated without anomalies by `generate`.

Both make the lines of a history.jsonl, which the converter then parses as it does a run's history.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from squall.checkers.history.parser import parse
from squall.checkers.history.tables import FAIL, INFO, OK, History
from squall.checkers.history.values import AFTER_HEALING
from tests.support.histories.renumbering import moved, renumbered

MS = 1_000_000
Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class Send:
    """The send of one record. It has no outcome until `st` and `t1` are set."""

    proc: int
    part: int
    val: int
    t0: int
    key: str | None = None
    st: int = -1
    t1: int = -1
    off: int = -1
    err: str = ""
    txn: Other | None = None
    src: int = -1
    """If the record is an output of a pipeline: the value of its input."""
    tries: int = -1
    """How often the client sent the record; -1 if the client does not report it."""
    size: int = 0
    past_ms: int = 0
    """How long before the send the record's timestamp is."""


@dataclass(slots=True)
class Entry:
    """The result of a poll for one partition."""

    part: int
    at: int
    pairs: Pairs
    position: int
    hw: int
    lso: int
    log_start: int = 0
    epoch: int = 0


@dataclass(slots=True)
class Poll:
    """A poll of a reader, or one call of a final read."""

    proc: int
    t0: int
    t1: int
    entries: list[Entry]
    f: str = "poll"
    st: int = OK
    end: dict[int, int] = field(default_factory=dict)
    bad: list[tuple[int, int, str]] = field(default_factory=list)
    txn: Other | None = None


@dataclass(slots=True)
class Other:
    """Any other operation or, if `f` is empty, an event."""

    t0: int
    f: str
    fields: dict[str, Any]
    t1: int = -1
    completion: dict[str, Any] = field(default_factory=dict)


class HistoryBuilder:
    """A history under construction. Each call happens a millisecond after the one before it."""

    def __init__(self, partitions: int = 1, *, cleanup: str = "delete", retention_ms: int = -1) -> None:
        self.now = 0
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.others: list[Other] = []
        self._sequences: dict[int, int] = {}
        self._told: dict[int, int] = {}
        self._processes: list[dict[str, Any]] = []
        self._partitions: list[dict[str, Any]] = [
            {"e": "t", "part": part, "topic": "t", "index": part, "cleanup": cleanup, "retention_ms": retention_ms}
            for part in range(partitions)
        ]

    def tick(self, ns: int = MS) -> int:
        """Advance the clock, and return its time."""
        self.now += ns
        return self.now

    # ---------------------------------------------------------------------------------------------- processes

    def process(self, role: str, client: str = "squall", **settings: Any) -> int:
        proc = len(self._processes)
        line = {"e": "p", "p": proc, "role": role, "client": client, "version": "1", "zone": "", "settings": settings}
        self._processes.append(line)
        return proc

    def producer(self, **settings: Any) -> int:
        return self.process("producer", **{"acks": -1, "idempotence": True, **settings})

    def reader(self, **settings: Any) -> int:
        return self.process("reader", **{"isolation": 0, **settings})

    def final_reader(self, round_: int = 1, isolation: int = 0) -> int:
        return self.process("final", round=round_, isolation=isolation)

    # -------------------------------------------------------------------------------------------------- sends

    def send(self, proc: int, part: int = 0, key: str | None = None, txn: Other | None = None) -> Send:
        """Send the producer's next value, in a transaction if `txn` is given."""
        sequence = self._sequences[proc] = self._sequences.get(proc, -1) + 1
        send = Send(proc, part, proc << 40 | sequence, self.tick(), key, txn=txn)
        self.sends.append(send)
        return send

    def ok(self, send: Send, off: int, tries: int = -1) -> Send:
        send.st, send.off, send.t1, send.tries = OK, off, self.tick(), tries
        return send

    def fail(self, send: Send) -> Send:
        send.st, send.err, send.t1 = FAIL, "MESSAGE_TOO_LARGE", self.tick()
        return send

    def info(self, send: Send) -> Send:
        send.st, send.err, send.t1 = INFO, "REQUEST_TIMED_OUT", self.tick()
        return send

    def sent(self, proc: int, off: int, part: int = 0, key: str | None = None) -> int:
        """Send a record that is acknowledged at offset `off`, and return its value."""
        return self.ok(self.send(proc, part, key), off).val

    # -------------------------------------------------------------------------------------------------- reads

    def poll(
        self,
        proc: int,
        pairs: Pairs,
        *,
        part: int = 0,
        at: int | None = None,
        st: int = OK,
        f: str = "poll",
        txn: Other | None = None,
        **told: int,
    ) -> Poll:
        """Add a poll that returns (offset, value) pairs of one partition, in a transaction if `txn` is given.

        `told` has fields of the answer that differ from their defaults: position, hw, lso, log_start, epoch.
        """
        entry = self.entry(pairs, part=part, at=at, **told)
        poll = Poll(proc, self.tick(), self.tick(), [entry], f, st, txn=txn)
        self.polls.append(poll)
        return poll

    def entry(self, pairs: Pairs, *, part: int = 0, at: int | None = None, **told: int) -> Entry:
        """Return the result of a poll for one partition."""
        start = at if at is not None else pairs[0][0] if pairs else 0
        position = told.get("position", max((off for off, _ in pairs), default=start - 1) + 1)
        # By default an answer is no lower than those before.
        hw = told.get("hw", max(position, self._told.get(part, 0)))
        self._told[part] = max(hw, self._told.get(part, 0))
        log_start, epoch = told.get("log_start", 0), told.get("epoch", 0)
        return Entry(part, start, pairs, position, hw, told.get("lso", hw), log_start, epoch)

    def final(self, pairs: Pairs, *, part: int = 0, end: int | None = None, at: int = 0, **more: Any) -> Poll:
        """Add a final read: a new reader reads a partition from its start to its end in one call."""
        reader = self.final_reader(more.pop("round_", 1), more.pop("isolation", 0))
        poll = self.poll(reader, pairs, part=part, at=at, f="final_read", **more)
        poll.end = {part: poll.entries[0].position if end is None else end}
        return poll

    def partial_final(self, pairs: Pairs, *, part: int = 0, at: int = 0, **told: int) -> Poll:
        """Add a final read that ends before it has reached the end of the partition."""
        return self.poll(self.final_reader(), pairs, part=part, at=at, f="final_read", **told)

    # ------------------------------------------------------------------------------------------------- others

    def operation(self, proc: int, f: str, **fields: Any) -> Other:
        """Add any other operation, with a successful completion."""
        other = Other(self.tick(), f, {"p": proc, **fields}, self.tick(), {"st": OK})
        self.others.append(other)
        return other

    def list_offsets(
        self, proc: int, off: int, *, part: int = 0, which: str = "latest", epoch: int = 0, led: int | None = None
    ) -> Other:
        other = self.operation(proc, "list_offsets", part=part, which=which)
        other.completion.update(off=off, epoch=epoch, **({} if led is None else {"led": led}))
        return other

    def event(self, kind: str, **fields: Any) -> None:
        self.others.append(Other(self.tick(), "", {"kind": kind, **fields}))

    # ------------------------------------------------------------------------------------------- transactions

    def initialised(self, proc: int, transactional_id: str = "a", epoch: int = 0, asked: int | None = None) -> None:
        """Add InitProducerId: a producer gets a transactional id. `asked`: when it asked; None: just before."""
        t0 = self.now if asked is None else asked
        self.event("txn_init", p=proc, x=transactional_id, t0=t0, pid=4000, pe=epoch)

    def begin(self, proc: int, transactional_id: str = "a", timeout_ms: int = 1000) -> Other:
        """Begin a transaction."""
        txn = Other(self.tick(), "txn", {"p": proc, "x": transactional_id, "timeout": timeout_ms})
        self.others.append(txn)
        return txn

    def ask_end(self, txn: Other, how: str) -> None:
        """Add a client's request to commit or abort, without an answer."""
        self.event("txn_end", p=txn.fields["p"], x=txn, how=how)

    def end(self, txn: Other, how: str, st: int = OK) -> None:
        """Add a client's request to commit or abort, and its answer."""
        self.ask_end(txn, how)
        txn.t1, txn.completion = self.tick(), {"st": st, "how": how, "pid": 4000, "pe": 0}

    def take_in(self, other: HistoryBuilder) -> None:
        """Add everything of another history, with new partitions and processes. The other one is used up."""
        procs, parts = len(self._processes), len(self._partitions)
        self._processes += (renumbered(line, procs, parts) for line in other._processes)
        topic = f"t{parts}"
        self._partitions += ({**line, "part": line["part"] + parts, "topic": topic} for line in other._partitions)
        for send in other.sends:
            send.proc, send.part, send.val = send.proc + procs, send.part + parts, moved(send.val, procs)
            send.src = moved(send.src, procs)
        for poll in other.polls:
            poll.proc, poll.end = poll.proc + procs, {part + parts: end for part, end in poll.end.items()}
            poll.bad = [(part + parts, off, why) for part, off, why in poll.bad]
            for entry in poll.entries:
                entry.part += parts
                entry.pairs = [(off, moved(val, procs)) for off, val in entry.pairs]
        for each in other.others:
            each.fields = renumbered(each.fields, procs, parts)
            each.fields |= {"topic": topic} if each.fields.get("topic") == "t" else {}
            each.completion = renumbered(each.completion, procs, parts)
        self.sends += other.sends
        self.polls += other.polls
        self.others += other.others

    # ------------------------------------------------------------------------------------------------- output

    def records(self) -> Iterator[tuple[Poll, Entry, int]]:
        """Yield every record that was read, as (poll, entry, index into the entry's pairs)."""
        for poll in self.polls:
            for entry in poll.entries:
                for index in range(len(entry.pairs)):
                    yield poll, entry, index

    def lines(self) -> list[bytes]:
        """Return the lines of history.jsonl."""
        header = {"e": "h", "schema": 1, "run": "test", "wall_ms": 0, "mono_ns": 0}
        lines = [header, *self._partitions, *self._processes, *_numbered(self._events())]
        return [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines]

    def sealed(self) -> list[bytes]:
        """Return the lines of history.jsonl as earlier versions wrote them: the last line counts those before it."""
        header, *lines = self.lines()
        end = {"e": "x", "t": 1 << 40, "kind": "end", "lines": len(lines) + 1}
        return [header[:-2] + b',"ends":true}\n', *lines, json.dumps(end).encode() + b"\n"]

    def history(self) -> History:
        """Return the history as the converter parses it."""
        history = parse(self.lines())
        assert history.problem is None, history.problem
        return history

    def _events(self) -> list[tuple[int, int, int, dict[str, Any]]]:
        """Return (time, order within that time, identity of the operation, line without operation id), sorted."""
        events: list[tuple[int, int, int, dict[str, Any]]] = []
        for send in self.sends:
            invoked = {"e": "i", "p": send.proc, "f": "send", "t": send.t0}
            invoked |= {"part": send.part, "v": send.val, "k": send.key}
            inside = {**({"x": send.txn} if send.txn else {}), **({"src": send.src} if send.src >= 0 else {})}
            events.append((send.t0, 1, id(send), {**invoked, "d": 0, "b": send.size, **inside}))
            if send.st >= 0:
                done = {"e": "c", "st": send.st, "t": send.t1, "off": send.off, "ts": send.t0 // MS - send.past_ms}
                done |= {"n": send.tries} if send.tries >= 0 else {}
                events.append((send.t1, 0, id(send), {**done, **({"err": send.err} if send.err else {})}))
        for poll in self.polls:
            at = {str(entry.part): entry.at for entry in poll.entries}
            # As the recorder does it: both lines of a read are written when it returns.
            inside = {"x": poll.txn} if poll.txn else {}
            invoked = {"e": "i", "p": poll.proc, "f": poll.f, "t": poll.t0, "at": at, **inside}
            events.append((poll.t1, 2, id(poll), invoked))
            events.append((poll.t1, 3, id(poll), _poll_completion(poll)))
        for other in self.others:
            if not other.f:
                events.append((other.t0, 4, 0, {"e": "x", "t": other.t0, **other.fields}))
                continue
            events.append((other.t0, 4, id(other), {"e": "i", "f": other.f, "t": other.t0, **other.fields}))
            if other.t1 >= 0:
                events.append((other.t1, 5, id(other), {"e": "c", "t": other.t1, **other.completion}))
        return sorted(events, key=lambda event: event[:2])


def transacted(
    *, sends: int = 1, parts: int = 1, end: str = "commit", st: int = OK
) -> tuple[HistoryBuilder, list[int]]:
    """Return a history of one transaction, and the values of its records: acknowledged, to each partition in turn.

    `end` is commit or abort, or empty if the client disappears. With `st` INFO the request to end it has no answer.
    """
    h = HistoryBuilder(parts)
    p = h.producer()
    h.initialised(p)
    txn = h.begin(p)
    values = [h.ok(h.send(p, each % parts, txn=txn), each // parts).val for each in range(sends)]
    if end and st == INFO:
        h.ask_end(txn, end)
    elif end:
        h.end(txn, end, st)
    return h, values


def _poll_completion(poll: Poll) -> dict[str, Any]:
    got = [
        [entry.part, entry.position, entry.hw, entry.lso, entry.log_start, entry.pairs, entry.epoch]
        for entry in poll.entries
    ]
    line: dict[str, Any] = {"e": "c", "st": poll.st, "t": poll.t1, "got": got}
    if poll.bad:
        line["bad"] = poll.bad
    return {**line, "end": {str(part): end for part, end in poll.end.items()}} if poll.end else line


def _numbered(events: Iterable[tuple[int, int, int, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    ops: dict[int, int] = {}
    for _, _, which, line in events:
        if isinstance(line.get("x"), Other):
            line["x"] = ops[id(line["x"])]
        if line["e"] == "i":
            ops[which] = len(ops)
            # "op" before the rest is how the recorder writes it.
            yield {"e": "i", "op": ops[which], **{name: value for name, value in line.items() if name != "e"}}
        elif line["e"] == "c":
            yield {"e": "c", "op": ops[which], **{name: value for name, value in line.items() if name != "e"}}
        else:
            yield line


# ------------------------------------------------------------------------------------------------------- generated


@dataclass(slots=True)
class _Appended:
    send: Send
    at: int
    off: int = -1


class GeneratedHistory(HistoryBuilder):
    """A random history without anomalies: producers, readers that seek and whose polls fail, a write to each partition
    after healing, and final reads of everything. Readers run until they have polled that write. Offsets have gaps, as
    control records leave them. Sends are pipelined; some fail and some end without an answer.
    """

    def __init__(
        self, seed: int, *, sends: int = 120, partitions: int = 2, cleanup: str = "delete", trouble: float = 0.04
    ) -> None:
        super().__init__(partitions, cleanup=cleanup)
        self.rng = Random(repr((seed, "history")))
        self.trouble = trouble
        """The probabilities that a reader seeks, and that its poll fails."""
        self.logs: list[list[tuple[int, int, int]]] = [[] for _ in range(partitions)]
        """The log of each partition: (time from which it can be read, offset, value) of each record, in order."""
        self.finished = 0
        self._produce(sends)
        self._write_after_healing()
        for _ in range(3):
            self._read(self.reader(isolation=self.rng.randrange(2)))
        self.finished = max([self.now, *(poll.t1 for poll in self.polls)])
        for round_ in (1, 2):
            for isolation in (0, 1):
                self._read_finally(self.final_reader(round_, isolation))

    def _produce(self, sends: int) -> None:
        rng, producers = self.rng, [self.producer() for _ in range(3)]
        appended: list[list[_Appended]] = [[] for _ in self.logs]
        last: dict[tuple[int, int], int] = {}
        for _ in range(sends):
            self.tick(rng.randrange(1, 3) * MS)
            send = self.send(rng.choice(producers), rng.randrange(len(self.logs)), rng.choice("abcdefgh"))
            # One producer's records to one partition are appended in the order it handed them over.
            at = max(send.t0 + rng.randrange(1, 8 * MS), last.get((send.proc, send.part), 0) + 1)
            fate = rng.random()
            send.t1 = at + rng.randrange(MS, 9 * MS)
            if fate < 0.04:
                send.st, send.err = FAIL, "MESSAGE_TOO_LARGE"
                continue
            send.st, send.err = (INFO, "REQUEST_TIMED_OUT") if fate < 0.1 else (OK, "")
            # Of three producers one does not tell how often it sent.
            send.tries = 1 + (send.val & 1) if send.proc != producers[0] else -1
            if fate >= 0.07:
                last[send.proc, send.part] = at
                appended[send.part].append(_Appended(send, at))
        for part, records in enumerate(appended):
            off = 0
            for record in sorted(records, key=lambda record: record.at):
                off += 1 + (rng.random() < 0.05)
                if record.send.st == OK:
                    record.send.off = off
                self.logs[part].append((record.at, off, record.send.val))
        self.now = max(send.t1 for send in self.sends) + 20 * MS

    def _write_after_healing(self) -> None:
        """Write to each partition by a new producer, so late that measurements of the load leave it out."""
        self.tick(self.rng.randrange(20, 40) * MS)
        proc = self.producer(**{AFTER_HEALING: True})
        for part, log in enumerate(self.logs):
            send = self.send(proc, part)
            offset = log[-1][1] + 1 if log else 0
            log.append((self.tick(), offset, self.ok(send, offset).val))
        self.now += 15 * MS

    def _read(self, proc: int) -> None:
        rng, now = self.rng, rng_start(self.rng)
        positions = dict.fromkeys(range(len(self.logs)), 0)
        while now < self.now:
            now += rng.randrange(2 * MS, 12 * MS)
            fate = rng.random()
            if fate < self.trouble:
                part = rng.randrange(len(self.logs))
                positions[part] = rng.randrange(len(self.logs[part]) + 1)
                self.others.append(
                    Other(now, "seek", {"p": proc, "at": {str(part): positions[part]}}, now + 1, {"st": OK})
                )
            elif fate < 2 * self.trouble:
                self.polls.append(Poll(proc, now, now + MS, [], st=FAIL))
            else:
                # Now and then only some of the partitions are assigned.
                parts = [part for part in positions if rng.random() < 0.9]
                entries = [self._fetch(part, positions, now, rng.randrange(12)) for part in parts]
                self.polls.append(Poll(proc, now, now + MS, entries))
            now += MS

    def _read_finally(self, proc: int) -> None:
        now = self.finished + self.rng.randrange(MS)
        positions = dict.fromkeys(range(len(self.logs)), 0)
        ends = {part: log[-1][1] + 1 if log else 0 for part, log in enumerate(self.logs)}
        while True:
            entries = [self._fetch(part, positions, now, 40) for part in positions]
            done = {part: end for part, end in ends.items() if positions[part] >= end}
            self.polls.append(Poll(proc, now, now + MS, entries, "final_read", end=done))
            now += 2 * MS
            if len(done) == len(ends):
                return

    def _fetch(self, part: int, positions: dict[int, int], now: int, count: int) -> Entry:
        at, log = positions[part], self.logs[part]
        visible = bisect_right(log, now, key=lambda record: record[0])
        first = bisect_left(log, at, key=lambda record: record[1])
        pairs = [(off, val) for _, off, val in log[first : min(first + count, visible)]]
        hw = log[visible - 1][1] + 1 if visible else 0
        positions[part] = pairs[-1][0] + 1 if pairs else at
        return Entry(part, at, pairs, positions[part], hw, hw)


def rng_start(rng: Random) -> int:
    """Draw the time at which a reader starts."""
    return rng.randrange(5 * MS)


def merged(histories: Sequence[HistoryBuilder]) -> list[bytes]:
    """Return the lines of one history that contains all of these, each in partitions of its own and at the same times.

    An anomaly of one of them is found in the result, too, with other ids.
    """
    whole = HistoryBuilder(0)
    for history in histories:
        whole.take_in(history)
    return whole.lines()


def generate(seed: int, *, sends: int = 120, partitions: int = 2, cleanup: str = "delete") -> GeneratedHistory:
    """Return a random history without anomalies, which depends on the arguments alone."""
    return GeneratedHistory(seed, sends=sends, partitions=partitions, cleanup=cleanup)
