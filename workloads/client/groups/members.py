"""A member of a group, whichever protocol it speaks with its coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.consumer_member import ConsumerMember
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.member import CLOSE, GroupMember
from squall.workloads.client.groups.membered import MembershipListener
from squall.workloads.client.groups.membership import CONSUMER, MemberSettings
from squall.workloads.client.groups.offsets import CommitIdentity


class GroupConsumer(Protocol):
    """Offers an application its membership. Run `run` in a nursery; call `keep_up` before each poll."""

    coordination: GroupCoordinatorClient
    beat_sent: float
    beat_answered: float
    """Of the last request that keeps the session and was answered well, by env.mono(); -1: none was."""

    @property
    def who(self) -> CommitIdentity:
        """As its coordinator knows it."""

    @property
    def asks_as(self) -> CommitIdentity | None:
        """As whom it asks where its group stands; None: as nobody."""

    @property
    def assignor(self) -> str:
        """Return the name of the assignor that assigned what it owns."""

    @property
    def owned(self) -> Sequence[Place]:
        """Return the partitions that it may read, as far as it knows."""

    @property
    def has_lost(self) -> bool:
        """Return whether its partitions are not its own any more, and `hear` has yet to report that."""

    @property
    def out(self) -> str:
        """The error that ended its membership for good; empty while it may go on."""

    @property
    def must_join(self) -> bool:
        """Return whether its generation is over: another one begins, or has begun without it."""

    def halt(self, *, still: bool) -> None:
        """The whole process stands still, heartbeats included; or goes on."""

    async def keep_up(self) -> None:
        """Do what is due before each poll. Then `owned` is what this member may read."""

    def heed(self, code: int) -> None:
        """An error that a commit or a question for offsets of this member came back with."""

    def hear(self) -> None:
        """Be told of what is lost."""

    async def leave(self, why: str = CLOSE) -> None:
        """Give up everything, and go."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Heartbeats, until its nursery is cancelled."""


def member_of(client: Client, settings: MemberSettings, listener: MembershipListener) -> GroupConsumer:
    """A member that speaks the protocol of its settings."""
    if settings.protocol == CONSUMER:
        return ConsumerMember(client, settings, listener)
    return GroupMember(client, settings, listener)
