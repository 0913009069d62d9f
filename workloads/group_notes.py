"""Writes a group member's part of the history: the partitions it owned and when, its commits, and the offsets at which
it started to read.

The line formats are the contract with `squall.checkers.history` (docs/run-directory.md). Each process of the history
has a `MemberHistoryWriter` of its own.
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
    """Identifies a member as its coordinator knows it: member id, and generation or member epoch."""

    member_id: str = ""
    generation: int = NO_GENERATION


class HeartbeatTimes(NamedTuple):
    """Holds when the last successful request that kept the member's session was sent and when it was answered, in ns on
    the run's clock; -1 if there was none.
    """

    sent: int = -1
    answered: int = -1


@dataclass(frozen=True, slots=True)
class MemberHistoryWriter:
    """Writes the history of one member. `instance` is its group.instance.id, empty for a dynamic member."""

    recorder: Recorder
    process: int
    group: str
    instance: str = ""

    # ------------------------------------------------------------------------------------------------------ events

    def rejoining(self, who: MemberIdentity, why: str) -> None:
        """Record that the member is about to join the next generation."""
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
        """Record the member's assignment in a new generation, before the member reads any of the new partitions. `beat`
        is None if the times of heartbeats are not known.
        """
        known = {} if beat is None else {"beat": beat.sent}
        self._event("joined", who, leader=leader, protocol=protocol, parts=self._parts(places), **known)

    def assigned(
        self, who: MemberIdentity, begins: Mapping[Place, int], reset: Collection[Place], owned: Collection[Place]
    ) -> None:
        """Record that the member begins to read partitions. `begins` maps each of them to its first offset: the
        committed offset, or for the partitions of `reset` the one that auto.offset.reset chooses. `owned` lists all
        partitions that the member has now.
        """
        told = {place: "reset" if place in reset else "committed" for place in begins}
        self._event("assigned", who, at=self._at(begins), owned=self._parts(owned), **{"from": self._at(told)})

    def revoked(self, who: MemberIdentity, left_at: Mapping[Place, int], beat: HeartbeatTimes) -> None:
        """Record that the member gives up partitions. `left_at` maps each of them to the member's position. `beat` has
        the times of the last request that kept the member's session.
        """
        self._gone("revoked", who, left_at, beat)

    def lost(self, who: MemberIdentity, left_at: Mapping[Place, int], beat: HeartbeatTimes, why: str) -> None:
        """Record that the member does not own partitions any more, because it learned of the loss or its process
        crashed. `left_at` maps each of them to the member's position. `beat` has the times of the last request that
        kept the member's session. `why` is a coordinator's error (UNKNOWN_MEMBER_ID), `crash`, or `library` if a client
        library reported the loss.
        """
        self._gone("lost", who, left_at, beat, why=why)

    def still(self, who: MemberIdentity, what: str, ms: int) -> None:
        """Record that the load pauses the member for `ms` from now on. `what` is `pause` (the application alone) or
        `halt` (its heartbeats as well).
        """
        self._event("still", who, what=what, ms=ms)

    def left(self, who: MemberIdentity, why: str, error: str) -> None:
        """Record that the member asked to leave the group, and the result."""
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
        """Record that offsets are about to be committed, and return the operation's id. The caller has to flush the
        recorder before it sends a byte of the request.

        `why` is manual, auto, revoke or close. `metadata` is committed with each offset; None if it is not known. `txn`
        is the transaction that the offsets are part of, and `producer` its producer id and epoch.
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
        """Record the result of a commit. `errors` holds the errors of partitions that differ from `error`. `unanswered`
        counts the requests for this commit that were sent and never answered; -1 if the number is not known.
        """
        told: dict[str, Any] = {"errs": self._at(errors)} if errors else {}
        if unanswered >= 0:
            told["unanswered"] = unanswered
        self.recorder.complete(op, status, error, **told)

    def begin_fetch(self, who: MemberIdentity, places: Collection[Place], *, stable: bool, began_ns: int = -1) -> int:
        """Record that the member asks for its group's committed offsets, now or at `began_ns`, and return the
        operation's id.
        """
        fields = {**self._who(who), "parts": self._parts(places), "stable": stable}
        return self.recorder.invoke(self.process, "fetch_offsets", fields, began_ns)

    def fetched(self, op: int, offsets: Mapping[Place, int], metadata: Mapping[Place, str], error: str) -> None:
        """Record the fetched committed offsets; -1 if nothing is committed. `error` says why some partition has no
        answer.
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
