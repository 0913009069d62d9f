"""Implements a member of a consumer group (KIP-848): one kind of heartbeat joins, keeps the session, acknowledges and
leaves.

There are two tasks. Only the heartbeat task sends requests to the coordinator. The application's task calls `keep_up`
before each poll: this call gives up revoked partitions and reports lost ones to the application. A fenced member joins
again only after that report, so that no later heartbeat lists the lost partitions.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

import trio

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.groups.base_member import BaseGroupMember, MembershipListener
from squall.workloads.client.groups.consumer_membership import ConsumerMembership
from squall.workloads.client.groups.member import CLOSE, LEAVE_LIMIT_S, POLL_INTERVAL
from squall.workloads.client.groups.membership import NO_GENERATION, MemberSettings, ResponseAction
from squall.workloads.client.groups.offsets import CommitIdentity

OWN_IDS = 1
"""Is the version of ConsumerGroupHeartbeat with which members generate their own ids (KIP-1082)."""
_OUTDATED = (
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)


class ConsumerMember(BaseGroupMember[ConsumerMembership]):
    """Runs one member of a consumer group (KIP-848). Run `run` in a nursery. `client` must be used for nothing else: it
    holds the connections to coordinators.
    """

    def __init__(self, client: Client, settings: MemberSettings, listener: MembershipListener) -> None:
        drawn = client.env.rng.getrandbits(128).to_bytes(16, "big")
        core = ConsumerMembership(settings, urlsafe_b64encode(drawn).decode().rstrip("="))
        super().__init__(client, settings, listener, core)
        self._may_join = self._asked_in = -1
        """`_may_join` is the number of the membership that the heartbeat task may begin with a join. `keep_up` sets it,
        so that no member joins while its application does not poll. `_asked_in` is the number of the membership in
        which the latest heartbeat was sent. `ConsumerMembership.life` numbers the memberships; -1 means none.
        """
        self._failures = 0
        self._reported: tuple[int, tuple[Place, ...]] = (NO_GENERATION, ())
        """Holds the epoch and the partitions that were last reported to the application."""
        self._left = False

    @property
    def fetch_identity(self) -> CommitIdentity | None:
        """Return the member id and epoch for an OffsetFetch, which the coordinator refuses if the epoch is old."""
        return self.who

    @property
    def assignor(self) -> str:
        """Return the name of the assignor that the coordinator uses for this group."""
        return self.settings.server_assignor

    # --------------------------------------------------------------------------------------- the application's task

    async def keep_up(self) -> None:
        """Take one step towards the partitions that the coordinator assigns: give up revoked ones, or start to own new
        ones. Call it before each poll. A join continues while the application polls.
        """
        self._polled_at = self._env.mono()
        self.hear()
        if self.core.rejoin and not self.core.out:
            if self._may_join != self.core.life:
                self._listener.rejoining(self.core.rejoin)
                self._may_join, self._reported = self.core.life, (NO_GENERATION, ())
                self._wake.set()
            return
        await self._reconcile()
        self.hear()
        self._polled_at = self._env.mono()

    async def _reconcile(self) -> None:
        core, name = self.core, self._client.view.name_of
        if core.generation == NO_GENERATION:
            return
        before, life = core.owned, core.life
        self._report_assignment(core.assigned(name))
        if core.unnamed:
            self._client.refresh_soon()
        if removed := core.change(name).removed:
            await self._listener.revoking(removed)
            if core.life != life:
                return  # all partitions were lost meanwhile
            self._listener.revoked(removed)
            core.remove_owned(removed)
        # Computed again, because a heartbeat may have been answered during the commit.
        core.add_owned(core.change(name).added)
        settled = not core.change(name).removed and core.acknowledges()
        # At once: the next owners of revoked partitions wait for this heartbeat.
        if settled or core.owned != before:
            self._wake.set()

    def _report_assignment(self, places: tuple[Place, ...]) -> None:
        """Report a new epoch, or more partitions in the same epoch, to the application. Revoked partitions are reported
        when they are given up.
        """
        epoch, known = self._reported
        if self.core.generation != epoch or any(place not in known for place in places):
            self._listener.joined(places, leader=False)
        self._reported = self.core.generation, places

    def heed(self, code: int) -> None:
        """Send the next heartbeat at once if this error says that the member's epoch is outdated."""
        if code in _OUTDATED:
            self._wake.set()

    async def leave(self, why: str = CLOSE) -> None:
        """Give up all partitions and leave the group; a static member announces that it will return."""
        self.hear()
        if places := self.core.owned:
            await self._listener.revoking(places)
            if not self.core.has_lost:
                self._listener.revoked(places)
                self.core.remove_owned(places)
        self.hear()
        self._left = True
        await self._send_leave(why)

    # ------------------------------------------------------------------------------------------------ heartbeats

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send heartbeats until the nursery is cancelled."""
        task_status.started()
        wait_s = self.core.interval_ms / 1000
        while not self.core.out:
            await self._until_woken(wait_s)
            wait_s = self.core.interval_ms / 1000
            joins = self.core.generation == NO_GENERATION
            if self._halted or self._left or (joins and self._may_join != self.core.life):
                continue
            answered = False
            with self._env.timeout(max(0.0, self._polls_within_s)):
                answered = await self._beat()
            # An unanswered heartbeat must not keep the member in the group.
            if self._polls_within_s <= 0:
                await self._leave_after_poll_timeout()
            elif answered:
                self._failures = 0
                wait_s = self.core.interval_ms / 1000
            else:
                self._failures += 1
                wait_s = min(wait_s, self._client.backoff(self._failures))

    async def _leave_after_poll_timeout(self) -> None:
        """Leave the group because the application has not polled for too long, so that other members get the
        partitions. It joins again at its next poll.
        """
        await self._send_leave(POLL_INTERVAL)
        self._may_join = -1

    async def _send_leave(self, why: str) -> None:
        core, error = self.core, "TIMED_OUT"
        # Without a heartbeat in this membership the coordinator does not know the member.
        if self._asked_in != core.life or core.out:
            return
        request, who = core.leave_request(), self.who
        # The membership ends now, whatever the response is.
        core.reset(why)
        with self._env.timeout(LEAVE_LIMIT_S):
            try:
                answer = await self.coordination.ask(request, ConsumerGroupHeartbeatResponse, OWN_IDS)
                error = ErrorCode(answer.error_code).name if answer.error_code else ""
            except (RequestFailed, UnsupportedApi) as failure:
                error = failure.why if isinstance(failure, RequestFailed) else str(failure)
        self._listener.left(who, why, error)

    async def _beat(self) -> bool:
        """Send a heartbeat. Return whether the coordinator answered it with anything but a retriable error."""
        core, sent = self.core, self._env.mono()
        asked, request = core.asked(), core.heartbeat_request()
        self._asked_in = core.life
        try:
            answer = await self.coordination.ask(request, ConsumerGroupHeartbeatResponse, OWN_IDS)
        except (RequestFailed, UnsupportedApi):
            core.unanswered(asked)
            return False
        # The poll time-out ended the wait. The coordinator may have received the heartbeat.
        except trio.Cancelled:
            core.unanswered(asked)
            raise
        of_now = asked.life == core.life
        heed = core.answered(answer, asked)
        if of_now and answer.error_code == ErrorCode.NONE:
            self.beat_sent, self.beat_answered = sent, self._env.mono()
        if heed is ResponseAction.ELSEWHERE:
            self.coordination.forget()
        return heed not in (ResponseAction.ELSEWHERE, ResponseAction.AGAIN)
