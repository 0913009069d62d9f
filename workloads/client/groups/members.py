"""Defines a member of a group, whichever protocol it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.base_member import MembershipListener
from squall.workloads.client.groups.consumer_member import ConsumerMember
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.member import CLOSE, GroupMember
from squall.workloads.client.groups.membership import CONSUMER, MemberSettings
from squall.workloads.client.groups.offsets import CommitIdentity


class GroupConsumer(Protocol):
    """Represents a group member for the application that polls: it joins, keeps the session, and reports its
    partitions. Run `run` in a nursery; call `keep_up` before each poll.
    """

    coordination: GroupCoordinatorClient
    beat_sent: float
    beat_answered: float
    """Holds when the last request that kept the session was answered, in seconds of env.mono(); -1 if none was."""

    @property
    def who(self) -> CommitIdentity:
        """Return the member id and generation that the coordinator knows."""

    @property
    def fetch_identity(self) -> CommitIdentity | None:
        """Return the member id and epoch to send in an OffsetFetch, for the coordinator to check. Return None for a
        classic member, which sends neither.
        """

    @property
    def assignor(self) -> str:
        """Return the name of the assignor that made the assignment."""

    @property
    def owned(self) -> Sequence[Place]:
        """Return the partitions that the member may read, as far as it knows."""

    @property
    def has_lost(self) -> bool:
        """Return whether the member has lost partitions and the listener was not notified yet. `hear` notifies it."""

    @property
    def out(self) -> str:
        """Return the name of the error that ended the membership for good; empty while it may continue."""

    @property
    def must_join(self) -> bool:
        """Return whether the member has to join again, or its membership has ended."""

    def halt(self, *, still: bool) -> None:
        """Stop the whole client if `still`, heartbeats included, as if its OS process were paused; otherwise let it
        continue.
        """

    async def keep_up(self) -> None:
        """Join, or carry out a new assignment, if that is due. Call it before each poll; then `owned` holds the
        partitions that this member may read.
        """

    def heed(self, code: int) -> None:
        """Update the membership after an OffsetCommit or OffsetFetch with this error code. If the code says that the
        generation or epoch is outdated, a classic member joins again at the next `keep_up`, and a consumer member sends
        a heartbeat at once.
        """

    def hear(self) -> None:
        """Notify the `MembershipListener` of lost partitions, if there are any. `keep_up` does so too; call this method
        if no poll follows.
        """

    async def leave(self, why: str = CLOSE) -> None:
        """Give up all partitions and leave the group."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send heartbeats until the nursery is cancelled."""


def member_of(client: Client, settings: MemberSettings, listener: MembershipListener) -> GroupConsumer:
    """Create a group member: a `ConsumerMember` if its settings select the protocol `consumer` (KIP-848), otherwise a
    `GroupMember` (classic).
    """
    if settings.protocol == CONSUMER:
        return ConsumerMember(client, settings, listener)
    return GroupMember(client, settings, listener)
