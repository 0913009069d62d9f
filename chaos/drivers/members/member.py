"""Runs a library's group member inside the driver program: polls and commits on request, and reports all callbacks.

Before partitions are revoked, the callback asks the harness which offsets to commit, so that the history has the commit
before its request is sent. The records of a poll are reported before any callback inside that poll, so that no record
is reported after its partition was given up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from squall.broker.overriding import override
from squall.chaos.drivers.library import FAIL, INFO, OK, DriverConfig, OffsetOutOfRange, Place, ReadRecord
from squall.chaos.drivers.members.contract import (
    CommitResult,
    FatalMemberError,
    MemberAdapter,
    MemberGeneration,
    MemberLibrary,
    RebalanceListener,
)
from squall.chaos.drivers.reading import EMPTY_EVERY_S, MessageSink
from squall.workloads.payload import verify

POLL_S = 0.1
ANSWER_S = 60.0
"""Limits, in seconds, how long a callback waits for the harness. The harness replies within milliseconds, unless it is
gone or stopped.
"""
OTHER_MEMBER = "NOT_THE_MEMBER"
"""Is the error of a commit that was not sent: it was requested for another member id or generation than the library
has.
"""
CHANGED = "GENERATION_CHANGED"
"""Is the error of a commit that succeeded, but during which the library changed its member id or generation. The
library may have sent the request with the new ones, so the result for the old ones is unknown.
"""


class MemberWorker(RebalanceListener):
    """Runs one group member. The harness's requests come as method calls, and its replies to callbacks through the
    queue `answers`.
    """

    def __init__(
        self, library: MemberLibrary, config: DriverConfig, out: MessageSink, answers: queue.SimpleQueue[list[Any]]
    ) -> None:
        self._out, self._answers, self._config = out, answers, config
        self._at: dict[Place, int] = {}
        """Maps each partition that is being read to its next offset."""
        self._left_at: dict[Place, int] = {}
        """Maps each partition that `rewind` has paused to the offset that would have been read next."""
        self._missing: dict[Place, int] = {}
        """Maps each owned partition without a start offset to the time, in ns, at which it was assigned or rewound.
        Every OffsetFetch for the partition is sent after that time.
        """
        self._turn = threading.RLock()
        """Guards the positions of partitions, because the library may call back from a thread of its own."""
        self._began_ns, self._from = time.monotonic_ns(), dict[Place, int]()
        """Hold the time, in ns, at which the current poll began or has last reported records, and the next offset of
        each partition at that time.
        """
        self._empty_told: dict[Place, float] = {}
        self.adapter: MemberAdapter = library.member(config, self)

    # ------------------------------------------------------------------------------------------ asked by the harness

    def poll(self) -> None:
        """Poll once; send what the poll returned, then ["p", member id, generation]."""
        try:
            self._begin()
            self._began_ns, self._from = time.monotonic_ns(), dict(self._at)
            self.report_records(self.adapter.poll(POLL_S))
        except FatalMemberError as over:
            self._out.send("out", str(over))
        except OffsetOutOfRange as gone:
            self._recover(gone)
        except Exception as error:  # libraries have no common base class of errors; polls continue after them
            self._out.send("e", f"{type(error).__name__}: {error}")
            time.sleep(POLL_S)
        self._out.send("p", *self.adapter.member_generation())

    def commit(self, member_id: str, generation: int, offsets: Sequence[Sequence[Any]]) -> None:
        """Commit offsets as this member id and generation. If the library has another id or generation by now, fail
        without a request.
        """
        asked = {(topic, index): position for topic, index, position in offsets}
        self._kept(self._commit_as(MemberGeneration(member_id, generation), asked), now=False)

    def identity_of(self, who: MemberGeneration) -> Any:
        """Return the group metadata that a transactional producer needs to commit offsets for the member `who`; None if
        the library has another member id or generation by now.
        """
        # Before the comparison: if the member changes in between, it fails, and no metadata of another generation gets
        # out.
        taken = self.adapter.group_metadata()
        return taken if self.adapter.member_generation() == who else None

    def leave(self) -> None:
        """Close the consumer, which gives up all its partitions."""
        try:
            self.adapter.close()
        except Exception as error:  # whatever it raises, it has ended
            self._out.send("e", f"{type(error).__name__}: {error}")
        self._out.send("left")

    def _commit_as(self, who: MemberGeneration, offsets: Mapping[Place, int]) -> CommitResult:
        """Commit offsets as the given member. The result is FAIL if the library's member id or generation had changed
        before the request, and INFO if it changed after that.
        """
        if self.adapter.member_generation() != who:
            return CommitResult(FAIL, OTHER_MEMBER)
        kept = self.adapter.commit(offsets)
        changed = kept.status == OK and self.adapter.member_generation() != who
        return CommitResult(INFO, CHANGED) if changed else kept

    # ------------------------------------------------------------------------------------------- called by the library

    @override
    def on_assigned(self, added: Collection[Place], owned: Collection[Place]) -> None:
        with self._turn:
            self._missing |= dict.fromkeys(added, time.monotonic_ns())
        self._out.send("joined", *self.adapter.member_generation(), [list(place) for place in sorted(owned)])

    @override
    def offsets_to_commit(self, places: Collection[Place]) -> Mapping[Place, int]:
        with self._turn:
            begun = {place: self._at[place] for place in places if place in self._at}
        if not begun:
            return {}
        self._out.send("giving", *self.adapter.member_generation(), _rows(begun))
        try:
            _, offsets = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            return {}
        return {(topic, index): position for topic, index, position in offsets}

    @override
    def on_revoked(self, places: Collection[Place], kept: CommitResult | None) -> None:
        if kept is not None:
            self._kept(kept, now=True)
        self._drop("gave", places)

    @override
    def on_lost(self, places: Collection[Place]) -> None:
        self._drop("lost", places)

    @override
    def report_records(self, records: Sequence[ReadRecord]) -> None:
        """Report these records. That a partition has no new records is reported only every EMPTY_EVERY_S seconds."""
        with self._turn:
            found: dict[Place, tuple[list[Any], list[Any]]] = {}
            for record in records:
                pairs, bad = found.setdefault(record.place, ([], []))
                value, why = verify(record.value, record.key, record.headers, record.timestamp_ms)
                pairs.append([record.offset, value])
                if why:
                    bad.append([record.offset, why])
                self._at[record.place] = record.offset + 1
            now = time.monotonic()
            for place in self._at:
                if place not in found and now - self._empty_told.get(place, 0.0) >= EMPTY_EVERY_S:
                    self._empty_told[place] = now
                    found[place] = ([], [])
            if found:
                parts = [[*place, self._at[place], *pairs_and_bad] for place, pairs_and_bad in found.items()]
                self._out.send("r", self._began_ns, _rows(self._from), parts)
            self._began_ns, self._from = time.monotonic_ns(), dict(self._at)

    def rewind(self) -> None:
        """Go back to the committed offsets. The next poll fetches them from the group's coordinator."""
        with self._turn:
            self.adapter.stop_reading(list(self._at))
            self._missing |= dict.fromkeys(self._at, time.monotonic_ns())
            self._left_at |= self._at
            self._at.clear()

    # --------------------------------------------------------------------------------------------------------- parts

    def _begin(self) -> None:
        """Fetch the committed offsets of owned partitions that have no position, and start to read those that have one
        now.
        """
        with self._turn:
            missing, began_ns = sorted(self._missing), min(self._missing.values(), default=0)
        if not missing:
            return
        who, stable = self.adapter.member_generation(), self.adapter.stable
        try:
            standing = self.adapter.committed_offsets(missing)
        except Exception as error:  # libraries have no common base class; the next poll asks again
            why = f"{type(error).__name__}: {error}"
            self._out.send("stood", *who, began_ns, stable, [], [list(place) for place in missing], why)
            return
        self._out.send("stood", *who, began_ns, stable, _rows(standing), [list(place) for place in missing], "")
        unset = [place for place, position in standing.items() if position < 0]
        bounds = self.adapter.bounds(unset) if unset else {}
        lowest = {place: low for place, (low, _) in bounds.items()}
        begins = {place: lowest.get(place, -1) if position < 0 else position for place, position in standing.items()}
        # Check self._missing again: a callback may have revoked partitions during the calls above.
        begins = {place: position for place, position in begins.items() if position >= 0 and place in self._missing}
        begun = self.adapter.start_reading(begins)
        with self._turn:
            at = {place: begins[place] for place in begins if place in begun and place in self._missing}
            for place in at:
                del self._missing[place]
                self._left_at.pop(place, None)
            self._at |= at
            if at:
                rows = [[*place, position, int(standing[place] >= 0)] for place, position in at.items()]
                self._out.send("began", *self.adapter.member_generation(), rows)

    def _drop(self, how: str, places: Collection[Place]) -> None:
        with self._turn:
            for place in places:
                self._missing.pop(place, None)
            held = {**self._left_at, **self._at}
            gone = {place: held[place] for place in places if place in held}
            for place in gone:
                self._at.pop(place, None)
                self._left_at.pop(place, None)
            self._from = {place: position for place, position in self._from.items() if place not in gone}
            if gone:
                self._out.send(how, *self.adapter.member_generation(), _rows(gone))

    def _kept(self, kept: CommitResult, *, now: bool) -> None:
        errors = [[*place, error] for place, error in kept.errors.items()]
        self._out.send("kept", int(now), kept.status, kept.error, errors)

    def _recover(self, gone: OffsetOutOfRange) -> None:
        """Move positions that are out of range to the nearest valid offset."""
        for place, (low, high) in self.adapter.bounds([place for place in gone.places if place in self._at]).items():
            position = max(low, min(self._at[place], high))
            if place in self.adapter.start_reading({place: position}) and position != self._at[place]:
                self._at[place] = position
                self._out.send("k", *place, position, str(gone))


def _rows(at: Mapping[Place, int]) -> list[list[Any]]:
    return [[*place, position] for place, position in at.items()]
