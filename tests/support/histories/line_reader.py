"""An oracle for columns of the converter: derives them again from a history's lines, in quadratic time and without
shared code.

The columns say which reads follow each other, which marks (high watermark, last stable offset) a client had already
been answered, and how far final reads came. Both engines use them, so both would make a mistake of the converter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Place = tuple[int, int]
"""(process, partition)"""


class Read(NamedTuple):
    """A record that a reader got: the columns of `Record` about earlier reads."""

    op: int
    idx: int
    part: int
    off: int
    before: int
    inside: int


class Marks(NamedTuple):
    """For one partition of an answer: the highest high watermark and last stable offset that the client had been
    answered before.
    """

    op: int
    idx: int
    hw_before: int
    lso_before: int


class Answer(NamedTuple):
    """One partition's part of one answer."""

    place: Place
    listed: bool
    epoch: int
    hw: int
    lso: int


@dataclass(slots=True)
class Call:
    """One call of a final read, for one partition."""

    at: int
    position: int
    log_start: int


@dataclass(slots=True)
class Derived:
    """All columns that the oracle derives."""

    tries: dict[int, int] = field(default_factory=dict)
    """How often each value was sent, as its acknowledgement says."""
    reads: list[Read] = field(default_factory=list)
    marks: list[Marks] = field(default_factory=list)
    covers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """What final reads covered of each partition: the columns (cover_from, cover_to, cover_t0)."""
    seen: dict[int, int] = field(default_factory=dict)
    log_start: dict[int, int] = field(default_factory=dict)


def derive(lines: Iterable[bytes]) -> Derived:
    """Derive the columns from the lines of an undamaged history."""
    return _Walk([json.loads(line) for line in lines]).result()


