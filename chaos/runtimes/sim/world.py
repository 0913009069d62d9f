"""Represents one simulated world: its ground, its network, its nodes, and which invariants they broke."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.ground import SimCore
from squall.chaos.runtimes.sim.network import Network

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.violation import Violation
    from squall.chaos.runtimes.sim.node import SimNode


class World(SimCore):
    """Represents one world, made from one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.network = Network(self)
        self.nodes: dict[int, SimNode] = {}
        self.violations: list[Violation] = []
