"""Implements a member of a classic group: it joins, sends heartbeats, and gets its assignment.

There are two tasks, as in Kafka's consumer. The application's task calls `keep_up` before each poll: there it joins,
and there it learns of lost partitions, so that it reads nothing that it knows to be assigned to another member. The
heartbeat task sends heartbeats meanwhile; it also leaves the group if the application has not polled for too long.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.heartbeat import HeartbeatResponse
from squall.broker.protocol.schema.join_group import JoinGroupResponse
from squall.broker.protocol.schema.leave_group import LeaveGroupResponse
from squall.broker.protocol.schema.sync_group import SyncGroupResponse
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.groups.base_member import BaseGroupMember, MembershipListener
from squall.workloads.client.groups.membership import (
    NO_GENERATION,
    NO_MEMBER,
    ClassicMembership,
    MemberSettings,
    ResponseAction,
)
from squall.workloads.client.groups.offsets import CommitIdentity

JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
JOIN_LATER_S = 5.0
"""Gives the time, in seconds, for which a JoinGroup is awaited beyond the group's rebalance time-out."""
LEAVE_LIMIT_S = 2.0
POLL_INTERVAL = "poll interval"
CLOSE = "close"


class GroupMember(BaseGroupMember[ClassicMembership]):
    """Runs one member of a classic group. Run `run` in a nursery. `client` must be used for nothing else: it holds the
    connections to coordinators.
    """

    def __init__(self, client: Client, settings: MemberSettings, listener: MembershipListener) -> None:
        super().__init__(client, settings, listener, ClassicMembership(settings))
        self._busy = False
        """Is True while the application's task joins: JoinGroup and SyncGroup keep the session, so no heartbeats are
        sent.
        """

    @property
    def fetch_identity(self) -> CommitIdentity | None:
        """Return None: the coordinator of a classic group does not check which member fetches offsets."""
        return None

    @property
    def assignor(self) -> str:
        """Return the name of the assignor that the group has elected."""
        return self.core.protocol

    # --------------------------------------------------------------------------------------- the application's task

    async def keep_up(self) -> None:
        """Join before a poll if a join is due. Then `owned` holds the partitions that this member may read."""
        self._polled_at = self._env.mono()
        self.core.update_partition_counts(self._counts())
        self.hear()
        while self.core.rejoin and not self.core.out:
            await self._join()
            self.hear()
            # A join counts as a poll however long it takes: in Kafka's consumer it is a part of poll().
            self._polled_at = self._env.mono()

    def heed(self, code: int) -> None:
        """Update the membership after an OffsetCommit or OffsetFetch with this error code. After REBALANCE_IN_PROGRESS,
        ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID the member has to join again. FENCED_INSTANCE_ID ends the membership.
        All other codes change nothing.
        """
        if code in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            self.core.refused(code)

    async def leave(self, why: str = CLOSE) -> None:
        """Give up all partitions and leave the group. A static member sends no LeaveGroup, because it may return."""
        self.hear()
        await self._give_up(self.core.owned)
        self.hear()
        if not self.settings.instance:
            await self._send_leave(why)

    async def _give_up(self, places: Sequence[Place]) -> None:
        if not places:
            return
        await self._listener.revoking(places)
        if self.core.has_lost:
            return  # the loss was just reported
        self._listener.revoked(places)
        self.core.owned = tuple(place for place in self.core.owned if place not in places)

    async def _join(self) -> None:
        """Make one attempt to join: a JoinGroup, and a SyncGroup if that returns a generation."""
        if not self.settings.cooperative:
            # An eager member owns nothing during a rebalance: any member may get its partitions.
            await self._give_up(self.core.owned)
            # The heartbeat task may have learnt of a fencing during the commit.
            if self.core.has_lost or self.core.out:
                return
        self._listener.rejoining(self.core.rejoin)
        self._busy = True
        failures = 0
        try:
            heed = await self._ask_to_join()
            while heed in (ResponseAction.AGAIN, ResponseAction.ELSEWHERE):
                failures += 1
                await self._env.sleep(self._client.backoff(failures))
                heed = await self._ask_to_join()
        finally:
            self._busy = False
            self._wake.set()

    async def _ask_to_join(self) -> ResponseAction:
        core = self.core
        limit_s = self.settings.max_poll_interval_ms / 1000 + JOIN_LATER_S
        try:
            answer = await self.coordination.ask(core.join_request(), JoinGroupResponse, JOIN_VERSION, limit_s)
        except (RequestFailed, UnsupportedApi):
            return ResponseAction.AGAIN
        heed = core.joined(answer)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self._ask_to_join()
        if heed is ResponseAction.ELSEWHERE:
            self.coordination.forget()
        if heed is not ResponseAction.GO_ON:
            return heed
        return await self._synchronize(answer)

    async def _synchronize(self, answer: JoinGroupResponse) -> ResponseAction:
        core = self.core
        counts = await self._known_counts() if core.leads else {}
        limit_s = self.settings.max_poll_interval_ms / 1000 + JOIN_LATER_S
        try:
            response = await self.coordination.ask(
                core.sync_request(answer, counts), SyncGroupResponse, SYNC_VERSION, limit_s
            )
        except (RequestFailed, UnsupportedApi):
            # Not sent again: the generation may be over, which a new JoinGroup finds out.
            return ResponseAction.JOIN
        before = core.owned
        change = core.synced(response)
        if isinstance(change, ResponseAction):
            if change is ResponseAction.ELSEWHERE:
                self.coordination.forget()
            return ResponseAction.OUT if change is ResponseAction.OUT else ResponseAction.JOIN
        self._listener.joined(core.owned, leader=core.leads)
        if change.removed:
            # The member owns them until it joins again: their new owner gets them in the next generation (KIP-429).
            core.owned = tuple(sorted({*before, *core.owned}))
            await self._give_up(change.removed)
            core.rejoin = core.rejoin or "revoked partitions"
        return ResponseAction.GO_ON

    def _counts(self) -> dict[str, int]:
        """Return the number of partitions of each known topic."""
        topics = self._client.view.topics
        found = {topic: len(topics[topic].leaders) for topic in self.settings.topics if topic in topics}
        return {topic: count for topic, count in found.items() if count}

    async def _known_counts(self) -> dict[str, int]:
        """Wait for metadata of all topics, at most for the request time-out. Return the number of partitions of each
        topic for which there is metadata.
        """
        with self._env.timeout(self._client.settings.request_timeout_ms / 1000):
            while len(self._counts()) < len(self.settings.topics):
                await self._client.refreshed()
        return self._counts()

    # ------------------------------------------------------------------------------------------------ heartbeats

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send heartbeats until the nursery is cancelled."""
        task_status.started()
        wait_s = interval_s = self.settings.heartbeat_interval_ms / 1000
        while not self.core.out:
            await self._until_woken(wait_s)
            wait_s = interval_s
            if self._halted or self._busy or self.core.generation == NO_GENERATION:
                continue
            answered = False
            with self._env.timeout(max(0.0, self._polls_within_s)):
                answered = await self._beat()
            # An unanswered heartbeat must not keep the member in the group.
            if self._polls_within_s <= 0:
                await self._leave_after_poll_timeout()
            elif not answered:
                wait_s = min(interval_s, self._client.backoff(1))

    async def _leave_after_poll_timeout(self) -> None:
        """Leave the group because the application has not polled for too long, so that other members get the
        partitions.
        """
        # A static member keeps its partitions until its session ends (KIP-345).
        if not self.settings.instance:
            await self._send_leave(POLL_INTERVAL)
        # `_send_leave` has reset a dynamic member only.
        if self.core.generation != NO_GENERATION:
            self.core.reset(POLL_INTERVAL)

    async def _send_leave(self, why: str) -> None:
        core, error = self.core, "TIMED_OUT"
        if core.member_id == NO_MEMBER or core.out:
            return
        request, who = core.leave_request(why), self.who
        # The membership ends now, whatever the response is.
        core.reset(why)
        with self._env.timeout(LEAVE_LIMIT_S):
            try:
                answer = await self.coordination.ask(request, LeaveGroupResponse, LEAVE_VERSION)
                code = answer.error_code or next((each.error_code for each in answer.members), 0)
                error = ErrorCode(code).name if code else ""
            except (RequestFailed, UnsupportedApi) as failure:
                error = failure.why if isinstance(failure, RequestFailed) else str(failure)
        self._listener.left(who, why, error)

    async def _beat(self) -> bool:
        """Send a heartbeat. Return whether the coordinator answered it."""
        sent, asked = self._env.mono(), (self.core.member_id, self.core.generation)
        try:
            answer = await self.coordination.ask(self.core.heartbeat_request(), HeartbeatResponse, BEAT_VERSION)
        except (RequestFailed, UnsupportedApi):
            return False
        if asked != (self.core.member_id, self.core.generation) or self._busy:
            return True  # the response concerns an earlier generation
        heed = self.core.refused(answer.error_code)
        # REBALANCE_IN_PROGRESS keeps the session, too.
        if answer.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.beat_sent, self.beat_answered = sent, self._env.mono()
        if heed is ResponseAction.ELSEWHERE:
            self.coordination.forget()
        return heed is not ResponseAction.ELSEWHERE
