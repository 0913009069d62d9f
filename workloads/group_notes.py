"""Writes the history of a member of a group: what it owned and when, what it committed, where it begins.

Line formats are the contract with `squall.checkers.history` (docs/run-directory.md). Each process has a
`MemberHistoryWriter` of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from squall.workloads.client.cluster import Place
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.recorder import Recorder

NO_GENERATION = -1


class MemberIdentity(NamedTuple):
    """Identifies a member, as its coordinator knows it."""

    member_id: str = ""
    generation: int = NO_GENERATION


class HeartbeatTimes(NamedTuple):
    """The last request of those that keep a session that was answered well. ns on the run's clock; -1: none was."""

    sent: int = -1
    answered: int = -1


@dataclass(frozen=True, slots=True)
class MemberHistoryWriter:
    """`instance`: its group.instance.id, empty for a dynamic member."""

    recorder: Recorder
    process: int
    group: str
    instance: str = ""

    # ------------------------------------------------------------------------------------------------------ events

    def rejoining(self, who: MemberIdentity, why: str) -> None:
        """It is about to ask for the next generation."""
        self._event("rejoining", who, why=why)

    def joined(
        self,
        who: MemberIdentity,
        protocol: str,
        places: Collection[Place],
        *,
        leader: bool,
        beat: HeartbeatTimes | None = None,
    ) -> None:
        """A generation has its assignments. Nothing is read because of it yet. beat: None where nobody knows it."""
        known = {} if beat is None else {"beat": beat.sent}
        self._event("joined", who, leader=leader, protocol=protocol, parts=self._parts(places), **known)

    def assigned(
        self, who: MemberIdentity, begins: Mapping[Place, int], reset: Collection[Place], owned: Collection[Place]
    ) -> None:
        """It may read these partitions from now on, from these positions: the committed ones, or, of `reset`, where a
        group without one begins. `owned`: all that it has now.
        """
        told = {place: "reset" if place in reset else "committed" for place in begins}
        self._event("assigned", who, at=self._at(begins), owned=self._parts(owned), **{"from": self._at(told)})

    def revoked(self, who: MemberIdentity, left_at: Mapping[Place, int], beat: HeartbeatTimes) -> None:
        """It gives these partitions up, and has read up to there."""
        self._gone("revoked", who, left_at, beat)

    def lost(self, who: MemberIdentity, left_at: Mapping[Place, int], beat: HeartbeatTimes, why: str) -> None:
        """It learns that these are not its own any more; or it crashed."""
        self._gone("lost", who, left_at, beat, why=why)

    def still(self, who: MemberIdentity, what: str, ms: int) -> None:
        """From now on it stands still for so long, because the load wants that. what: pause (its application) or halt
        (its heartbeats as well).
        """
        self._event("still", who, what=what, ms=ms)

    def left(self, who: MemberIdentity, why: str, error: str) -> None:
        """It said that it goes, and this came of it."""
        self._event("left", who, why=why, **({"err": error} if error else {}))

    # -------------------------------------------------------------------------------------------------- operations

    def begin_commit(
        self,
        who: MemberIdentity,
        offsets: Mapping[Place, int],
        why: str,
        *,
        metadata: Mapping[Place, str] | None = None,
        txn: int = -1,
        producer: tuple[int, int] = (-1, -1),
    ) -> int:
        """Offsets are to be committed; `why`: manual, auto, revoke or close. `metadata`: what is committed with each;
        None: nobody knows. `txn`: the transaction that they are part of, and `producer` the id and epoch that it writes
        with. Flush before a byte of it is sent.
        """
        fields: dict[str, Any] = {**self._who(who), "at": self._at(offsets), "why": why}
        if metadata:
            fields["meta"] = self._at(metadata)
        if txn >= 0:
            fields |= {"x": txn, "pid": producer[0], "pe": producer[1]}
        return self.recorder.invoke(self.process, "commit", fields)

    def committed(
        self, op: int, status: OperationStatus, error: str, errors: Mapping[Place, str], *, unanswered: int = -1
    ) -> None:
        """`errors`: of the partitions that were not committed, where they differ. `unanswered`: requests for it that
        were sent and never answered; -1: nobody knows.
        """
        told: dict[str, Any] = {"errs": self._at(errors)} if errors else {}
        if unanswered >= 0:
            told["unanswered"] = unanswered
        self.recorder.complete(op, status, error, **told)

    def begin_fetch(self, who: MemberIdentity, places: Collection[Place], *, stable: bool, began_ns: int = -1) -> int:
        """It asks where its group stands, or did so at `began_ns`."""
        fields = {**self._who(who), "parts": self._parts(places), "stable": stable}
        return self.recorder.invoke(self.process, "fetch_offsets", fields, began_ns)

    def fetched(self, op: int, offsets: Mapping[Place, int], metadata: Mapping[Place, str], error: str) -> None:
        """Record the fetched offsets; -1: nothing is committed. `error`: why a partition has no answer, for any
        partition.
        """
        if error:
            self.recorder.complete(op, OperationStatus.FAIL, error)
            return
        told: dict[str, Any] = {"off": self._at(offsets)}
        if meta := {place: text for place, text in metadata.items() if offsets[place] >= 0}:
            told["meta"] = self._at(meta)
        self.recorder.complete(op, OperationStatus.OK, **told)

    # ------------------------------------------------------------------------------------------------------- parts

    def _gone(
        self, kind: str, who: MemberIdentity, left_at: Mapping[Place, int], beat: HeartbeatTimes, **more: Any
    ) -> None:
        at = self._at(left_at)
        times = {"beat": beat.sent, "beat_answered": beat.answered}
        self._event(kind, who, parts=list(at), at=at, **times, **more)

    def _event(self, kind: str, who: MemberIdentity, **fields: Any) -> None:
        self.recorder.event(kind, p=self.process, **self._who(who), **fields)

    def _who(self, who: MemberIdentity) -> dict[str, Any]:
        return {"g": self.group, "m": who.member_id, "gen": who.generation, "inst": self.instance}

    def _parts(self, places: Collection[Place]) -> list[int]:
        return sorted(self.recorder.partitions[place] for place in places)

    def _at(self, told: Mapping[Place, Any]) -> dict[int, Any]:
        return {self.recorder.partitions[place]: each for place, each in told.items()}
