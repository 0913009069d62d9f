"""Implements a recorded consumer that is a group member: assignments, revocations, losses and commits go into the
history.

The consumer reads its assigned partitions from the group's committed offsets, and commits only records that its polls
have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import trio

from squall.broker.env import Env
from squall.broker.overriding import override
from squall.broker.protocol.timestamps import EARLIEST
from squall.workloads.background_reader import recover
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.consumer import PollResult
from squall.workloads.client.groups.base_member import MembershipListener
from squall.workloads.client.groups.members import member_of
from squall.workloads.client.groups.membership import CLASSIC, MemberSettings
from squall.workloads.client.groups.offsets import CommitIdentity, CommitOutcome, commit, fetch, metadata_of
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from squall.workloads.control import GroupIdentity
from squall.workloads.counters import LoadCounters
from squall.workloads.group_notes import HeartbeatTimes, MemberHistoryWriter, MemberIdentity
from squall.workloads.libraries import ClientZone
from squall.workloads.reader import RecordedReader
from squall.workloads.recorder import Recorder

POLL_LIMIT_S, LIST_LIMIT_S = 0.5, 1.0
FETCH_LIMIT_S = 2.0
"""Limits in seconds how long a request for committed offsets is retried before the member checks its membership again.
"""
IDLE_S = 0.1
"""A member without partitions checks at this interval whether it owns some."""
FENCINGS = ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID")
AUTO, MANUAL, ON_REVOCATION, ON_CLOSE = "auto", "manual", "revoke", "close"

Moved = Callable[[Mapping[Place, int]], None]
"""Is called with a reader's positions after assignments, and also after polls if the reader commits its positions
itself.
"""


@dataclass(frozen=True, slots=True)
class SubscriberSettings:
    """Holds the settings that all group members of a load share, such as those for their clients and their commits."""

    member: MemberSettings
    client: ClientSettings
    consumer: ConsumerSettings
    auto_commit: bool
    """Is True if a poll first commits what earlier polls returned, at most every `commit_every_ms`; otherwise the
    application commits after a poll, at the same interval.
    """
    commit_every_ms: int
    commit_limit_ms: int
    """Limits in ms how long a commit is retried."""
    commits: bool = True
    """Is True if the member's client commits its positions. Otherwise the application commits and reports them itself.
    """


class Subscriber(MembershipListener):
    """Runs a group member with Squall's own client, and records it as one process of the history.

    `run` keeps its connections open. The workload, as the application, calls `poll` again and again until `out` names
    the error that ended the membership.
    """

    def __init__(
        self,
        env: Env,
        zone: ClientZone,
        recorder: Recorder,
        counters: LoadCounters,
        settings: SubscriberSettings,
        moved: Moved,
    ) -> None:
        self._env, self._settings, self._moved = env, settings, moved
        self._client = Client(env, zone.bootstrap, settings.client, cluster_id=zone.cluster_id)
        self._client.track(settings.member.topics)
        # Requests to coordinators wait for long, and must not hold back a Fetch on the same connection.
        self._asking = Client(env, zone.bootstrap, settings.client, cluster_id=zone.cluster_id)
        self._recorder, self._counters, self._zone = recorder, counters, zone
        self.member = member_of(self._asking, settings.member, self)
        self.fencings: list[str] = []
        """Lists the errors received so far that mean that another process uses this instance id."""
        self.was_member = False
        """Is True once this client has joined the group. Its settings are valid then, so a later error such as
        INVALID_SESSION_TIMEOUT comes from a fault.
        """
        self._held: dict[Place, int] = {}
        """Maps each owned partition to the position at which the member began to read it, or which it had at the latest
        `rewind`. While a partition is read, `positions` has its newer position.
        """
        self._committed: dict[Place, int] = {}
        """Maps a partition to its committed offset, as far as the member knows it."""
        self._commit_at = env.mono() + settings.commit_every_ms / 1000

    def declare(self, role: str, about: Mapping[str, object], process: int | None = None) -> int:
        """Add this member to the history as a process, and return the process's id. `role` is `reader` or `producer`,
        and `about` holds further settings to record. If `process` is given, the member is that process already, and
        none is added.
        """
        member = self._settings.member
        told = {**about, **about_member(self._settings)}
        self.reader = RecordedReader(
            self._env,
            self._client,
            self._recorder,
            self._counters,
            role=role,
            consumer=self._settings.consumer,
            zone=self._zone.name,
            extra=told,
            process=process,
        )
        self.notes = MemberHistoryWriter(self._recorder, self.reader.process, member.group, member.instance)
        return self.reader.process

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run connections and heartbeats until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._client.run)
            await nursery.start(self._asking.run)
            nursery.start_soon(self.member.run)
            task_status.started()

    @property
    def group_identity(self) -> GroupIdentity:
        """Returns the group, member id and instance id by which the coordinator knows this member now, and whether it
        owns partitions.
        """
        member = self._settings.member
        return GroupIdentity(member.group, self.member.who.member_id, member.instance, bool(self._held))

    @property
    def is_member(self) -> bool:
        """Is True if this client is a member of the group, as far as it knows: the coordinator may have removed it
        meanwhile.
        """
        return self.was_member and self.member.who.generation >= 0 and not self.member.out

    @property
    def out(self) -> str:
        """Returns the error that ended the membership for good; empty while the member may continue."""
        return self.member.out

    @property
    def positions(self) -> dict[Place, int]:
        """Returns the next offset to read in each partition that the member reads."""
        return dict(self.reader.consumer.positions)

    # --------------------------------------------------------------------------------------------- what it does

    async def poll(self) -> PollResult:
        """Do what Kafka's `poll` does: take part in rebalances, commit with `auto_commit` if the last commit is
        `commit_every_ms` ago, and read.
        """
        await self.member.keep_up()
        if self._settings.auto_commit and self._env.mono() >= self._commit_at:
            await self.commit(AUTO)
        await self._begin()
        if not self.reader.consumer.positions:
            await self._env.sleep(IDLE_S)
            return PollResult()
        polled = await self.reader.poll("poll", POLL_LIMIT_S)
        for event in polled.events:
            await recover(self.reader, event)
        if self._settings.commits:
            self._moved({each.place: each.position for each in polled.fetched})
        return polled

    async def commit_if_due(self) -> None:
        """Commit after the polled records were processed, if the last commit is `commit_every_ms` ago. With
        `auto_commit` do nothing, because polls commit.
        """
        if not self._settings.auto_commit and self._env.mono() >= self._commit_at:
            await self.commit(MANUAL)

    async def commit(self, why: str, only: Collection[Place] | None = None) -> CommitOutcome | None:
        """Commit the positions of all partitions, or of `only`. `why` is the reason that the history records: manual,
        auto, revoke or close. Return None if there is nothing to commit.
        """
        self._commit_at = self._env.mono() + self._settings.commit_every_ms / 1000
        offsets = {
            place: position
            for place, position in self.positions.items()
            if (only is None or place in only) and self._committed.get(place) != position
        }
        who = self.member.who
        if not offsets or who.generation < 0 or not self._settings.commits:
            return None
        op = self.notes.begin_commit(self._who(), offsets, why, metadata=metadata_of(offsets))
        self._recorder.flush()
        end = await commit(
            self.member.coordination,
            who,
            offsets,
            self._settings.commit_limit_ms / 1000,
            gone=lambda: bool(self.member.out) or self.member.who != who,
        )
        self.notes.committed(op, end.status, end.error, end.errors, unanswered=end.unanswered)
        self.fencings += fencing_among(end.error)
        self._recorder.flush()
        if end.status is OperationStatus.OK:
            self._committed |= offsets
        if self.member.who == who:
            # An error for an earlier generation says nothing about the present one.
            self.member.heed(end.code)
        return end

    def rewind(self) -> None:
        """Go back to the group's committed offsets, which the next poll fetches."""
        self._held |= self.positions
        for place in self._held:
            self.reader.consumer.drop(place)

    async def leave(self) -> None:
        """Commit, give up all partitions, and leave the group in good order."""
        await self.member.leave()

    def record_pause(self, what: str, for_ms: int) -> None:
        """Record that the load pauses the member for `for_ms` ms from now on. `what` is `pause` (the application alone)
        or `halt` (its heartbeats as well).
        """
        self.notes.still(self._who(), what, for_ms)
        self._recorder.flush()

    def halt(self, *, still: bool) -> None:
        """Stop the whole client, heartbeats included, as SIGSTOP does with an OS process. With `still=False`, let it
        continue.
        """
        self.member.halt(still=still)

    def hear(self) -> None:
        """Record in the history the partitions that the member lost when its membership ended. `poll` records them,
        too; call `hear` if no poll follows.
        """
        self.fencings += fencing_among(self.member.out)
        self.member.hear()

    def crashed(self) -> None:
        """Record in the history that the member lost its partitions because its process crashed."""
        if self._held:
            self.lost(list(self._held), "crash")
        self._recorder.flush()

    # ---------------------------------------------------------------------------------- what the group tells it

    @override
    def rejoining(self, why: str) -> None:
        self.notes.rejoining(self._who(), why)
        self._recorder.flush()

    @override
    def joined(self, places: Sequence[Place], *, leader: bool) -> None:
        # A partition that a fault has just added may be assigned before it is in the history.
        known = [place for place in places if place in self._recorder.partitions]
        self.was_member = True
        self.notes.joined(self._who(), self.member.assignor, known, leader=leader, beat=self._beat())
        self._recorder.flush()

    @override
    async def revoking(self, places: Collection[Place]) -> None:
        await self.commit(ON_REVOCATION, places)

    @override
    def revoked(self, places: Collection[Place]) -> None:
        left_at = self._drop(places)
        if left_at:
            self.notes.revoked(self._who(), left_at, self._beat())
            self._recorder.flush()

    @override
    def lost(self, places: Collection[Place], why: str) -> None:
        left_at = self._drop(places)
        if left_at:
            self.notes.lost(self._who(), left_at, self._beat(), why)
            self._recorder.flush()

    @override
    def left(self, who: CommitIdentity, why: str, error: str) -> None:
        self.notes.left(MemberIdentity(who.member_id, who.generation), why, error)
        self._recorder.flush()

    # ---------------------------------------------------------------------------------------------------- parts

    def _drop(self, places: Collection[Place]) -> dict[Place, int]:
        """Stop reading these partitions, and return the position of each that was owned."""
        held = {**self._held, **self.positions}
        for place in places:
            self.reader.consumer.drop(place)
            self._committed.pop(place, None)
            self._held.pop(place, None)
        return {place: held[place] for place in places if place in held}

    async def _begin(self) -> None:
        """Start to read owned partitions that are not read yet, each at the group's committed offset or, if there is
        none, at the start of its log. If a request for these offsets fails, a later poll tries again.
        """
        member, positions = self.member, self.positions
        missing = [place for place in member.owned if place not in positions and place in self._recorder.partitions]
        if not missing or member.must_join:
            return
        who = member.who
        begins = await self._fetch_committed(missing)
        resets = [place for place, position in begins.items() if position < 0]
        for place in resets:
            listed = (await self.reader.list_offsets([place], EARLIEST, LIST_LIMIT_S))[place]
            begins[place] = listed.offset if not listed.error else -1
        begins = {place: position for place, position in begins.items() if position >= 0}
        # The requests took time: in another generation the partitions may have another owner, and other offsets.
        if not begins or member.who != who or member.has_lost:
            return
        owned = sorted({*self._held, *begins})
        self.notes.assigned(self._who(), begins, [place for place in resets if place in begins], owned)
        self._held |= begins
        for place, position in begins.items():
            self._committed.pop(place, None)
            if place not in resets:
                self._committed[place] = position
            self.reader.consumer.seek(place, position)
        self._moved(begins)
        self._recorder.flush()

    async def _fetch_committed(self, places: Sequence[Place]) -> dict[Place, int]:
        """Return the group's committed offset of each partition, -1 if none is committed. Returns an empty dictionary
        if the request fails.
        """
        who = self.member.who
        op = self.notes.begin_fetch(self._who(), places, stable=True)
        found = await fetch(
            self.member.coordination,
            places,
            FETCH_LIMIT_S,
            stable=True,
            who=self.member.fetch_identity,
            gone=lambda: self.member.who != who or self.member.must_join,
        )
        self.notes.fetched(op, found.offsets, found.metadata, found.error)
        self.fencings += fencing_among(found.error)
        self._recorder.flush()
        if self.member.fetch_identity is not None and self.member.who == who:
            self.member.heed(found.code)
        return dict(found.offsets)

    def _who(self) -> MemberIdentity:
        who = self.member.who
        return MemberIdentity(who.member_id, who.generation)

    def _beat(self) -> HeartbeatTimes:
        sent, answered = (int(at * 1e9) if at >= 0 else -1 for at in (self.member.beat_sent, self.member.beat_answered))
        return HeartbeatTimes(sent, answered)


def fencing_among(*errors: str) -> list[str]:
    """Return those errors that mean that another process has the instance id, such as FENCED_INSTANCE_ID."""
    return [error for error in errors if error in FENCINGS]


def about_member(settings: SubscriberSettings) -> dict[str, object]:
    """Return the settings of a group member that the history records for its process, such as its group, assignor and
    session time-out.
    """
    member = settings.member
    return {
        "group": member.group,
        "group_protocol": member.protocol,
        "assignor": ",".join(member.assignors) if member.protocol == CLASSIC else member.server_assignor,
        "instance": member.instance,
        "session_timeout_ms": member.session_timeout_ms,
        "max_poll_interval_ms": member.max_poll_interval_ms,
        "auto_commit": settings.auto_commit,
        "isolation": settings.consumer.isolation,
        "reset": "earliest",
    }
