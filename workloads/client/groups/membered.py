"""Implements the part of a group's member that is the same for both protocols."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

import trio

from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.membership import MemberSettings
from squall.workloads.client.groups.offsets import CommitIdentity


class MembershipListener(Protocol):
    """The application: what it is told of, in its own task unless said otherwise."""

    def rejoining(self, why: str) -> None:
        """A Join is about to be sent."""

    def joined(self, places: Sequence[Place], *, leader: bool) -> None:
        """A generation has its assignments; its partitions are these."""

    async def revoking(self, places: Collection[Place]) -> None:
        """These will be given up, and are still its own: the last occasion to commit."""

    def revoked(self, places: Collection[Place]) -> None:
        """These are given up. It must not read them any more."""

    def lost(self, places: Collection[Place], why: str) -> None:
        """These belong to somebody else by now. It must not read them any more."""

    def left(self, who: CommitIdentity, why: str, error: str) -> None:
        """LeaveGroup was answered: it was this member. Told in the task of the heartbeats, too."""


class MembershipState(Protocol):
    """Describes the state that a membership has in both protocols."""

    member_id: str
    generation: int
    owned: tuple[Place, ...]
    rejoin: str
    """Why it is to join; empty where it is not."""
    out: str

    @property
    def has_lost(self) -> bool:
        """Return whether its partitions are not its own any more, and its application does not know yet."""


C = TypeVar("C", bound=MembershipState)


class BaseGroupMember(Generic[C]):
    """The part of `members.Member` that does not depend on the protocol, over its core."""

    def __init__(self, client: Client, settings: MemberSettings, listener: MembershipListener, core: C) -> None:
        self.settings, self.core = settings, core
        self.coordination = GroupCoordinatorClient(client, settings.group)
        self.beat_sent = self.beat_answered = -1.0
        """Of the last request that keeps the session and was answered well, by env.mono()."""
        self._client, self._env, self._listener = client, client.env, listener
        self._polled_at = client.env.mono()
        self._halted = False
        self._wake = client.env.signal()
        client.track(settings.topics)

    @property
    def who(self) -> CommitIdentity:
        """Return the id and generation that its coordinator knows. In a consumer group the generation is its member
        epoch.
        """
        return CommitIdentity(self.core.member_id, self.core.generation, self.settings.instance)

    @property
    def owned(self) -> Sequence[Place]:
        """Return the partitions that it may read, as far as it knows."""
        return self.core.owned

    @property
    def has_lost(self) -> bool:
        """Return whether its partitions belong to others by now and `hear` has yet to report that."""
        return self.core.has_lost

    @property
    def out(self) -> str:
        """Return the error that ended its membership for good; empty while it may continue."""
        return self.core.out

    @property
    def must_join(self) -> bool:
        """Return whether its generation is over: another one begins, or has begun without it."""
        return bool(self.core.rejoin or self.core.out)

    def halt(self, *, still: bool) -> None:
        """Pause the whole process, heartbeats included, or let it continue."""
        self._halted = still
        self._wake.set()

    def hear(self) -> None:
        """Report lost partitions to the listener. `keep_up` does it, too, but not after a membership's end."""
        if self.core.has_lost:
            places, self.core.owned = self.core.owned, ()
            self._listener.lost(places, self.core.out or self.core.rejoin)

    async def _until_woken(self, most_s: float) -> None:
        """Until there is something to do at once, or so long."""
        await self._wake.wait(most_s)
        # Woken and cancelled at once: its connections may have ended already.
        await trio.lowlevel.checkpoint_if_cancelled()

    @property
    def _polls_within_s(self) -> float:
        """Until the application has not polled for too long."""
        return self._polled_at + self.settings.max_poll_interval_ms / 1000 - self._env.mono()
