"""Lines about consumer groups, into the tables of `squall.checkers.history.group_tables`.

A hold begins when a member says that it may now read a partition (`assigned`), and ends when it says that it no longer
does (`revoked`, before the coordinator hears of it), when it learns that the partition is not its own any more
(`lost`), or when it crashes. What a coordinator accepted of a member meanwhile proves that it still took it for one: a
commit in a generation that assigned the partition, because other replicas have to append it, and they follow the
coordinator's successor if there is one; a heartbeat only while no fault kept brokers apart, because one that nobody
tells of its successor goes on to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from squall.checkers.history.group_tables import (
    ANY,
    CRASHED,
    DELETED,
    FROM_COMMITTED,
    FROM_RESET,
    HELD,
    LEFT,
    LOST,
    REVOKED,
)
from squall.checkers.history.tables import OK, ClientProcess, History, PositionChange, offsets_of, whole

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


def session_ns(process: ClientProcess) -> int:
    """Return how long a member may be silent, ns; 0 if its settings do not say so."""
    timeout_ms = process.settings.get("session_timeout_ms")
    return timeout_ms * 1_000_000 if type(timeout_ms) is int else 0


def _generation(line: Mapping[str, Any]) -> int:
    """A generation or member epoch; -1 if the line has none. Kafka's have 32 bits."""
    gen = whole(line.get("gen", -1))
    if gen.bit_length() > 31:
        raise ValueError(f"{gen} is no generation")
    return gen


def _metadata(line: Mapping[str, Any], part: int) -> int:
    """CRC-32 of the metadata of a position; -1 if the line has none for this partition."""
    text = line.get("meta", {}).get(str(part))
    return -1 if text is None else crc32(text.encode())


@dataclass(slots=True)
class _OpenOwnership:
    group: int
    gen: int
    pos: int
    begun: int
    t0: int
    last_gen: int
    told: int
    proved: int = -1
    under_way: int = 0
    """Commits that were sent meanwhile and are not answered yet."""
    over: tuple[int, int] | None = None
    """Once it has ended: when, and how."""


_AssignmentsByGeneration = dict[int, dict[int, int]]
"""Generation -> partitions that it assigns to a process, and when the process was first told so."""
_CommitInFlight = tuple[list[tuple[int, _OpenOwnership]], _AssignmentsByGeneration]
"""What a commit may prove: the sender's holds by partition, and what the sender had been told of generations."""


