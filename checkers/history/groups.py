"""Lines about consumer groups, into the tables of `checkers.history.group_tables`.

A hold begins when a member says that it may now read a partition (`assigned`), and ends when it says that it no longer
does (`revoked`, before the coordinator hears of it), when it learns that the partition is not its own any more
(`lost`), or when it crashes. What a coordinator accepted of a member meanwhile proves that it still took it for one: a
commit in a generation that assigned the partition, because other replicas have to append it, and they follow the
coordinator's successor if there is one; a heartbeat only while no fault kept brokers apart, because one that nobody
tells of its successor goes on to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.history.group_tables import ANY, CRASHED, DELETED, FROM_COMMITTED, FROM_RESET, HELD, LEFT, LOST, REVOKED
from checkers.history.tables import OK, Assignment, History, Process, offsets_of, whole

COMMIT, FETCH = "commit", "fetch_offsets"
OPERATIONS = (COMMIT, FETCH)
ANSWERED = (*OPERATIONS, "admin")
EVENTS = ("joined", "assigned", "revoked", "lost", "left", "still")
DELETION = "delete_group"
RESETS = ("reset_offsets", "delete_offsets", DELETION, "expire_offsets")
"""What an administrator asks for after which a position may be any, or none; after DELETION there is none."""
GONE = {"crash_client": CRASHED, "left": LEFT}
HALT = "halt"
"""What a member does that stands still with its heartbeats."""
STARTS = {"reset": FROM_RESET, "committed": FROM_COMMITTED}


def session_ns(process: Process) -> int:
    """How long a member may be silent; 0 where its settings do not say so."""
    timeout_ms = process.settings.get("session_timeout_ms")
    return timeout_ms * 1_000_000 if type(timeout_ms) is int else 0


@dataclass(slots=True)
class _Holding:
    group: int
    gen: int
    pos: int
    begun: int
    t0: int
    last_gen: int
    told: int
    proved: int = -1


class Groups:
    """Follows who holds what, and fills the tables of groups. ValueError and KeyError for lines that are none."""

    def __init__(
        self,
        history: History,
        name: Callable[[str], int],
        forget: Callable[[int, int], None],
        processes: Mapping[int, Process],
        apart: Sequence[tuple[int, int]] = (),
    ) -> None:
        """name: a text's index into History.names. forget: the position of (process, partition) may have moved.
        apart: as `checkers.nemesis_log.apart`.
        """
        self._history = history
        self._name = name
        self._forget = forget
        self._processes = processes
        self._apart = apart
        self._holds: dict[tuple[int, int], _Holding] = {}
        self._told: dict[tuple[int, int, int], dict[int, int]] = {}
        """Process, group and generation -> partitions that this one assigns to it, and when it was first told so."""
        self._heard: dict[tuple[int, int], int] = {}
        """Process and group -> when it was told of a generation last."""

    # ---------------------------------------------------------------------------------------------- operations

    def asked(
        self, f: str, line: Mapping[str, Any], known: Container[int], under_way: Mapping[int, Sequence[Any]]
    ) -> None:
        """A commit, or a request for committed positions, begins. ValueError if its line is not sound. known:
        partitions. under_way: operations, the name first.
        """
        txn = line.get("x", -1)
        if txn != -1 and (txn not in under_way or under_way[txn][0] != "txn"):
            raise ValueError(f"a commit is part of {txn}, which is no transaction under way")
        parts = offsets_of(line["at"]) if f == COMMIT else [whole(part) for part in line["parts"]]
        if not isinstance(line["g"], str) or not all(part in known for part in parts):
            raise ValueError("a group that is no text, or a partition that was never declared")
        whole(line.get("gen", -1))

    def answered(self, f: str, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any]) -> None:
        """One of ANSWERED ended: `line` is its completion, with INFO and t = -1 where the history ended before it."""
        if f == "admin":
            self._administered(op, line, invoked)
            return
        proc, group, t0, t1 = invoked["p"], self._name(invoked["g"]), invoked["t"], line["t"]
        errors = line.get("errs", {})
        if f == FETCH:
            told = offsets_of(line.get("off", {})) if line["st"] == OK else {}
            for part, off in told.items():
                if str(part) not in errors and part in invoked["parts"]:
                    row = (op, proc, group, part, off, int(invoked.get("stable") is True), t0, t1)
                    self._history.fetches.append(row)
            return
        for part in offsets_of(invoked["at"]):
            # Where partitions ended differently, those without an error were committed.
            st = OK if errors and str(part) not in errors else line["st"]
            self._commit(op, group, part, st, t1, invoked, late=line.get("unanswered") != 0)
        # A commit of nothing is appended nowhere.
        if line["st"] == OK and invoked.get("gen", -1) >= 0 and invoked["at"]:
            gen = invoked["gen"]
            for (holder, part), hold in self._holds.items():
                if holder == proc and hold.group == group and t0 >= hold.t0 and self._assigns(proc, part, group, gen):
                    hold.proved = max(hold.proved, t0)

    def _assigns(self, proc: int, part: int, group: int, gen: int) -> bool:
        """Whether a generation assigned it to this process, by all that this one was told of it."""
        told = self._told.get((proc, group, gen))
        return told is None or part in told

    def _commit(
        self, op: int, group: int, part: int, st: int, t1: int, invoked: Mapping[str, Any], *, late: bool
    ) -> None:
        off, gen, txn = whole(invoked["at"][str(part)]), whole(invoked.get("gen", -1)), whole(invoked.get("x", -1))
        if off < 0:
            raise ValueError(f"offset {off} is committed")
        self._history.commits.append((op, invoked["p"], group, part, off, st, invoked["t"], t1, gen, txn, int(late)))

    def _administered(self, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any]) -> None:
        if invoked.get("what") in RESETS and isinstance(invoked.get("group"), str):
            group, part = self._name(invoked["group"]), whole(invoked.get("part", -1))
            off = DELETED if invoked["what"] == DELETION else ANY
            row = (op, invoked["p"], group, part, off, line["st"], invoked["t"], line["t"], -1, -1, 0)
            self._history.commits.append(row)

    def sent(self, op: int, line: Mapping[str, Any], process: Process) -> None:
        """A send begins. One that says of which input it was made is an output."""
        if "src" in line:
            group = self._name(str(process.settings.get("group", "")))
            row = (op, process.proc, group, line["part"], line["v"], whole(line["src"]))
            self._history.outputs.append(row)

    # -------------------------------------------------------------------------------------------------- events

    def event(self, kind: str, proc: int, line: Mapping[str, Any]) -> None:
        """Any event; those that are none of groups change nothing."""
        if kind not in EVENTS or proc == -1:
            return
        t = whole(line["t"])
        group, gen = self._name(str(line["g"])), whole(line.get("gen", -1))
        if kind == "joined":
            parts = [whole(part) for part in line["parts"]]
            self._history.grants.append((t, proc, group, gen, len(parts)))
            for hold in filter(None, (self._holds.get((proc, part)) for part in parts)):
                if hold.group == group and hold.last_gen != gen:
                    hold.last_gen, hold.told = gen, t
            before = {} if self._may_be_new(proc, group, t, line) else self._told.get((proc, group, gen), {})
            self._told[proc, group, gen] = {**dict.fromkeys(parts, t), **before}
            self._heard[proc, group] = t
        elif kind == "assigned":
            starts, told = line.get("from", {}), self._told.get((proc, group, gen), {})
            for part, pos in offsets_of(line["at"]).items():
                self._ended(t, proc, part, LEFT, -1)
                begun = STARTS[starts.get(str(part), "reset")]
                self._holds[proc, part] = _Holding(group, gen, pos, begun, t, gen, told.get(part, t))
                self._history.activities.given(group, part, proc, resumes=begun == FROM_COMMITTED)
                self._moved(t, proc, kind, part, pos)
        elif kind in ("revoked", "lost"):
            how = REVOKED if kind == "revoked" else CRASHED if line.get("why") == "crash" else LOST
            beat, at = whole(line.get("beat", -1)), offsets_of(line.get("at", {}))
            for part in [whole(part) for part in line["parts"]]:
                self._ended(t, proc, part, how, beat)
                self._moved(t, proc, kind, part, at.get(part, -1))
        elif kind == "still":
            self._history.stills.append((t, t + whole(line["ms"]) * 1_000_000, proc, group, int(line["what"] == HALT)))
        else:
            self.gone(t, proc, kind)

    def _may_be_new(self, proc: int, group: int, t: int, line: Mapping[str, Any]) -> bool:
        """Whether its coordinator may have removed it since it was last heard of. Then what it is told now is of a
        generation that may have the number of an old one: where all have gone, they are counted anew. Who writes no
        `beat` does not say when it was last heard of.
        """
        heard = max(whole(line.get("beat", -1)), self._heard.get((proc, group), -1))
        return "beat" in line and 0 < session_ns(self._processes[proc]) < t - heard

    def gone(self, t: int, proc: int, how: str) -> None:
        """A process that crashed (`crash_client`) or left its group (`left`) holds nothing any more."""
        if how in GONE:
            for part in [part for holder, part in self._holds if holder == proc]:
                self._ended(t, proc, part, GONE[how], -1)

    def finish(self) -> None:
        """The history is over: what is held is held to its end."""
        for proc, part in list(self._holds):
            self._ended(-1, proc, part, HELD, -1)

    def _ended(self, t: int, proc: int, part: int, how: int, beat: int) -> None:
        hold = self._holds.pop((proc, part), None)
        if hold is not None:
            known = beat >= hold.t0 and not any(begin <= beat <= end for begin, end in self._apart)
            proved = max(hold.proved, beat) if known else hold.proved
            row = (
                proc,
                hold.group,
                part,
                hold.gen,
                hold.pos,
                hold.begun,
                hold.t0,
                t,
                how,
                proved,
                hold.last_gen,
                hold.told,
            )
            self._history.holds.append(row)
            self._history.owned.add(part)
            self._history.owners.add(proc)
            self._history.resumed += hold.begun == FROM_COMMITTED

    def _moved(self, t: int, proc: int, kind: str, part: int, position: int) -> None:
        self._forget(proc, part)
        self._history.assignments.append(Assignment(t, proc, kind, part, position))
