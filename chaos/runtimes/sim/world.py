"""Represents one simulated world: its clock, its network, its nodes, and the violations of invariants that were found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.core import SimCore
from squall.chaos.runtimes.sim.network import SimNetwork

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.violation import InvariantViolation
    from squall.chaos.runtimes.sim.node import SimNode


class SimWorld(SimCore):
    """Represents one simulated world, made from one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.network = SimNetwork(self)
        self.nodes: dict[int, SimNode] = {}
        self.violations: list[InvariantViolation] = []
