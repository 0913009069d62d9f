"""Runs and records a group member that a client library runs, as `squall.workloads.subscriber.Subscriber` does for
Squall's own client.

The library joins, assigns and gives up partitions; the events of its callbacks are written to the history in their
order. Offsets are committed only for records that its polls have returned to the harness, under the member id and
generation of the poll. The history lacks what a library does not report: heartbeats, and the reasons of rejoins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import ClassVar

import trio

from squall.broker.env import Env
from squall.broker.overriding import override
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.control import GroupIdentity
from squall.workloads.counters import LoadCounters
from squall.workloads.group_notes import HeartbeatTimes, MemberHistoryWriter, MemberIdentity
from squall.workloads.libraries import (
    AssignmentReceived,
    ClientZone,
    CommittedOffsets,
    LibraryClientFactory,
    LibraryConsumer,
    LibraryMemberEvent,
    MemberConfig,
    MemberIdentified,
    MemberLeft,
    MemberListener,
    OffsetCommitBegan,
    OffsetCommitEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PolledRecords,
    ReaderPositionReset,
    record,
)
from squall.workloads.recorder import Recorder
from squall.workloads.subscriber import (
    MANUAL,
    ON_REVOCATION,
    Moved,
    SubscriberSettings,
    about_member,
    fencing_among,
)

GONE = "CLIENT_ENDED"
Start = Callable[[trio.Nursery], Awaitable[LibraryConsumer]]
CRASH = "crash"


class LibrarySubscriber(MemberListener):
    """Runs a library's group member in one OS process, and records it as one process of the history.

    `run` keeps the OS process alive. The workload, as the application, calls `poll` again and again until `out` names
    the error that ended the membership.
    """

    POLLS_BY_ITSELF: ClassVar[bool] = False
    """Is True if the member polls without calls of `poll`: then it can be paused only by stopping its OS process."""

    def __init__(
        self,
        env: Env,
        zone: ClientZone,
        driver: LibraryClientFactory,
        recorder: Recorder,
        counters: LoadCounters,
        settings: SubscriberSettings,
        moved: Moved,
        start: Start | None = None,
    ) -> None:
        """Prepare the subscriber. `moved` is called with new positions. `start` starts the OS process of the library;
        if it is None, the process has a consumer and no producer.
        """
        self._start = start or self._member
        self._env, self._zone, self._driver, self._settings, self._moved = env, zone, driver, settings, moved
        self._recorder, self._counters = recorder, counters
        self._grouped: LibraryConsumer | None = None
        self._who = MemberIdentity()
        """Holds the latest member id and generation that the library reported."""
        self._held: dict[Place, int] = {}
        """Maps the owned partitions that the member does not read at present, because of a rewind, to their positions
        before the rewind.
        """
        self._committed: dict[Place, int] = {}
        self._wanted: dict[Place, int] = {}
        self._op = -1
        """Identifies the commit that a revocation callback waits for; -1 for none. `_wanted` holds its offsets."""
        self._commit_at = env.mono() + settings.commit_every_ms / 1000
        self._out = ""
        self._over = False
        self.positions: dict[Place, int] = {}
        """Maps each partition that the member reads to the offset that it reads next."""
        self.was_member = False
        self.fencings: list[str] = []
        """Lists the errors, such as FENCED_INSTANCE_ID, that mean that another process has this instance id."""

    def declare(self, role: str, about: Mapping[str, object], process: int | None = None) -> int:
        """Add this member to the history as a process, and return the process's id. `role` is `reader` or `producer`,
        and `about` holds further settings to record. If `process` is given, the member is that process already, and
        none is added.
        """
        member, driver = self._settings.member, self._driver
        told = {**about, **about_member(self._settings)}
        self.process = (
            self._recorder.process(role, driver.version, told, client=driver.client, zone=self._zone.name)
            if process is None
            else process
        )
        self.notes = MemberHistoryWriter(self._recorder, self.process, member.group, member.instance)
        return self.process

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the library's OS process until this task is cancelled. The cancellation kills the process, and the
        member's partitions are recorded as lost.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._grouped = await self._start(nursery)
                task_status.started()
                await trio.Event().wait()
        finally:
            self.crashed()

    async def _member(self, nursery: trio.Nursery) -> LibraryConsumer:
        task = MemberConfig(self._settings.member, self._settings.consumer.isolation)
        return await self._driver.member(nursery, task, self, self._recorder.flush)

    @property
    def is_member(self) -> bool:
        """Is True if the library is a member of the group now, as far as it knows."""
        return self.was_member and self._who.generation >= 0 and not self.out

    @property
    def out(self) -> str:
        """Returns the error that ended the membership for good; empty while the member may continue."""
        # A process that was asked to end is not gone.
        gone = self._grouped is not None and self._grouped.ended and not self._over
        return self._out or (GONE if gone else "")

    # --------------------------------------------------------------------------------------------- what it does

    async def poll(self) -> Sequence[PolledRecords]:
        """Poll the library once, which also keeps the membership alive. A poll commits nothing: the caller commits
        separately, for example by `commit_if_due`.
        """
        return [] if self._grouped is None else await self._grouped.poll()

    async def commit_if_due(self) -> None:
        """Commit if `commit_every_ms` has passed since the last commit."""
        if self._env.mono() >= self._commit_at:
            await self.commit(MANUAL)

    async def commit(self, why: str, only: Collection[Place] | None = None) -> CommitOutcome | None:
        """Commit the member's positions in all of its partitions, or only in `only`. Return None if nothing was
        committed: no position is new, the member is in no group, or the setting `commits` is False. `why` is the reason
        that the history gives: `manual`, `revoke` or `close`.
        """
        self._commit_at = self._env.mono() + self._settings.commit_every_ms / 1000
        offsets = self._uncommitted(self.positions if only is None else only)
        if not offsets or not self._settings.commits:
            return None
        return None if self._who.generation < 0 else await self.commit_as(self._who, offsets, why)

    async def commit_as(self, who: MemberIdentity, offsets: Mapping[Place, int], why: str = MANUAL) -> CommitOutcome:
        """Commit these offsets as the member `who`, even if the setting `commits` is False: an application that commits
        by itself calls this method. `why` is the reason that the history gives: `manual`, `revoke` or `close`.
        """
        op = self.notes.begin_commit(who, offsets, why)
        end = CommitOutcome(OperationStatus.INFO, GONE, unanswered=-1)
        try:
            if self._grouped is not None:
                end = await self._grouped.commit(who, offsets)
        finally:
            self._ended(op, offsets, end)
        return end

    async def rewind(self) -> None:
        """Go back to the group's committed offsets, so that the next polls return the uncommitted records again."""
        if self._grouped is not None:
            self._held |= self.positions
            self.positions.clear()
            await self._grouped.rewind()

    async def leave(self) -> None:
        """Close the library's consumer: its callbacks commit and give up its partitions."""
        if self._grouped is not None and not self.out:
            await self._grouped.leave()
            self._over = True

    def record_pause(self, what: str, for_ms: int) -> None:
        """Record that the load pauses the member for `for_ms` ms from now on. `what` is `pause` (the application alone)
        or `halt` (its heartbeats as well).
        """
        self.notes.still(self._who, what, for_ms)
        self._recorder.flush()

    def halt(self, *, still: bool) -> None:
        """Stop all threads of the library's OS process if `still`, or let them continue."""
        if self._grouped is not None:
            self._grouped.halt(still=still)

    def hear(self) -> None:
        """Do nothing: a library reports by itself which partitions were lost when its membership ended. For Squall's
        own client, `Subscriber.hear` records them.
        """

    def crashed(self) -> None:
        """Kill the library's OS process, and record that the member crashed and lost its partitions."""
        if self._grouped is not None:
            self._grouped.kill()
        if self._op >= 0:
            self._ended(self._op, self._wanted, CommitOutcome(OperationStatus.INFO, GONE, unanswered=-1))
            self._op = -1
        if held := {**self._held, **self.positions}:
            self.notes.lost(self._who, held, HeartbeatTimes(), CRASH)
            self.positions.clear()
            self._held.clear()
        self._over = True
        self._recorder.flush()

    # ---------------------------------------------------------------------------------- what its library tells it

    @override
    def heard(self, said: LibraryMemberEvent) -> None:
        # Late lines of a process that was killed or has left: what happened to its partitions is recorded already.
        if self._over:
            return
        match said:
            case MemberIdentified(who):
                self._is(who)
            case AssignmentReceived(who, owned):
                self._is(who)
                self.was_member = True
                self.notes.joined(who, self._assignor, self._known(owned), leader=False)
            case CommittedOffsets(who, began_ns, stable, places, offsets, error):
                self._is(who)
                op = self.notes.begin_fetch(who, self._known(places), stable=stable, began_ns=began_ns)
                self.notes.fetched(op, {place: offsets[place] for place in self._known(offsets)}, {}, error)
            case PartitionsAssigned(who, at, reset):
                self._is(who)
                self.positions |= at
                self.notes.assigned(who, at, reset, sorted({**self._held, **self.positions}))
                for place, position in at.items():
                    self._held.pop(place, None)
                    self._committed.pop(place, None)
                    if place not in reset:
                        self._committed[place] = position
                self._moved(at)
            case PartitionsRevoked(who, at):
                self._forget(at)
                self.notes.revoked(who, at, HeartbeatTimes())
                self._is(who)
            case PartitionsLost(who, at):
                self._forget(at)
                # Lost by the member that owned them: a library that was fenced may report no id or generation any more.
                self.notes.lost(self._who, at, HeartbeatTimes(), "library")
                self._is(who)
            case MemberLeft(why):
                self._out = why
                self.fencings += fencing_among(why)
            case PolledRecords(_, _, parts):
                record(said, self._recorder, self._counters, self.process)
                moved = {each.place: each.position for each in parts if each.place in self.positions}
                self.positions |= moved
                if self._settings.commits:
                    self._moved(moved)
            case ReaderPositionReset(place, position, _):
                record(said, self._recorder, self._counters, self.process)
                self.positions[place] = position
            case OffsetCommitBegan() | OffsetCommitEnded():
                raise AssertionError("a library commits when it is asked to")
            case _:
                record(said, self._recorder, self._counters, self.process)

    @override
    def offsets_to_commit(self, who: MemberIdentity, at: Mapping[Place, int]) -> Mapping[Place, int]:
        self._is(who)
        offsets = self._uncommitted(at)
        if self._over or not offsets or not self._settings.commits or who.generation < 0:
            return {}
        self._wanted, self._op = offsets, self.notes.begin_commit(who, offsets, ON_REVOCATION)
        return offsets

    @override
    def commit_ended(self, end: CommitOutcome) -> None:
        if self._op >= 0:
            self._ended(self._op, self._wanted, end)
            self._op = -1

    # ---------------------------------------------------------------------------------------------------- parts

    @property
    def who(self) -> MemberIdentity:
        """Returns the latest member id and generation that the library reported."""
        return self._who

    @property
    def group_identity(self) -> GroupIdentity:
        """Returns the group, member id and instance id by which the coordinator knows this member now."""
        member = self._settings.member
        return GroupIdentity(member.group, self._who.member_id, member.instance, bool(self._held or self.positions))

    @property
    def _assignor(self) -> str:
        return str(about_member(self._settings)["assignor"])

    def _is(self, who: MemberIdentity) -> None:
        self._who = who

    def _known(self, places: Collection[Place]) -> list[Place]:
        return [place for place in places if place in self._recorder.partitions]

    def _uncommitted(self, places: Collection[Place]) -> dict[Place, int]:
        return {
            place: self.positions[place]
            for place in places
            if place in self.positions and self._committed.get(place) != self.positions[place]
        }

    def _forget(self, places: Collection[Place]) -> None:
        for place in places:
            self.positions.pop(place, None)
            self._held.pop(place, None)
            self._committed.pop(place, None)

    def _ended(self, op: int, offsets: Mapping[Place, int], end: CommitOutcome) -> None:
        self.notes.committed(op, end.status, end.error, end.errors, unanswered=end.unanswered)
        self.fencings += fencing_among(end.error)
        if end.status is OperationStatus.OK:
            self._committed |= offsets
        self._recorder.flush()