class GroupTableBuilder:
    """Follows who holds what, and fills the tables of groups. ValueError and KeyError for lines that are none."""

    def __init__(
        self,
        history: History,
        name: Callable[[str], int],
        forget: Callable[[int, int], None],
        processes: Mapping[int, ClientProcess],
        partitions: Container[int],
        apart: Sequence[tuple[int, int]] = (),
    ) -> None:
        """name: a text's index into History.names. forget: the position of (process, partition) may have moved.
        apart: as `squall.checkers.nemesis_log.apart`.
        """
        self._history = history
        self._name = name
        self._forget = forget
        self._processes = processes
        self._partitions = partitions
        self._apart = apart
        self._holds: dict[tuple[int, int], _OpenOwnership] = {}
        self._told: dict[tuple[int, int], _AssignmentsByGeneration] = {}
        """Process and group -> what it was told of generations, since these may have been counted anew."""
        self._heard: dict[tuple[int, int], int] = {}
        """Process and group -> when it was told of a generation last."""
        self._sent: dict[int, _CommitInFlight] = {}
        """Commits of members that are under way."""

    # ---------------------------------------------------------------------------------------------- operations

    def asked(self, f: str, line: Mapping[str, Any], under_way: Mapping[int, Sequence[Any]]) -> None:
        """A commit, or a request for committed positions, begins. ValueError if its line is not sound. under_way:
        operations, the name first.
        """
        txn = line.get("x", -1)
        if txn != -1 and (txn not in under_way or under_way[txn][0] != "txn"):
            raise ValueError(f"a commit is part of {txn}, which is no transaction under way")
        at = offsets_of(line["at"]) if f == COMMIT else {}
        self._known(at if f == COMMIT else line["parts"])
        if not isinstance(line["g"], str):
            raise ValueError("a group that is no text")
        if any(off < 0 for off in at.values()):
            raise ValueError(f"{at} is committed, and no offset is below 0")
        if _generation(line) >= 0 and f == COMMIT:
            self._sends(line["op"], line["p"], self._name(line["g"]))

    def _known(self, parts: Iterable[Any]) -> list[int]:
        found = [whole(part) for part in parts]
        if not all(part in self._partitions for part in found):
            raise ValueError(f"a partition of {found} was never declared")
        return found

    def _sends(self, op: int, proc: int, group: int) -> None:
        """A member sends a commit: if it is acknowledged, however late, that is a proof for what it holds now."""
        held = [(part, hold) for (holder, part), hold in self._holds.items() if holder == proc and hold.group == group]
        for _, hold in held:
            hold.under_way += 1
        self._sent[op] = held, self._told.setdefault((proc, group), {})

    def answered(self, f: str, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any]) -> None:
        """Take the end of one of ANSWERED: `line` is its completion, with INFO and t = -1 where the history ended
        before it.
        """
        if f == "admin":
            self._administered(op, line, invoked)
            return
        proc, group, t0, t1 = invoked["p"], self._name(invoked["g"]), invoked["t"], line["t"]
        errors = line.get("errs", {})
        if f == FETCH:
            told = offsets_of(line.get("off", {})) if line["st"] == OK else {}
            for part, off in told.items():
                if str(part) not in errors and part in invoked["parts"]:
                    about = (op, proc, group, part, off, int(invoked.get("stable") is True))
                    self._history.fetches.append((*about, t0, t1, _metadata(line, part)))
            return
        gen, txn = whole(invoked.get("gen", -1)), whole(invoked.get("x", -1))
        late = int(line.get("unanswered") != 0)
        acknowledged = False
        for part, off in offsets_of(invoked["at"]).items():
            # Where partitions ended differently, those without an error were committed.
            st = OK if errors and str(part) not in errors else line["st"]
            acknowledged |= st == OK
            meta = _metadata(invoked, part)
            self._history.commits.append((op, proc, group, part, off, st, t0, t1, gen, txn, late, meta))
        held, sent_in = self._sent.pop(op, ([], {}))
        assigned = self._assigned(sent_in, proc, group, gen)
        for part, hold in held:
            # A commit of nothing is appended nowhere, and acknowledges nothing.
            if acknowledged and (assigned is None or part in assigned):
                hold.proved = max(hold.proved, t0)
            hold.under_way -= 1
            self._write(proc, part, hold)

    def _assigned(self, told: _AssignmentsByGeneration, proc: int, group: int, gen: int) -> Container[int] | None:
        """Return what a generation assigns to a process, by its answers before it sent; None where none had come.

        A library may know its generation before the history does, also one that is counted anew.
        """
        return told.get(gen, self._told.get((proc, group), {}).get(gen))

    def _administered(self, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any]) -> None:
        if invoked.get("what") in RESETS and isinstance(invoked.get("group"), str):
            group, part = self._name(invoked["group"]), whole(invoked.get("part", -1))
            off = DELETED if invoked["what"] == DELETION else ANY
            row = (op, invoked["p"], group, part, off, line["st"], invoked["t"], line["t"], -1, -1, 0, -1)
            self._history.commits.append(row)

    def sent(self, op: int, line: Mapping[str, Any], process: ClientProcess) -> None:
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
        group, gen = self._name(str(line["g"])), _generation(line)
        if kind == "joined":
            self._joined(t, proc, group, gen, line)
        elif kind == "assigned":
            starts, told = line.get("from", {}), self._told.get((proc, group), {}).get(gen, {})
            at = offsets_of(line["at"])
            self._known(at)
            for part, pos in at.items():
                self._ended(t, proc, part, LEFT, -1)
                begun = STARTS[starts.get(str(part), "reset")]
                self._holds[proc, part] = _OpenOwnership(group, gen, pos, begun, t, gen, told.get(part, t))
                self._history.group_activities.assigned(group, part, proc, resumes=begun == FROM_COMMITTED)
                self._moved(t, proc, kind, part, pos)
        elif kind in ("revoked", "lost"):
            how = REVOKED if kind == "revoked" else CRASHED if line.get("why") == "crash" else LOST
            beat, at = whole(line.get("beat", -1)), offsets_of(line.get("at", {}))
            for part in self._known(line["parts"]):
                self._ended(t, proc, part, how, beat)
                self._moved(t, proc, kind, part, at.get(part, -1))
        elif kind == "still":
            self._history.stills.append((t, t + whole(line["ms"]) * 1_000_000, proc, group, int(line["what"] == HALT)))
        else:
            self.gone(t, proc, kind)

    def _joined(self, t: int, proc: int, group: int, gen: int, line: Mapping[str, Any]) -> None:
        """A member is told what a generation assigns to it."""
        parts = self._known(line["parts"])
        self._history.grants.append((t, proc, group, gen, len(parts)))
        anew = self._may_be_anew(proc, group, t, line)
        if anew:
            self._told[proc, group] = {}
        told = self._told.setdefault((proc, group), {}).setdefault(gen, {})
        for part in parts:
            told.setdefault(part, t)
            hold = self._holds.get((proc, part))
            if hold is not None and hold.group == group and (anew or hold.last_gen != gen):
                hold.last_gen, hold.told = gen, t
        self._heard[proc, group] = t

    def _may_be_anew(self, proc: int, group: int, t: int, line: Mapping[str, Any]) -> bool:
        """Return whether its coordinator may have removed the member since it last heard from it. If so, later events
        may be of new generations with the numbers of old ones: an empty group counts anew. A member that writes no
        `beat` does not say when the coordinator last heard from it.
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
            if beat >= hold.t0 and not any(begin <= beat <= end for begin, end in self._apart):
                hold.proved = max(hold.proved, beat)
            hold.over = t, how
            self._history.group_activities.released(part, proc)
            self._write(proc, part, hold)

    def _write(self, proc: int, part: int, hold: _OpenOwnership) -> None:
        """Make a row of a hold, once it is over and all commits that may prove more of it are answered."""
        if hold.over is None or hold.under_way:
            return
        t1, how = hold.over
        about = proc, hold.group, part, hold.gen, hold.pos, hold.begun, hold.t0, t1, how
        self._history.holds.append((*about, hold.proved, hold.last_gen, hold.told))
        self._history.owned.add(part)
        self._history.owners.add(proc)
        self._history.resumed += hold.begun == FROM_COMMITTED

    def _moved(self, t: int, proc: int, kind: str, part: int, position: int) -> None:
        self._forget(proc, part)
        self._history.assignments.append(PositionChange(t, proc, kind, part, position))
