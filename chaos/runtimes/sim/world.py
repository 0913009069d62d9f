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
    """Holds everything that one simulation consists of: clock, random streams and traces (`SimCore`), the network, the
    nodes, and the violations of invariants that were found. The seed decides every random choice.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.network = SimNetwork(self)
        self.nodes: dict[int, SimNode] = {}
        self.violations: list[InvariantViolation] = []
