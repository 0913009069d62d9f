"""Histories of consumer groups, written by hand: assignments, commits, and reported committed offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from squall.checkers.history.tables import OK
from tests.support.histories.builder import HistoryBuilder, Other, Send

GROUP = "g"


class GroupHistory(HistoryBuilder):
    """A history of one group's members. Each call happens a millisecond after the one before it."""

    def member(self, **settings: Any) -> int:
        """Add a consumer, and return its process."""
        return self.process("reader", **{"group": GROUP, "isolation": 0, "auto_commit": False, **settings})

    def pipe(self, **settings: Any) -> int:
        """Add a process that reads, writes outputs in transactions, and commits its offsets in them."""
        return self.producer(**{"group": GROUP, "isolation": 1, "commits": "transaction", **settings})

    def joined(self, proc: int, parts: Iterable[int], gen: int = 1, beat: int | None = None) -> None:
        """Add the event that a member got its assignment of a generation. `beat` is the time of its last request that
        the coordinator accepted: -1 if there was none yet, None if that is not known.
        """
        known = {} if beat is None else {"beat": beat}
        self._of_group("joined", proc, gen, parts=list(parts), leader=False, protocol="range", **known)

    def assigned(self, proc: int, at: dict[int, int], gen: int = 1, begun: str = "committed") -> None:
        """Add the event that a member may read these partitions, from these offsets on."""
        positions = {str(part): position for part, position in at.items()}
        starts = dict.fromkeys(positions, begun)
        self._of_group("assigned", proc, gen, at=positions, owned=list(at), **{"from": starts})

    def revoked(self, proc: int, parts: Iterable[int], beat: int = -1, gen: int = 1) -> None:
        """Add the event that a member releases partitions. `beat` is the time of its last request that the coordinator
        accepted.
        """
        self._of_group("revoked", proc, gen, parts=list(parts), at={}, beat=beat)

    def lost(self, proc: int, parts: Iterable[int], why: str = "UNKNOWN_MEMBER_ID", beat: int = -1) -> None:
        """Add the event that a member learns that it has lost these partitions."""
        self._of_group("lost", proc, -1, parts=list(parts), at={}, beat=beat, why=why)

    def commit(
        self, proc: int, at: dict[int, int], *, st: int = OK, gen: int = 1, txn: Other | None = None, **more: Any
    ) -> Other:
        """Commit these offsets. With `st` INFO the outcome is not known; with -1 the operation never completes."""
        positions = {str(part): off for part, off in at.items()}
        inside = {} if txn is None else {"x": txn}
        fields = {"p": proc, "g": GROUP, "m": f"m{proc}", "gen": gen, "at": positions, "why": "manual", **inside}
        other = Other(self.tick(), "commit", fields)
        self.others.append(other)
        if st >= 0:
            other.t1, other.completion = self.tick(), {"st": st, "unanswered": 0, **more}
        return other

    def fetched(self, proc: int, off: dict[int, int], *, stable: bool = True) -> Other:
        """Add an OffsetFetch that returns these committed offsets."""
        fields = {"p": proc, "g": GROUP, "m": "", "gen": -1, "parts": list(off), "stable": stable}
        other = self.operation(proc, "fetch_offsets", **fields)
        other.completion["off"] = {str(part): offset for part, offset in off.items()}
        return other

    def with_metadata(self, operation: Other, text: str) -> Other:
        """Give each offset of a commit, or of a fetch of committed offsets, this metadata string."""
        where, offsets = (operation.fields, "at") if operation.f == "commit" else (operation.completion, "off")
        where["meta"] = dict.fromkeys(where[offsets], text)
        return operation

    def reset(self, proc: int, what: str = "reset_offsets", **more: Any) -> Other:
        """Add an administrator's change of the group's committed offsets."""
        return self.operation(proc, "admin", what=what, group=GROUP, **more)

    def remakes(self, proc: int, part: int = 0) -> int:
        """Delete the topic of a partition and create it again. Returns the partition of the new topic."""
        self.operation(proc, "admin", what="delete_topic", part=part)
        self._partitions.append({**self._partitions[part], "part": len(self._partitions)})
        return len(self._partitions) - 1

    def output(self, proc: int, src: int, part: int, off: int, txn: Other | None = None) -> Send:
        """Write the output that belongs to the input with the value `src`; it is acknowledged."""
        send = self.send(proc, part, txn=txn)
        send.src = src
        return self.ok(send, off)

    def _of_group(self, kind: str, proc: int, gen: int, **fields: Any) -> None:
        self.event(kind, p=proc, g=GROUP, m=f"m{proc}", gen=gen, inst="", **fields)
