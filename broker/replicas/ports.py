"""Defines the interfaces by which the replica manager carries out what a `Partition` asks for: follower fetches and ISR
proposals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replication.values import IsrChanged, ProposeIsr


class FollowerFetchPort(Protocol):
    """Fetches partitions from their leaders."""

    def follow(self, hosted: HostedPartition) -> None:
        """Fetch a partition from its current leader, and from no other."""

    def unfollow(self, hosted: HostedPartition) -> None:
        """Stop fetching a partition. No error is raised if it is not fetched."""


class IsrProposalPort(Protocol):
    """Proposes ISR changes to the controller."""

    def propose(self, h: HostedPartition, proposal: ProposeIsr) -> None:
        """Propose an ISR to the controller; this replaces an earlier proposal of the same partition."""

    def retry(self, h: HostedPartition, proposal: ProposeIsr) -> None:
        """Propose the same ISR again after a pause, because the controller has not decided. Do nothing if the partition
        has a newer proposal already.
        """

    def changed(self, h: HostedPartition, effect: IsrChanged) -> None:
        """Record that the committed or the maximal ISR of a partition led here has changed."""
