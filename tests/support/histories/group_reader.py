"""Derives again from a history's lines who owned which partition, and which positions were committed and reported:
quadratic.

Both engines rest on what the converter says of consumer groups. A mistake there would be made by both; this is what its
tables are compared with. It is written from what docs/run-directory.md says of the lines and the tables, and
docs/verdicts.md of what proves two owners. It shares no code with the converter.
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
"""So long after a fault that kept brokers apart, a broker may not have heard of its successor."""


class Hold(NamedTuple):
    """A row of `holds`, with the group's name."""

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
    """A row of `commits`, with the group's name."""

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
    """A row of `fetches`, with the group's name."""

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
    """All of it."""

    holds: list[Hold] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)


def derive(lines: Iterable[bytes], nemesis: Iterable[bytes] = ()) -> Derived:
    """From the lines of a sound history and of its nemesis.jsonl."""
    told = [json.loads(line) for line in lines]
    faults = {fault["id"]: fault for fault in map(json.loads, nemesis)}
    return _Reading(told, [each for each in faults.values() if _keeps_apart(each)]).result()


def _keeps_apart(fault: Line) -> bool:
    return fault["began"] is not None and "out of sync" in fault["traits"] and "takes down" not in fault["traits"]


def _digest(line: Line, part: str) -> int:
    """Return the digest of a position's metadata."""
    return crc32(line["meta"][part].encode()) if part in line.get("meta", {}) else -1


class _Ask(NamedTuple):
    """An operation, and its completion: INFO and no time where it has none."""

    at: int
    """Number of the line."""
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
        """Of a commit that failed in part, the partitions without an error were committed."""
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
        """The line, the time and the way in which it ends, and the member's last heartbeat that was answered well."""
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
        """Return the last generation that assigned it, and when its member first learned of that."""
        before = [line["t"] for _, line in self._told(assigned, assigned["gen"], begin, begin) if part in line["parts"]]
        gen, told = assigned["gen"], min([*before, assigned["t"]])
        for number, line in self._joins(assigned):
            if begin < number < end and part in line["parts"] and (line["gen"] != gen or self._is_anew(number, line)):
                gen, told = line["gen"], line["t"]
        return gen, told

    def _commits_that_prove(self, begin: int, end: int, assigned: Line, part: int) -> list[int]:
        """Return when it sent the commits that were acknowledged, while it owned the partition, in no generation that
        is known not to assign it. A commit of no partition is appended nowhere.
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
        """All that tells this process of generations of this group."""
        return [(n, line) for n, line in self._events("joined") if (line["p"], line["g"]) == (of["p"], of["g"])]

    def _told(self, of: Line, gen: int, counted_at: int, until: int) -> list[tuple[int, Line]]:
        """Return the lines before the line `until` that assign this process the generation that has this number at the
        line `counted_at`.
        """
        joins = [(n, line) for n, line in self._joins(of) if n < until]
        anew = [n for n, line in joins if self._is_anew(n, line)]
        since = max((n for n in anew if n < counted_at), default=-1)
        next_ = min((n for n in anew if n > counted_at), default=until)
        return [(n, line) for n, line in joins if since <= n < next_ and line["gen"] == gen]

    def _is_anew(self, number: int, joined: Line) -> bool:
        """Return whether its coordinator may have removed it before, because it sent nothing for its session timeout.
        Then all may have gone, and generations are counted anew: earlier assignments count no more.
        """
        heard = [line["t"] for n, line in self._joins(joined) if n < number]
        silent_ns = joined["t"] - max([*heard, joined.get("beat", -1), -1])
        session_ns = self.settings[joined["p"]].get("session_timeout_ms", 0) * 1_000_000
        return "beat" in joined and 0 < session_ns < silent_ns
