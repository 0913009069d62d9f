"""Histories for tests: written by hand with `HistoryBuilder`, or generated clean with `generate` and then spoilt.

Both make the lines of a history.jsonl, so that whatever reads them goes through the converter as a run's history does.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from checkers.parser import parse
from checkers.tables import FAIL, INFO, OK, History

MS = 1_000_000
Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class Send:
    """A send: under way until `st` and `t1` are set."""

    proc: int
    part: int
    val: int
    t0: int
    key: str | None = None
    st: int = -1
    t1: int = -1
    off: int = -1
    err: str = ""


@dataclass(slots=True)
class Entry:
    """What one poll returned of one partition."""

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
    """A poll or a call of a final read."""

    proc: int
    t0: int
    t1: int
    entries: list[Entry]
    f: str = "poll"
    st: int = OK
    end: dict[int, int] = field(default_factory=dict)
    bad: list[tuple[int, int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Other:
    """Any other operation, or with `f` empty an event."""

    t0: int
    f: str
    fields: dict[str, Any]
    t1: int = -1
    completion: dict[str, Any] = field(default_factory=dict)


class HistoryBuilder:
    """Each call takes place a millisecond after the one before it."""

    def __init__(self, partitions: int = 1, *, cleanup: str = "delete", retention_ms: int = -1) -> None:
        self.now = 0
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.others: list[Other] = []
        self._sequences: dict[int, int] = {}
        self._processes: list[dict[str, Any]] = []
        self._partitions = [
            {"e": "t", "part": part, "topic": "t", "index": part, "cleanup": cleanup, "retention_ms": retention_ms}
            for part in range(partitions)
        ]

    def tick(self, ns: int = MS) -> int:
        """Time goes on. Returns the time."""
        self.now += ns
        return self.now

    # ---------------------------------------------------------------------------------------------- processes

    def process(self, role: str, **settings: Any) -> int:
        proc = len(self._processes)
        line = {"e": "p", "p": proc, "role": role, "client": "squall", "version": "1", "zone": "", "settings": settings}
        self._processes.append(line)
        return proc

    def producer(self, **settings: Any) -> int:
        return self.process("producer", **{"acks": -1, "idempotence": True, **settings})

    def reader(self, **settings: Any) -> int:
        return self.process("reader", **{"isolation": 0, **settings})

    def final_reader(self, round_: int = 1, isolation: int = 0) -> int:
        return self.process("final", round=round_, isolation=isolation)

    # -------------------------------------------------------------------------------------------------- sends

    def send(self, proc: int, part: int = 0, key: str | None = None) -> Send:
        """Hand over the producer's next value."""
        sequence = self._sequences[proc] = self._sequences.get(proc, -1) + 1
        send = Send(proc, part, proc << 40 | sequence, self.tick(), key)
        self.sends.append(send)
        return send

    def ok(self, send: Send, off: int) -> Send:
        send.st, send.off, send.t1 = OK, off, self.tick()
        return send

    def fail(self, send: Send) -> Send:
        send.st, send.err, send.t1 = FAIL, "MESSAGE_TOO_LARGE", self.tick()
        return send

    def info(self, send: Send) -> Send:
        send.st, send.err, send.t1 = INFO, "REQUEST_TIMED_OUT", self.tick()
        return send

    def sent(self, proc: int, off: int, part: int = 0, key: str | None = None) -> int:
        """Send and be acknowledged. Returns the value."""
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
        **told: int,
    ) -> Poll:
        """A poll that returns (offset, value) pairs of one partition. `told`: position, hw, lso, log_start, epoch."""
        entry = self.entry(pairs, part=part, at=at, **told)
        poll = Poll(proc, self.tick(), self.tick(), [entry], f, st)
        self.polls.append(poll)
        return poll

    def entry(self, pairs: Pairs, *, part: int = 0, at: int | None = None, **told: int) -> Entry:
        """One partition's part of a poll's answer."""
        start = at if at is not None else pairs[0][0] if pairs else 0
        position = told.get("position", max((off for off, _ in pairs), default=start - 1) + 1)
        hw = told.get("hw", position)
        log_start, epoch = told.get("log_start", 0), told.get("epoch", 0)
        return Entry(part, start, pairs, position, hw, told.get("lso", hw), log_start, epoch)

    def final(self, pairs: Pairs, *, part: int = 0, end: int | None = None, at: int = 0, **more: Any) -> Poll:
        """A fresh reader reads a partition from its start to its end in one call."""
        reader = self.final_reader(more.pop("round_", 1), more.pop("isolation", 0))
        poll = self.poll(reader, pairs, part=part, at=at, f="final_read", **more)
        poll.end = {part: poll.entries[0].position if end is None else end}
        return poll

    def partial_final(self, pairs: Pairs, *, part: int = 0, at: int = 0, **told: int) -> Poll:
        """A final read that ends before it knows that it has reached the end."""
        return self.poll(self.final_reader(), pairs, part=part, at=at, f="final_read", **told)

    # ------------------------------------------------------------------------------------------------- others

    def operation(self, proc: int, f: str, **fields: Any) -> Other:
        """Any other operation, done."""
        other = Other(self.tick(), f, {"p": proc, **fields}, self.tick(), {"st": OK})
        self.others.append(other)
        return other

    def list_offsets(self, proc: int, off: int, *, part: int = 0, which: str = "latest", epoch: int = 0) -> Other:
        other = self.operation(proc, "list_offsets", part=part, which=which)
        other.completion.update(off=off, epoch=epoch)
        return other

    def event(self, kind: str, **fields: Any) -> None:
        self.others.append(Other(self.tick(), "", {"kind": kind, **fields}))

    # ------------------------------------------------------------------------------------------------- output

    def records(self) -> Iterator[tuple[Poll, Entry, int]]:
        """Every record that was read, as (poll, entry, index into its pairs)."""
        for poll in self.polls:
            for entry in poll.entries:
                for index in range(len(entry.pairs)):
                    yield poll, entry, index

    def lines(self) -> list[bytes]:
        """history.jsonl."""
        header = {"e": "h", "schema": 1, "run": "test", "wall_ms": 0, "mono_ns": 0}
        lines = [header, *self._partitions, *self._processes, *_numbered(self._events())]
        return [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines]

    def history(self) -> History:
        """What the converter makes of it."""
        history = parse(self.lines())
        assert history.problem is None, history.problem
        return history

    def _events(self) -> list[tuple[int, int, int, dict[str, Any]]]:
        """(time, tie-break, which operation, line without its operation id)"""
        events: list[tuple[int, int, int, dict[str, Any]]] = []
        for send in self.sends:
            invoked = {
                "e": "i",
                "p": send.proc,
                "f": "send",
                "t": send.t0,
                "part": send.part,
                "v": send.val,
                "k": send.key,
            }
            events.append((send.t0, 1, id(send), {**invoked, "d": 0}))
            if send.st >= 0:
                done = {"e": "c", "st": send.st, "t": send.t1, "off": send.off, "ts": 0}
                events.append((send.t1, 0, id(send), {**done, **({"err": send.err} if send.err else {})}))
        for poll in self.polls:
            at = {str(entry.part): entry.at for entry in poll.entries}
            # As the recorder does it: both lines of a read are written when it returns.
            events.append((poll.t1, 2, id(poll), {"e": "i", "p": poll.proc, "f": poll.f, "t": poll.t0, "at": at}))
            events.append((poll.t1, 3, id(poll), _poll_completion(poll)))
        for other in self.others:
            if not other.f:
                events.append((other.t0, 4, 0, {"e": "x", "t": other.t0, **other.fields}))
                continue
            events.append((other.t0, 4, id(other), {"e": "i", "f": other.f, "t": other.t0, **other.fields}))
            if other.t1 >= 0:
                events.append((other.t1, 5, id(other), {"e": "c", "t": other.t1, **other.completion}))
        return sorted(events, key=lambda event: event[:2])


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
    """A run in which nothing is wrong: producers, readers that seek and fail, and final reads of everything.

    Offsets have gaps, as control records leave them. Sends are pipelined; some fail and some end without an answer.
    """

    def __init__(
        self, seed: int, *, sends: int = 120, partitions: int = 2, cleanup: str = "delete", trouble: float = 0.04
    ) -> None:
        super().__init__(partitions, cleanup=cleanup)
        self.rng = Random(repr((seed, "history")))
        self.trouble = trouble
        """How likely a reader seeks, and how likely a poll of it fails."""
        self.logs: list[list[tuple[int, int, int]]] = [[] for _ in range(partitions)]
        """By partition: (visible since, offset, value), in order."""
        self.finished = 0
        self._produce(sends)
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
    """When a reader begins."""
    return rng.randrange(5 * MS)


