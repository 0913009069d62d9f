"""Limits a simulated node to a share of a CPU. With share 0.3, the node is stopped for 0.07 s of each 0.1 s."""

from __future__ import annotations

from typing import Protocol

from squall.chaos.runtimes.sim.kernel import Kernel, TimerHandle

PERIOD_S = 0.1


class SlowedNode(Protocol):
    """Represents a node that can be stopped and continued."""

    def hold(self, *, on: bool) -> None:
        """Stop the node, or let it continue."""


class CpuShareLimits:
    """Holds the CPU limits on one node, by the fault's name, and applies the smallest share of them: the node is
    stopped for the rest of each period of PERIOD_S. The limits survive restarts of the node.
    """

    def __init__(self, kernel: Kernel, node: SlowedNode) -> None:
        self.shares: dict[str, float] = {}
        self.holds = False
        """Is True while a limit keeps the node stopped."""
        self._kernel, self._node = kernel, node
        self._timer: TimerHandle | None = None
        self._began = self._held_at = 0.0
        self._held_s, self._stops = 0.0, 0

    def add(self, name: str, share: float) -> None:
        """Limit the node to `share` of a CPU (0 to 1). name: the fault's name, which no other limit has."""
        self.shares[name] = share
        # A further limit needs no new period: `_hold` and `_let_go` read the smallest share each time.
        if len(self.shares) == 1:
            self._began, self._held_s, self._stops = self._kernel.now, 0.0, 0
            self._hold()

    def remove(self, name: str) -> tuple[int, float]:
        """End the limit of this name. If no limit is left, return the number of times that the node was stopped, and
        the share of the time in which it ran, both since the node became limited. Return zeros if another limit is
        left, or if there is no limit of this name.
        """
        if self.shares.pop(name, None) is None or self.shares:
            return 0, 0.0
        self._end()
        lasted_s = self._kernel.now - self._began
        return self._stops, 1.0 - self._held_s / lasted_s if lasted_s else 1.0

    def clear(self) -> None:
        """End all limits."""
        self.shares.clear()
        self._end()

    def _hold(self) -> None:
        self.holds, self._held_at = True, self._kernel.now
        self._stops += 1
        self._node.hold(on=True)
        self._timer = self._kernel.at(PERIOD_S * (1.0 - min(self.shares.values())), self._let_go)

    def _let_go(self) -> None:
        self._go_on()
        self._timer = self._kernel.at(PERIOD_S * min(self.shares.values()), self._hold)

    def _go_on(self) -> None:
        self.holds = False
        self._held_s += self._kernel.now - self._held_at
        self._node.hold(on=False)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.holds:
            self._go_on()
