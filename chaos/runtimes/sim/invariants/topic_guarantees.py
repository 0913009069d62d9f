"""Holds what a configuration promises for a topic. The invariants demand no more than this.
`squall.checkers.guarantees` has the matrix of all configurations and faults.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicGuarantees:
    """Holds what the settings of one topic and of the cluster promise for the topic."""

    min_isr: int = 1
    """Is min.insync.replicas; a value above the number of replicas counts as all of them."""
    unclean: bool = False
    """Is unclean.leader.election.enable: a replica that was not in sync may lead, and records that it lacks are lost.
    """
    durable: bool = False
    """Is True with flush.messages=1 on disks that keep synced data: then a power loss takes no committed record."""
    elr: bool = False
    """Is True with eligible leader replicas (KIP-966): the last member of the ISR cannot be elected after it stopped
    uncleanly.
    """
    hw_truncation: bool = False
    """Is True if followers truncate to their high watermark, as before KIP-101: committed records may be lost, and logs
    may diverge.
    """
    without_controller: bool = False
    """Is True if partition leaders are elected without a controller, so an epoch may have two leaders. No setting of
    Squall's broker causes this.
    """

    def effective_min_isr(self, replicas: int) -> int:
        """Return the min ISR, at most the number of replicas."""
        return max(1, min(self.min_isr, replicas)) if replicas else self.min_isr
