"""Drives a member of a group in a driver's process: polls and commits on request, and reports all callbacks of its
library.

A callback that gives partitions up asks first what is to be committed, so that the harness has that on file before
anything of it leaves. What a poll brought is reported before a callback is: then nothing is read of what was given up.
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
"""The harness answers within milliseconds, unless it is gone or stands still."""
OTHER_MEMBER = "NOT_THE_MEMBER"
"""A commit was asked for as a member of another generation: nothing was sent."""
CHANGED = "GENERATION_CHANGED"
"""A commit was answered well, and its library had another generation by then."""


class MemberWorker(RebalanceListener):
    """`answers`: what the harness says to a callback; everything else comes by calls."""

    def __init__(
        self, library: MemberLibrary, order: DriverConfig, out: MessageSink, answers: queue.SimpleQueue[list[Any]]
    ) -> None:
        self._out, self._answers, self._order = out, answers, order
        self._at: dict[Place, int] = {}
        """Where it stands in what it reads."""
        self._left_at: dict[Place, int] = {}
        """Where it stood in what it holds, and goes back in."""
        self._missing: dict[Place, int] = {}
        """Its own, and not begun: nobody said yet where. Since when, ns: no answer was asked for before that."""
        self._turn = threading.RLock()
        """Callbacks may come from a thread of the library's."""
        self._began_ns, self._from = time.monotonic_ns(), dict[Place, int]()
        """When the last poll began, and where it stood then."""
        self._empty_told: dict[Place, float] = {}
        self.grouped: MemberAdapter = library.member(order, self)

    # ------------------------------------------------------------------------------------------ asked by the harness

    def poll(self) -> None:
        """Poll once; answer with what the poll brought, then with ["p", member id, generation]."""
        try:
            self._begin()
            self._began_ns, self._from = time.monotonic_ns(), dict(self._at)
            self.tell(self.grouped.poll(POLL_S))
        except FatalMemberError as over:
            self._out.say("out", str(over))
        except OffsetOutOfRange as gone:
            self._recover(gone)
        except Exception as error:  # a library's errors are of many roots; it goes on after those that it raises here
            self._out.say("e", f"{type(error).__name__}: {error}")
            time.sleep(POLL_S)
        self._out.say("p", *self.grouped.who())

    def commit(self, member_id: str, generation: int, offsets: Sequence[Sequence[Any]]) -> None:
        """Commit as that member, or not at all."""
        asked = {(topic, index): position for topic, index, position in offsets}
        self._kept(self._commit_as(MemberGeneration(member_id, generation), asked), now=False)

    def identity_of(self, who: MemberGeneration) -> Any:
        """Return what a producer of the library takes for that member; None if the library is another member now."""
        taken = self.grouped.identity()
        return taken if self.grouped.who() == who else None

    def leave(self) -> None:
        """Close the consumer, which gives everything up."""
        try:
            self.grouped.close()
        except Exception as error:  # whatever it raises, it has ended
            self._out.say("e", f"{type(error).__name__}: {error}")
        self._out.say("left")

    def _commit_as(self, who: MemberGeneration, offsets: Mapping[Place, int]) -> CommitResult:
        """Nothing is known of a commit if the library was another member before or after it."""
        if self.grouped.who() != who:
            return CommitResult(FAIL, OTHER_MEMBER)
        kept = self.grouped.commit(offsets)
        changed = kept.status == OK and self.grouped.who() != who
        return CommitResult(INFO, CHANGED) if changed else kept

    # ------------------------------------------------------------------------------------------- told by the library

    @override
    def joined(self, added: Collection[Place], owned: Collection[Place]) -> None:
        with self._turn:
            self._missing |= dict.fromkeys(added, time.monotonic_ns())
        self._out.say("joined", *self.grouped.who(), [list(place) for place in sorted(owned)])

    @override
    def giving(self, places: Collection[Place]) -> Mapping[Place, int]:
        with self._turn:
            begun = {place: self._at[place] for place in places if place in self._at}
        if not begun:
            return {}
        self._out.say("giving", *self.grouped.who(), _rows(begun))
        try:
            _, offsets = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            return {}
        return {(topic, index): position for topic, index, position in offsets}

    @override
    def gave(self, places: Collection[Place], kept: CommitResult | None) -> None:
        if kept is not None:
            self._kept(kept, now=True)
        self._drop("gave", places)

    @override
    def lost(self, places: Collection[Place]) -> None:
        self._drop("lost", places)

    @override
    def tell(self, records: Sequence[ReadRecord]) -> None:
        """Report these records, and now and then that a partition brought nothing."""
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
                parts = [[*place, self._at[place], *told] for place, told in found.items()]
                self._out.say("r", self._began_ns, _rows(self._from), parts)
            self._began_ns, self._from = time.monotonic_ns(), dict(self._at)

    def rewind(self) -> None:
        """Go back to the group's committed offsets: the next poll asks for them."""
        with self._turn:
            self.grouped.hold(list(self._at))
            self._missing |= dict.fromkeys(self._at, time.monotonic_ns())
            self._left_at |= self._at
            self._at.clear()

    # --------------------------------------------------------------------------------------------------------- parts

    def _begin(self) -> None:
        """Begin with what is its own, as far as its group tells where."""
        with self._turn:
            missing, began_ns = sorted(self._missing), min(self._missing.values(), default=0)
        if not missing:
            return
        who, stable = self.grouped.who(), self.grouped.stable
        try:
            standing = self.grouped.standing(missing)
        except Exception as error:  # of many roots: nobody said where; it is asked again at the next poll
            why = f"{type(error).__name__}: {error}"
            self._out.say("stood", *who, began_ns, stable, [], [list(place) for place in missing], why)
            return
        self._out.say("stood", *who, began_ns, stable, _rows(standing), [list(place) for place in missing], "")
        unset = [place for place, position in standing.items() if position < 0]
        bounds = self.grouped.bounds(unset) if unset else {}
        lowest = {place: low for place, (low, _) in bounds.items()}
        begins = {place: lowest.get(place, -1) if position < 0 else position for place, position in standing.items()}
        # Asked again: a callback may have come meanwhile.
        begins = {place: position for place, position in begins.items() if position >= 0 and place in self._missing}
        begun = self.grouped.begin(begins)
        with self._turn:
            at = {place: begins[place] for place in begins if place in begun and place in self._missing}
            for place in at:
                del self._missing[place]
                self._left_at.pop(place, None)
            self._at |= at
            if at:
                rows = [[*place, position, int(standing[place] >= 0)] for place, position in at.items()]
                self._out.say("began", *self.grouped.who(), rows)

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
                self._out.say(how, *self.grouped.who(), _rows(gone))

    def _kept(self, kept: CommitResult, *, now: bool) -> None:
        errors = [[*place, error] for place, error in kept.errors.items()]
        self._out.say("kept", int(now), kept.status, kept.error, errors)

    def _recover(self, gone: OffsetOutOfRange) -> None:
        """Give positions that became impossible the nearest ones that are possible."""
        for place, (low, high) in self.grouped.bounds([place for place in gone.places if place in self._at]).items():
            position = max(low, min(self._at[place], high))
            if place in self.grouped.begin({place: position}) and position != self._at[place]:
                self._at[place] = position
                self._out.say("k", *place, position, str(gone))


def _rows(at: Mapping[Place, int]) -> list[list[Any]]:
    return [[*place, position] for place, position in at.items()]
