"""An oracle for the converter's tables about consumer groups: derives from a history's lines which member owned which
partition, and which offsets were committed and fetched. Its time is quadratic.

Both engines use the converter's tables, so both would make a mistake of the converter. Tests compare the tables with
this module, which shares no code with the converter. It is written from the description of lines and tables in
docs/run-directory.md, and from docs/verdicts.md, which says what proves that a partition has two owners.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

Line = dict[str, Any]
OK, INFO = 0, 2
NOT_ENDED, REVOKED, LOST, CRASHED, LEFT = range(5)
"""How the ownership of a partition ended."""
HEARS_AFTER_NS = 10_000_000_000
"""How long after the end of a fault that separated brokers a broker may still not know its successor."""


class Hold(NamedTuple):
    """A row of the table `holds` (one ownership of a partition by a member), with the group's name."""

    proc: int
    group: str
    part: int
    gen: int
    pos: int
    begun: int
    t0: int
    t1: int
    how: int
    proved: int
    last_gen: int
    told: int


class Commit(NamedTuple):
    """A row of the table `commits`, with the group's name."""

    op: int
    proc: int
    group: str
    part: int
    off: int
    st: int
    t0: int
    t1: int
    gen: int
    txn: int
    late: int
    meta: int


class Fetch(NamedTuple):
    """A row of the table `fetches`, with the group's name."""

    op: int
    proc: int
    group: str
    part: int
    off: int
    stable: int
    t0: int
    t1: int
    meta: int


@dataclass(slots=True)
class Derived:
    """The rows of the three tables."""

    holds: list[Hold] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)


def derive(lines: Iterable[bytes], nemesis: Iterable[bytes] = ()) -> Derived:
    """Derive the tables from the lines of an undamaged history and of its nemesis.jsonl."""
    told = [json.loads(line) for line in lines]
    faults = {fault["id"]: fault for fault in map(json.loads, nemesis)}
    return _Reading(told, [each for each in faults.values() if _keeps_apart(each)]).result()


def _keeps_apart(fault: Line) -> bool:
    return fault["began"] is not None and "out of sync" in fault["traits"] and "takes down" not in fault["traits"]


def _digest(line: Line, part: str) -> int:
    """Return the digest of the metadata string that `part`'s committed offset has."""
    return crc32(line["meta"][part].encode()) if part in line.get("meta", {}) else -1


class _Ask(NamedTuple):
    """An operation and its completion. Without one, the completion is INFO with the time -1."""

    at: int
    """The number of the operation's line."""
    line: Line
    answered_at: int
    answer: Line


