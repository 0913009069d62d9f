"""Parses lines about consumer groups into the tables of `squall.checkers.history.group_tables`.

An ownership begins when a member reports that it may read a partition (`assigned`). It ends when the member reports
that it no longer does (`revoked`, before the coordinator hears of it), when the member learns that it lost the
partition (`lost`), or when the member crashes.

During an ownership, two kinds of accepted requests prove that the coordinator takes the member for the owner:

- A commit, if the commit's generation assigned the partition. Other replicas had to append the commit; if another
  broker had become coordinator, these replicas would follow that broker instead.
- A heartbeat, if no fault kept brokers apart. A coordinator that has not heard of its successor still answers
  heartbeats.
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
from squall.checkers.history.tables import OK, ClientProcess, History, PositionChange, int64, offsets_of

COMMIT, FETCH = "commit", "fetch_offsets"
OPERATIONS = (COMMIT, FETCH)
ANSWERED = (*OPERATIONS, "admin")
EVENTS = ("joined", "assigned", "revoked", "lost", "left", "still")
DELETION = "delete_group"
RESETS = ("reset_offsets", "delete_offsets", DELETION, "expire_offsets")
"""Lists the requests of an administrator after which a group's committed position is not known; after DELETION the
group has none.
"""
GONE = {"crash_client": CRASHED, "left": LEFT}
HALT = "halt"
"""Is the value of `what` in a `still` event, which reports a member's pause, if the member's heartbeats stop, too."""
STARTS = {"reset": FROM_RESET, "committed": FROM_COMMITTED}


def session_ns(process: ClientProcess) -> int:
    """Return the session time-out of a member in ns; 0 if its settings do not have it."""
    timeout_ms = process.settings.get("session_timeout_ms")
    return timeout_ms * 1_000_000 if type(timeout_ms) is int else 0


def _generation(line: Mapping[str, Any]) -> int:
    """Return a line's generation or member epoch; -1 if the line has none. Raises ValueError beyond Kafka's 32 bits."""
    gen = int64(line.get("gen", -1))
    if gen.bit_length() > 31:
        raise ValueError(f"{gen} is no generation")
    return gen


def _metadata(line: Mapping[str, Any], part: int) -> int:
    """Return the CRC-32 of the metadata of a position; -1 if the line has none for this partition."""
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
    """Counts commits that were sent during the ownership and are not answered yet."""
    over: tuple[int, int] | None = None
    """Is (when it ended, how it ended) of an ownership that is over; else None."""


_AssignmentsByGeneration = dict[int, dict[int, int]]
"""Maps each generation to the partitions that it assigns to a process, and when the process first learned of each."""
_CommitInFlight = tuple[list[tuple[int, _OpenOwnership]], _AssignmentsByGeneration]
"""Is a commit under way: the (partition, ownership) pairs that the commit's acknowledgement would confirm, and the
assignments that the sender knew when it sent the commit.
"""


class GroupTableBuilder:
    """Follows the ownerships of all members, and fills the tables of groups. Raises ValueError and KeyError for
    malformed lines.
    """

    def __init__(
        self,
        history: History,
        name: Callable[[str], int],
        forget: Callable[[int, int], None],
        processes: Mapping[int, ClientProcess],
        partitions: Container[int],
        apart: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Create a builder for the tables of `history`. `name` returns a text's index in History.names. `forget` is
        called if the position of (process, partition) may have moved. `apart` holds the times in which faults kept
        brokers apart (`squall.checkers.nemesis_log.apart`).
        """
        self._history = history
        self._name = name
        self._forget = forget
        self._processes = processes
        self._partitions = partitions
        self._apart = apart
        self._holds: dict[tuple[int, int], _OpenOwnership] = {}
        self._told: dict[tuple[int, int], _AssignmentsByGeneration] = {}
        """Maps (process, group) to the assignments that the process learned. An entry is emptied if the process's
        session may have expired, because later generations may then have the numbers of earlier ones.
        """
        self._heard: dict[tuple[int, int], int] = {}
        """Maps process and group to when the process last learned of a generation, in ns."""
        self._sent: dict[int, _CommitInFlight] = {}
        """Maps the operation id of each unanswered commit to the ownerships that its acknowledgement would confirm."""

    # ---------------------------------------------------------------------------------------------- operations

    def asked(self, f: str, line: Mapping[str, Any], under_way: Mapping[int, Sequence[Any]]) -> None:
        """Record the begin of a commit, or of a request for committed positions. Raises ValueError for a malformed
        line. `under_way` holds the operations without a completion; each begins with its name.
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
        # A commit without a generation comes from no member.
        if _generation(line) >= 0 and f == COMMIT:
            self._sends(line["op"], line["p"], self._name(line["g"]))

    def _known(self, parts: Iterable[Any]) -> list[int]:
        found = [int64(part) for part in parts]
        if not all(part in self._partitions for part in found):
            raise ValueError(f"a partition of {found} was never declared")
        return found

    def _sends(self, op: int, proc: int, group: int) -> None:
        """Record that a member sends a commit. An acknowledgement, however late, proves that the coordinator took the
        member for the owner of the partitions that the member owns now.
        """
        held = [(part, hold) for (holder, part), hold in self._holds.items() if holder == proc and hold.group == group]
        for _, hold in held:
            hold.under_way += 1
        self._sent[op] = held, self._told.setdefault((proc, group), {})

    def answered(self, f: str, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any]) -> None:
        """Record the completion of one of the operations in ANSWERED. If the history ended before it, `line` has the
        status INFO and the time -1.
        """
        if f == "admin":
            self._administered(op, line, invoked)
            return
        proc, group, t0, t1 = invoked["p"], self._name(invoked["g"]), invoked["t"], line["t"]
        errors = line.get("errs", {})
        if f == FETCH:
            reported = offsets_of(line.get("off", {})) if line["st"] == OK else {}
            for part, off in reported.items():
                if str(part) not in errors and part in invoked["parts"]:
                    about = (op, proc, group, part, off, int(invoked.get("stable") is True))
                    self._history.fetches.append((*about, t0, t1, _metadata(line, part)))
            return
        gen, txn = int64(invoked.get("gen", -1)), int64(invoked.get("x", -1))
        # If the client does not report it, a request may still be under way.
        late = int(line.get("unanswered") != 0)
        acknowledged = False
        for part, off in offsets_of(invoked["at"]).items():
            # If the partitions' results differ, the partitions without an error were committed.
            st = OK if errors and str(part) not in errors else line["st"]
            acknowledged |= st == OK
            meta = _metadata(invoked, part)
            self._history.commits.append((op, proc, group, part, off, st, t0, t1, gen, txn, late, meta))
        held, sent_in = self._sent.pop(op, ([], {}))
        assigned = self._assigned(sent_in, proc, group, gen)
        for part, hold in held:
            # A commit without offsets is not appended, so its acknowledgement proves nothing.
            if acknowledged and (assigned is None or part in assigned):
                hold.proved = max(hold.proved, t0)
            hold.under_way -= 1
            self._write(proc, part, hold)

    def _assigned(self, reported: _AssignmentsByGeneration, proc: int, group: int, gen: int) -> Container[int] | None:
        """Return the partitions that a generation assigns to a process; None if the process never learned of the
        generation. `reported` has the assignments that the process had reported when it sent its request.

        A client library may use a generation before the history reports its assignment. So if `reported` lacks the
        generation, assignments that were reported later are used.
        """
        return reported.get(gen, self._told.get((proc, group), {}).get(gen))

    def _administered(self, op: int, line: Mapping[str, Any], invoked: Mapping[str, Any]) -> None:
        if invoked.get("what") in RESETS and isinstance(invoked.get("group"), str):
            group, part = self._name(invoked["group"]), int64(invoked.get("part", -1))
            off = DELETED if invoked["what"] == DELETION else ANY
            row = (op, invoked["p"], group, part, off, line["st"], invoked["t"], line["t"], -1, -1, 0, -1)
            self._history.commits.append(row)

    def sent(self, op: int, line: Mapping[str, Any], process: ClientProcess) -> None:
        """Record that a send begins. If its line has an input in `src`, the sent record is an output of that input."""
        if "src" in line:
            group = self._name(str(process.settings.get("group", "")))
            row = (op, process.proc, group, line["part"], line["v"], int64(line["src"]))
            self._history.outputs.append(row)

    # -------------------------------------------------------------------------------------------------- events

    def event(self, kind: str, proc: int, line: Mapping[str, Any]) -> None:
        """Record an event; events that are not about groups change nothing."""
        if kind not in EVENTS or proc == -1:
            return
        t = int64(line["t"])
        group, gen = self._name(str(line["g"])), _generation(line)
        if kind == "joined":
            self._joined(t, proc, group, gen, line)
        elif kind == "assigned":
            starts, reported = line.get("from", {}), self._told.get((proc, group), {}).get(gen, {})
            at = offsets_of(line["at"])
            self._known(at)
            for part, pos in at.items():
                # Assigned again without a release in between: the earlier ownership ends here.
                self._ended(t, proc, part, LEFT, -1)
                begun = STARTS[starts.get(str(part), "reset")]
                self._holds[proc, part] = _OpenOwnership(group, gen, pos, begun, t, gen, reported.get(part, t))
                self._history.group_activities.assigned(group, part, proc, resumes=begun == FROM_COMMITTED)
                self._moved(t, proc, kind, part, pos)
        elif kind in ("revoked", "lost"):
            how = REVOKED if kind == "revoked" else CRASHED if line.get("why") == "crash" else LOST
            beat, at = int64(line.get("beat", -1)), offsets_of(line.get("at", {}))
            for part in self._known(line["parts"]):
                self._ended(t, proc, part, how, beat)
                self._moved(t, proc, kind, part, at.get(part, -1))
        elif kind == "still":
            self._history.stills.append((t, t + int64(line["ms"]) * 1_000_000, proc, group, int(line["what"] == HALT)))
        else:
            self.gone(t, proc, kind)

    def _joined(self, t: int, proc: int, group: int, gen: int, line: Mapping[str, Any]) -> None:
        """Record that a member learned what a generation assigns to it."""
        parts = self._known(line["parts"])
        self._history.grants.append((t, proc, group, gen, len(parts)))
        anew = self._session_may_have_expired(proc, group, t, line)
        if anew:
            self._told[proc, group] = {}
        reported = self._told.setdefault((proc, group), {}).setdefault(gen, {})
        for part in parts:
            reported.setdefault(part, t)
            hold = self._holds.get((proc, part))
            # Within one generation the first time remains: later responses of it report nothing new.
            if hold is not None and hold.group == group and (anew or hold.last_gen != gen):
                hold.last_gen, hold.told = gen, t
        self._heard[proc, group] = t

    def _session_may_have_expired(self, proc: int, group: int, t: int, line: Mapping[str, Any]) -> bool:
        """Return whether the member's session may have expired by `t`, because it had not heard from the coordinator
        for so long. If so, the group may have become empty, and its next generations may have the numbers of earlier
        ones. `line` reports in `beat` when the member last heard from the coordinator; without that field nothing is
        known, and False is returned.
        """
        heard = max(int64(line.get("beat", -1)), self._heard.get((proc, group), -1))
        return "beat" in line and 0 < session_ns(self._processes[proc]) < t - heard

    def gone(self, t: int, proc: int, how: str) -> None:
        """End all ownerships of a process that crashed (`crash_client`) or left its group (`left`)."""
        if how in GONE:
            for part in [part for holder, part in self._holds if holder == proc]:
                self._ended(t, proc, part, GONE[how], -1)

    def finish(self) -> None:
        """End the history. An ownership that has not ended lasts until the end of the history."""
        for proc, part in list(self._holds):
            self._ended(-1, proc, part, HELD, -1)

    def _ended(self, t: int, proc: int, part: int, how: int, beat: int) -> None:
        hold = self._holds.pop((proc, part), None)
        if hold is not None:
            # An earlier heartbeat shows a member, but not yet the owner of this partition.
            if beat >= hold.t0 and not any(begin <= beat <= end for begin, end in self._apart):
                hold.proved = max(hold.proved, beat)
            hold.over = t, how
            self._history.group_activities.released(part, proc)
            self._write(proc, part, hold)

    def _write(self, proc: int, part: int, hold: _OpenOwnership) -> None:
        """Write an ownership to its table, once it has ended and all its commits are answered: each answer may still
        change when the ownership was last confirmed (`proved`).
        """
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
