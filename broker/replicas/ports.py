"""The ports by which the replica manager has effects of its state machines carried out elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replication.values import IsrChanged, ProposeIsr


class FollowingPort(Protocol):
    """Fetches from leaders."""

    def follow(self, hosted: HostedPartition) -> None:
        """Fetch a partition from its current leader, and from no other."""

    def unfollow(self, hosted: HostedPartition) -> None:
        """Stop fetching a partition. No error if it is not fetched."""


class ProposalPort(Protocol):
    """Asks the controller for ISR changes."""

    def propose(self, h: HostedPartition, proposal: ProposeIsr) -> None:
        """Ask for an ISR; replaces an earlier proposal of that partition."""

    def retry(self, h: HostedPartition, proposal: ProposeIsr) -> None:
        """Propose again after a pause, because nothing was decided; unless there is a newer proposal by then."""

    def changed(self, h: HostedPartition, effect: IsrChanged) -> None:
        """The committed or the maximal ISR of a partition that is led here is another now."""