class _Reading:
    def __init__(self, lines: list[Line], apart: list[Line]) -> None:
        self.lines = lines
        self.apart = apart
        self.settings = {line["p"]: line["settings"] for line in lines if line["e"] == "p"}
        answers = {line["op"]: (number, line) for number, line in enumerate(lines) if line["e"] == "c"}
        never = len(lines), {"st": INFO, "t": -1}
        self.asks = [
            _Ask(number, line, *answers.get(line["op"], never)) for number, line in enumerate(lines) if line["e"] == "i"
        ]

    def result(self) -> Derived:
        found = Derived()
        for number, line in self._events("assigned"):
            found.holds += [self._hold(number, line, int(part)) for part in line["at"]]
        for ask in self.asks:
            if ask.line["f"] == "commit":
                found.commits += self._commits(ask)
            elif ask.line["f"] == "admin":
                found.commits += self._administered(ask)
            elif ask.line["f"] == "fetch_offsets" and ask.answer["st"] == OK:
                found.fetches += self._fetches(ask)
        return found

    def _events(self, kind: str) -> list[tuple[int, Line]]:
        return [(n, line) for n, line in enumerate(self.lines) if line["e"] == "x" and line["kind"] == kind]

    # ------------------------------------------------------------------------------------------------ operations

    def _commits(self, ask: _Ask) -> list[Commit]:
        """Return a row for each partition of a commit. In a commit that failed in part, partitions without an error
        were committed.
        """
        line, answer = ask.line, ask.answer
        late = int(answer.get("unanswered") != 0)
        return [
            Commit(
                line["op"], line["p"], line["g"], int(part), off, self._status(part, answer), line["t"], answer["t"],
                line["gen"], line.get("x", -1), late, _digest(line, part),
            )
            for part, off in line["at"].items()
        ]  # fmt: skip

    def _status(self, part: str, answer: Line) -> int:
        errors = answer.get("errs")
        return OK if errors and part not in errors else int(answer["st"])

    def _administered(self, ask: _Ask) -> list[Commit]:
        line, answer = ask.line, ask.answer
        off = {"reset_offsets": -1, "delete_offsets": -1, "expire_offsets": -1, "delete_group": -2}.get(line["what"])
        if off is None:
            return []
        about = line["op"], line["p"], line["group"], line.get("part", -1)
        return [Commit(*about, off, answer["st"], line["t"], answer["t"], -1, -1, 0, -1)]

    def _fetches(self, ask: _Ask) -> list[Fetch]:
        line, answer = ask.line, ask.answer
        about, when = (line["op"], line["p"], line["g"]), (line["t"], answer["t"])
        return [
            Fetch(*about, int(part), off, int(line["stable"]), *when, _digest(answer, part))
            for part, off in answer["off"].items()
        ]

    # ------------------------------------------------------------------------------------------------- ownership

    def _hold(self, begin: int, line: Line, part: int) -> Hold:
        end, t1, how, beat = self._end(begin, line["p"], part)
        last_gen, told = self._last_told(begin, end, line, part)
        begun = int(line["from"][str(part)] == "committed")
        proved = max(self._commits_that_prove(begin, end, line, part), default=-1)
        if beat >= line["t"] and not any(self._is_apart(beat, fault) for fault in self.apart):
            proved = max(proved, beat)
        at = line["at"][str(part)]
        return Hold(
            line["p"], line["g"], part, line["gen"], at, begun, line["t"], t1, how, proved, last_gen, told
        )  # fmt: skip

    def _end(self, begin: int, proc: int, part: int) -> tuple[int, int, int, int]:
        """Return how the ownership that began at line `begin` ended: (line, time, NOT_ENDED to LEFT, the member's last
        accepted heartbeat or -1).
        """
        for number, line in enumerate(self.lines[begin + 1 :], start=begin + 1):
            if line.get("p") != proc:
                continue
            if line["e"] == "i" and line["f"] == "crash_client":
                return number, line["t"], CRASHED, -1
            if line["e"] != "x":
                continue
            if line["kind"] == "left" or (line["kind"] == "assigned" and str(part) in line["at"]):
                return number, line["t"], LEFT, -1
            if line["kind"] in ("revoked", "lost") and part in line["parts"]:
                lost = CRASHED if line.get("why") == "crash" else LOST
                return number, line["t"], REVOKED if line["kind"] == "revoked" else lost, line["beat"]
        return len(self.lines), -1, NOT_ENDED, -1

    def _is_apart(self, t: int, fault: Line) -> bool:
        return t >= fault["began"] and (fault["ended"] is None or t <= fault["ended"] + HEARS_AFTER_NS)

    def _last_told(self, begin: int, end: int, assigned: Line, part: int) -> tuple[int, int]:
        """Return the last generation that assigned the partition to this owner, and when the owner first learned of it.
        """
        before = [line["t"] for _, line in self._told(assigned, assigned["gen"], begin, begin) if part in line["parts"]]
        gen, told = assigned["gen"], min([*before, assigned["t"]])
        for number, line in self._joins(assigned):
            if begin < number < end and part in line["parts"] and (line["gen"] != gen or self._is_anew(number, line)):
                gen, told = line["gen"], line["t"]
        return gen, told

    def _commits_that_prove(self, begin: int, end: int, assigned: Line, part: int) -> list[int]:
        """Return the times of the owner's commit requests that prove its ownership: they were acknowledged, sent while
        it owned the partition, and in a generation that may have assigned it. A commit without partitions proves
        nothing, because nothing is appended for it.
        """
        return [
            ask.line["t"]
            for ask in self.asks
            if begin < ask.at < end
            and (ask.line["f"], ask.line["p"], ask.line.get("g")) == ("commit", assigned["p"], assigned["g"])
            and ask.line["gen"] >= 0
            and any(commit.st == OK for commit in self._commits(ask))
            and self._may_assign(ask, part)
        ]

    def _may_assign(self, ask: _Ask, part: int) -> bool:
        told = self._told(ask.line, ask.line["gen"], ask.at, ask.answered_at)
        # A library may know its generation before the history does, also one that is counted anew.
        told = told or self._told(ask.line, ask.line["gen"], ask.answered_at, ask.answered_at)
        return not told or any(part in line["parts"] for _, line in told)

    # ----------------------------------------------------------------------------------------------- generations

    def _joins(self, of: Line) -> list[tuple[int, Line]]:
        """Return all events that gave this process an assignment of this group."""
        return [(n, line) for n, line in self._events("joined") if (line["p"], line["g"]) == (of["p"], of["g"])]

    def _told(self, of: Line, gen: int, counted_at: int, until: int) -> list[tuple[int, Line]]:
        """Return the events before the line `until` that gave this process its assignment of generation `gen`. Numbers
        of generations may start again; the one that was valid at the line `counted_at` is meant.
        """
        joins = [(n, line) for n, line in self._joins(of) if n < until]
        anew = [n for n, line in joins if self._is_anew(n, line)]
        since = max((n for n in anew if n < counted_at), default=-1)
        next_ = min((n for n in anew if n > counted_at), default=until)
        return [(n, line) for n, line in joins if since <= n < next_ and line["gen"] == gen]

    def _is_anew(self, number: int, joined: Line) -> bool:
        """Return whether generations may have started again at 1 before this event. That is possible if the member had
        sent nothing for its session timeout: then the group may have been empty.
        """
        heard = [line["t"] for n, line in self._joins(joined) if n < number]
        silent_ns = joined["t"] - max([*heard, joined.get("beat", -1), -1])
        session_ns = self.settings[joined["p"]].get("session_timeout_ms", 0) * 1_000_000
        return "beat" in joined and 0 < session_ns < silent_ns
