"""Holds the promises of a configuration: the invariants' demands depend on them. The matrix is
`squall.checkers.guarantees`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicGuarantees:
    """Holds the promises of one topic's settings and of the cluster's."""

    min_isr: int = 1
    """min.insync.replicas; more than there are replicas counts as all of them."""
    unclean: bool = False
    """unclean.leader.election.enable: a replica that was not in sync may lead, and what it lacks is gone."""
    durable: bool = False
    """flush.messages=1 on disks that keep what they synced: a power loss takes nothing that was committed."""
    elr: bool = False
    """Eligible leader replicas (KIP-966): the last replica standing is no candidate after an unclean stop."""
    hw_truncation: bool = False
    """Followers truncate to their high watermark, as before KIP-101: committed records may go, and logs part."""
    without_controller: bool = False
    """Elections without a controller: an epoch may have two leaders."""

    def effective_min_isr(self, replicas: int) -> int:
        """As far as there are that many replicas."""
        return max(1, min(self.min_isr, replicas)) if replicas else self.min_isr