def generate(seed: int, *, sends: int = 120, partitions: int = 2, cleanup: str = "delete") -> GeneratedHistory:
    """A clean history: the same seed, the same history."""
    return GeneratedHistory(seed, sends=sends, partitions=partitions, cleanup=cleanup)


# --------------------------------------------------------------------------------------------------------- planting


def plant(name: str, history: GeneratedHistory) -> None:
    """Spoil a clean history so that the anomaly `name` is in it; others may follow from it."""
    PLANTS[name](history)


def _acked(history: GeneratedHistory) -> Send:
    """An acknowledged send from the middle of the run, that final reads found."""
    acked = [send for send in history.sends if send.st == OK]
    return history.rng.choice(acked[len(acked) // 4 : len(acked) // 2])


def _drop(history: HistoryBuilder, val: int, *, polls: Sequence[str] = ("poll", "final_read")) -> None:
    for poll in history.polls:
        if poll.f in polls:
            for entry in poll.entries:
                entry.pairs = [pair for pair in entry.pairs if pair[1] != val]


def _occurrences(history: HistoryBuilder, val: int, f: str) -> list[tuple[Poll, Entry, int]]:
    return [(poll, entry, i) for poll, entry, i in history.records() if entry.pairs[i][1] == val and poll.f == f]


def _plant_lost_write(history: GeneratedHistory) -> None:
    _drop(history, _acked(history).val, polls=history.rng.choice((("final_read",), ("poll", "final_read"))))


def _plant_unseen(history: GeneratedHistory) -> None:
    part = max(range(len(history.logs)), key=lambda part: len(history.logs[part]))
    tail = max((send for send in history.sends if send.st == OK and send.part == part), key=lambda send: send.off)
    for _, off, val in history.logs[part]:
        if off >= tail.off:
            _drop(history, val)


def _plant_duplicate(history: GeneratedHistory) -> None:
    send = _acked(history)
    beyond = history.logs[send.part][-1][1] + 5
    for poll in history.polls:
        if poll.f == "final_read" and send.part in poll.end:
            entry = next(entry for entry in poll.entries if entry.part == send.part)
            entry.pairs = [*entry.pairs, (beyond, send.val)]


def _plant_inconsistent_offset(history: GeneratedHistory) -> None:
    send, other = _acked(history), history.send(0)
    _, entry, i = history.rng.choice(_occurrences(history, send.val, "final_read"))
    other.part = send.part
    entry.pairs[i] = (entry.pairs[i][0], other.val)


def _plant_phantom(history: GeneratedHistory) -> None:
    for _, entry, i in _occurrences(history, _acked(history).val, "final_read"):
        entry.pairs[i] = (entry.pairs[i][0], (1 << 40) - 7)


def _plant_corrupt(history: GeneratedHistory) -> None:
    poll, entry, i = history.rng.choice(_occurrences(history, _acked(history).val, "final_read"))
    poll.bad.append((entry.part, entry.pairs[i][0], "checksum"))
    entry.pairs[i] = (entry.pairs[i][0], -1)


def _plant_wrong_offset(history: GeneratedHistory) -> None:
    _acked(history).off += 1


def _plant_send_reorder(history: GeneratedHistory) -> None:
    send = _acked(history)
    later = next(each for each in history.sends if each.t0 > send.t0 and _same_stream(each, send) and each.st == OK)
    send.off, later.off = later.off, send.off
    _swap(history, send.val, later.val)


def _same_stream(a: Send, b: Send) -> bool:
    return (a.proc, a.part) == (b.proc, b.part)


def _swap(history: HistoryBuilder, one: int, two: int) -> None:
    swapped = {one: two, two: one}
    for _, entry, i in history.records():
        off, val = entry.pairs[i]
        entry.pairs[i] = (off, swapped.get(val, val))


def _plant_stale_ack(history: GeneratedHistory) -> None:
    send = _acked(history)
    later = next(each for each in history.sends if each.t0 > send.t1 and each.part == send.part and each.st == OK)
    send.off, later.off = later.off, send.off
    _swap(history, send.val, later.val)


def _plant_poll_skip(history: GeneratedHistory) -> None:
    _, after = _consecutive(history)
    del after.pairs[0]


def _plant_nonmonotonic_poll(history: GeneratedHistory) -> None:
    before, after = _consecutive(history)
    after.pairs.insert(0, before.pairs[-1])


def _consecutive(history: GeneratedHistory) -> tuple[Entry, Entry]:
    """Two calls of one final read of one partition, the second one of more than one record."""
    reader = history.rng.choice([poll.proc for poll in history.polls if poll.f == "final_read"])
    entries = [entry for poll in history.polls if poll.proc == reader for entry in poll.entries]
    for before in entries:
        after = next((each for each in entries if each.part == before.part and each.at == before.position), None)
        if after is not None and after is not before and len(after.pairs) > 1:
            return before, after
    raise AssertionError("all final reads took one call: generate a longer history")


def _plant_int_poll_skip(history: GeneratedHistory) -> None:
    entry = next(entry for entry in _long(history)[0].entries if len(entry.pairs) > 2)
    del entry.pairs[1]


def _plant_int_nonmonotonic_poll(history: GeneratedHistory) -> None:
    entry = next(entry for entry in _long(history)[0].entries if len(entry.pairs) > 2)
    entry.pairs[0], entry.pairs[1] = entry.pairs[1], entry.pairs[0]


def _long(history: GeneratedHistory) -> list[Poll]:
    polls = [poll for poll in history.polls if any(len(entry.pairs) > 2 for entry in poll.entries)]
    history.rng.shuffle(polls)
    return polls


def _plant_offset_regression(history: GeneratedHistory) -> None:
    reader = next(poll.proc for poll in history.polls if poll.entries)
    told = [entry for poll in history.polls if poll.proc == reader for entry in poll.entries if entry.part == 0]
    told[len(told) // 2].hw += 1000


def _plant_lso_violation(history: GeneratedHistory) -> None:
    entries = [entry for poll in history.polls for entry in poll.entries]
    entry = history.rng.choice(entries)
    entry.lso = entry.hw + 1


PLANTS = {
    "lost-write": _plant_lost_write,
    "unseen": _plant_unseen,
    "duplicate": _plant_duplicate,
    "inconsistent-offset": _plant_inconsistent_offset,
    "phantom": _plant_phantom,
    "corrupt": _plant_corrupt,
    "wrong-offset": _plant_wrong_offset,
    "send-reorder": _plant_send_reorder,
    "stale-ack": _plant_stale_ack,
    "poll-skip": _plant_poll_skip,
    "nonmonotonic-poll": _plant_nonmonotonic_poll,
    "int-poll-skip": _plant_int_poll_skip,
    "int-nonmonotonic-poll": _plant_int_nonmonotonic_poll,
    "offset-regression": _plant_offset_regression,
    "lso-violation": _plant_lso_violation,
}
"""How to plant each anomaly."""
