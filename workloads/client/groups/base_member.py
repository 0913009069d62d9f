"""Implements the part of a group's member that is the same in both group protocols, the classic one and that of
KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

import trio

from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.consumer_membership import ConsumerMembership
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.membership import ClassicMembership, MemberSettings
from squall.workloads.client.groups.offsets import CommitIdentity


class MembershipListener(Protocol):
    """Is notified of what happens to a group member, as Kafka's ConsumerRebalanceListener is. The methods are called in
    the task that polls unless noted otherwise.
    """

    def rejoining(self, why: str) -> None:
        """Handle that the member is about to join again, for the reason `why`."""

    def joined(self, places: Sequence[Place], *, leader: bool) -> None:
        """Handle a new assignment: `places` are all partitions that it gives to this member. `leader` says that this
        member is the group leader; it is always False in the protocol of KIP-848.
        """

    async def revoking(self, places: Collection[Place]) -> None:
        """Handle that these partitions are about to be revoked. They are still owned: this is the last chance to
        commit.
        """

    def revoked(self, places: Collection[Place]) -> None:
        """Handle that these partitions are revoked. The application must not read them any more."""

    def lost(self, places: Collection[Place], why: str) -> None:
        """Handle that this member lost these partitions without revoking them: other members may own them by now. The
        application must not read them any more.
        """

    def left(self, who: CommitIdentity, why: str, error: str) -> None:
        """Handle that the member `who` has sent its request to leave, and the request was answered or failed. The
        heartbeat task may call this, too.
        """


C = TypeVar("C", bound=ClassicMembership | ConsumerMembership)


class BaseGroupMember(Generic[C]):
    """Implements the part of a group's member that does not depend on the protocol; `core` holds the membership's
    state. Run the member's `run` in a nursery, and call its `keep_up` before each poll.
    """

    def __init__(self, client: Client, settings: MemberSettings, listener: MembershipListener, core: C) -> None:
        self.settings, self.core = settings, core
        self.coordination = GroupCoordinatorClient(client, settings.group)
        self.beat_sent = self.beat_answered = -1.0
        """Hold when the last request that kept the session was sent and answered, in seconds of env.mono(); -1 if none
        was.
        """
        self._client, self._env, self._listener = client, client.env, listener
        self._polled_at = client.env.mono()
        self._halted = False
        self._wake = client.env.signal()
        client.track(settings.topics)

    @property
    def who(self) -> CommitIdentity:
        """Return the member id and generation that the coordinator knows. In a consumer group the generation is the
        member epoch.
        """
        return CommitIdentity(self.core.member_id, self.core.generation, self.settings.instance)

    @property
    def owned(self) -> Sequence[Place]:
        """Return the partitions that the member may read, as far as it knows."""
        return self.core.owned

    @property
    def has_lost(self) -> bool:
        """Return whether the member lost its partitions and the listener was not notified yet (see `hear`)."""
        return self.core.has_lost

    @property
    def out(self) -> str:
        """Return the name of the error that ended the membership for good; empty while it may continue."""
        return self.core.out

    @property
    def must_join(self) -> bool:
        """Return True if the member has to join again, and also if its membership has ended for good (see `out`)."""
        return bool(self.core.rejoin or self.core.out)

    def halt(self, *, still: bool) -> None:
        """Suspend the client, heartbeats included, like a paused process of the operating system. `still` False resumes
        it.
        """
        self._halted = still
        self._wake.set()

    def hear(self) -> None:
        """Report lost partitions to the listener, if there are any. `keep_up` does so before each poll; an application
        that polls no more, because the membership has ended, calls this method instead.
        """
        if self.core.has_lost:
            places, self.core.owned = self.core.owned, ()
            self._listener.lost(places, self.core.out or self.core.rejoin)

    async def _until_woken(self, most_s: float) -> None:
        """Wait until there is something to do, at most `most_s` seconds."""
        await self._wake.wait(most_s)
        # If the task was woken and cancelled at once, its connections may have ended already.
        await trio.lowlevel.checkpoint_if_cancelled()

    @property
    def _polls_within_s(self) -> float:
        """Return the seconds until max.poll.interval.ms has passed since the last poll."""
        return self._polled_at + self.settings.max_poll_interval_ms / 1000 - self._env.mono()
