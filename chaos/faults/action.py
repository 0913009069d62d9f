"""What an action of the nemesis is: its parameters with their bounds, its class of faults, its evidence, its worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MANNERS = ("refuse", "drop", "hold")
"""How a cut link behaves: refuses and resets; swallows bytes and closes when healed; holds bytes and delivers them
late.
"""

SHAPES = ("isolate", "halves", "one-way", "ring", "bridge")
"""Which links a partition cuts: all of the target's; those between two halves; what the target sends, only; so that
each broker hears a majority and no two the same one (Jepsen's majorities-ring); those between two halves that only the
target, the bridge, sees both of.
"""

SIDES = ("peers", "clients", "both")
"""Whose connections to the target are hit: those between brokers (of either direction), of clients, or both."""

EVERYWHERE, SIMULATED = frozenset({"process", "docker", "sim"}), frozenset({"sim"})


class FaultError(ValueError):
    """A fault that cannot be: unknown action or target, or a parameter out of range. The message says which and what is
    allowed.
    """


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric parameter: bounds (inclusive) and default, in the unit that its name carries."""

    low: float
    high: float
    default: float

    def check(self, name: str, value: Any) -> float:
        """The value, or FaultError."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise FaultError(f"{name} = {value!r}: between {self.low:g} and {self.high:g} are allowed")
        return float(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """A parameter with a fixed set of values."""

    values: tuple[str, ...]
    default: str

    def check(self, name: str, value: Any) -> str:
        """The value, or FaultError."""
        if value not in self.values:
            raise FaultError(f"{name} = {value!r}: one of {', '.join(self.values)} is allowed")
        return str(value)


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done to a cluster."""

    name: str
    title: str
    fault_class: str
    """P process, N network, C clock, W1 power loss, D damaged disk (the classes of `checkers.guarantees`)."""
    duration_s: Number
    params: Mapping[str, Number | Choice]
    evidence: str
    """What proves that it landed."""
    runtimes: frozenset[str] = EVERYWHERE
    """Where it can be done."""
    nowhere_else: str = ""
    """Why not in the other ones."""