class _Walk:
    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines
        self.invoked = {line["op"]: line for line in lines if line["e"] == "i"}
        self.roles = {line["p"]: line for line in lines if line["e"] == "p"}
        self.deletable = {
            line["part"]
            for line in lines
            if line["e"] == "t" and "delete" in line["cleanup"] and line["retention_ms"] >= 0
        }
        self.found = Derived()
        self.forgotten: dict[Place, int] = {}
        """The line at which a reader last lost its position in a partition."""
        self.got: dict[Place, list[tuple[int, int, int]]] = {}
        """Everything that a reader got of a partition: (number of the line, operation, offset)."""
        self.positions: dict[Place, tuple[int, int]] = {}
        self.answers: list[Answer] = []
        self.calls: dict[Place, list[Call]] = {}
        self.ends: dict[Place, int] = {}
        self.began: dict[Place, int] = {}

    def result(self) -> Derived:
        for number, line in enumerate(self.lines):
            if line["e"] == "i":
                self._invoke(number, line)
            elif line["e"] == "c":
                self._complete(number, line, self.invoked[line["op"]])
            elif line["e"] == "x" and line["kind"] == "rebalance":
                self._forget(number, line["p"])
            elif line["e"] == "x" and line["kind"] in ("assigned", "revoked", "lost"):
                self._forget(number, line["p"], [int(part) for part in line.get("parts", line["at"])])
        self._cover()
        return self.found

    def _forget(self, number: int, proc: int, parts: Iterable[int] | None = None) -> None:
        for place in {*self.got, *self.positions}:
            if place[0] == proc and (parts is None or place[1] in parts):
                self.forgotten[place] = number

    def _invoke(self, number: int, line: dict[str, Any]) -> None:
        f, proc = line["f"], line["p"]
        if f in ("poll", "final_read"):
            polled = [
                other for other in self.lines[:number] if other["e"] == "i" and other["p"] == proc and "at" in other
            ]
            earlier = [other for other in polled if other["f"] in ("poll", "final_read")]
            if earlier:
                self._forget(number, proc, [int(p) for p in earlier[-1]["at"] if p not in line["at"]])
        elif f in ("assign", "subscribe", "crash_client") or (
            f == "seek" and not line.get("at") and "part" not in line
        ):
            self._forget(number, proc)
        elif f == "seek":
            self._forget(number, proc, [int(p) for p in line.get("at", {})] or [line["part"]])
        elif f == "admin" and line.get("what") == "delete_records":
            self.deletable |= (
                {line["part"]} if "part" in line else {each["part"] for each in self.lines if each["e"] == "t"}
            )

    def _complete(self, number: int, line: dict[str, Any], invoked: dict[str, Any]) -> None:
        if invoked["f"] == "list_offsets" and line["st"] == 0 and invoked["which"] in ("latest", "lso"):
            hw, lso = (-1, line["off"]) if invoked["which"] == "lso" else (line["off"], -1)
            self._mark(line["op"], 0, Answer((invoked["p"], invoked["part"]), True, line["epoch"], hw, lso))
        if invoked["f"] == "send" and line["st"] == 0 and "n" in line:
            self.found.tries[invoked["v"]] = line["n"]
        if invoked["f"] not in ("poll", "final_read"):
            return
        idx = 0
        for entry, (part, position, hw, lso, log_start, pairs, epoch) in enumerate(line["got"]):
            place = invoked["p"], part
            self.found.log_start[part] = max(self.found.log_start.get(part, -1), log_start)
            if part in self.deletable and place in self.positions:
                at, when = self.positions[place]
                if when >= self.forgotten.get(place, -1) and log_start > at:
                    self.forgotten[place] = number
            for off, _ in pairs:
                self._read(number, line["op"], idx, place, off)
                idx += 1
            idx += not pairs
            self._mark(line["op"], entry, Answer(place, False, epoch, hw, lso))
            self.positions[place] = position, number
            if invoked["f"] == "final_read":
                self.began.setdefault(place, invoked["t"])
                self.calls.setdefault(place, []).append(Call(invoked["at"][str(part)], position, log_start))
        for part, end in line.get("end", {}).items():
            self.ends[invoked["p"], int(part)] = end
        if line["st"] != 0:
            self._forget(number, invoked["p"])

    def _read(self, number: int, op: int, idx: int, place: Place, off: int) -> None:
        own = [each for each in self.got.get(place, []) if each[0] >= self.forgotten.get(place, -1)]
        before, inside = (own[-1][2], int(own[-1][1] == op)) if own else (-1, 0)
        self.found.reads.append(Read(op, idx, place[1], off, before, inside))
        self.found.seen[place[1]] = max(self.found.seen.get(place[1], -1), off)
        self.got.setdefault(place, []).append((number, op, off))

    def _mark(self, op: int, idx: int, now: Answer) -> None:
        earlier = [each for each in self.answers if each.place == now.place]
        same = [each for each in earlier if each.epoch == now.epoch]
        before = []
        for which in ("hw", "lso"):
            fetched = [getattr(each, which) for each in same if not each.listed and getattr(each, which) >= 0]
            listed = [getattr(each, which) for each in same if each.listed and getattr(each, which) >= 0]
            known = [*fetched[-1:], *(listed if now.listed else self._before_the_last_fetch(same, which))[-1:]]
            if now.listed:
                known += [getattr(each, which) for each in earlier if 0 <= each.epoch < now.epoch]
            before.append(max(known, default=-1) if now.epoch >= 0 else -1)
        self.found.marks.append(Marks(op, idx, before[0], before[1]))
        self.answers.append(now)

    def _before_the_last_fetch(self, same: list[Answer], which: str) -> list[int]:
        """Return the marks of ListOffsets answers that came before the answer to the last fetch, and so before the next
        fetch was sent.
        """
        told = [each for each in same if getattr(each, which) >= 0]
        fetches = [index for index, each in enumerate(told) if not each.listed]
        return [getattr(each, which) for each in told[: fetches[-1]] if each.listed] if fetches else []

    def _cover(self) -> None:
        sends = [line for line in self.lines if line["e"] == "i" and line["f"] == "send"]
        transactional = {line["part"] for line in sends if "x" in line}
        for (proc, part), calls in sorted(self.calls.items(), key=lambda each: (each[0][1], each[0][0])):
            if part in transactional and self.roles[proc]["settings"].get("isolation") == 1:
                continue
            start, reached, whole = calls[0].at, calls[0].at, True
            for call in calls:
                whole = whole and call.at <= reached
                reached = max(reached, call.position)
            cover_from, cover_to, cover_t0 = self.found.covers.get(part, (-1, -1, -1))
            if whole and (reached, -start) > (cover_to, -cover_from):
                cover_from, cover_to = start, reached
            end = self.ends.get((proc, part), -1)
            log_start = next((call.log_start for call in calls if call.log_start >= 0), -1)
            if whole and 0 <= end <= reached and start <= max(log_start, 0):
                cover_t0 = max(cover_t0, self.began[proc, part])
            self.found.covers[part] = cover_from, cover_to, cover_t0
