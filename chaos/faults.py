"""The vocabulary of faults: action x target x parameters, as frozen values.

A fault is an interval, so any subset of a plan is a plan. `ACTIONS` is the one registry: what each action takes, which
fault class it belongs to (`checkers.guarantees` judges by class), what it can hit, and what proves that it landed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MANNERS = ("refuse", "drop", "hold")
"""How a cut link behaves: refuses and resets; swallows bytes and closes when healed; holds bytes and delivers them
late.
"""

SHAPES = ("isolate", "halves", "one-way")
"""Which links a partition cuts: all of the target's to its peers; those between two halves; from the target to its
peers only.
"""

NODE_TARGETS = ("leader", "follower", "controller", "node", "random", "minority", "majority", "all")
"""Whom a fault may hit. `leader:TOPIC-N` and `follower:TOPIC-N` name a partition, `node:N` a broker id."""


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
    """P process, N network (the classes of `checkers.guarantees`)."""
    duration_s: Number
    params: Mapping[str, Number | Choice]
    evidence: str
    """What proves that it landed."""
    default_target: str = "random"


ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action(
            "kill",
            "SIGKILL, restart at the end",
            "P",
            Number(0.2, 600, 3),
            {},
            "the process is gone; a new incarnation registers after the restart",
        ),
        Action(
            "stop",
            "SIGTERM (controlled shutdown), restart at the end",
            "P",
            Number(0.2, 600, 3),
            {},
            "the broker says that it stopped cleanly; a new incarnation registers after the restart",
        ),
        Action(
            "pause",
            "SIGSTOP, SIGCONT at the end",
            "P",
            Number(0.1, 60, 3),
            {},
            "the process is stopped and answers nothing while on; it answers afterwards",
        ),
        Action(
            "partition",
            "cut directed links between brokers",
            "N",
            Number(0.2, 600, 4),
            {"shape": Choice(SHAPES, "isolate"), "manner": Choice(MANNERS, "refuse")},
            "a probe over each cut link fails while on and works afterwards",
        ),
        Action(
            "latency",
            "delay what brokers send each other",
            "N",
            Number(0.2, 600, 4),
            {"latency_ms": Number(1, 30_000, 50), "jitter_ms": Number(0, 30_000, 10)},
            "the round trip measured over the links grows while on",
        ),
    )
}
"""Every action by name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. `at_s` counts from the beginning of the load."""

    id: int
    at_s: float
    duration_s: float
    action: str
    target: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fault_class(self) -> str:
        """P or N: which column of the guarantees it belongs to."""
        return ACTIONS[self.action].fault_class


def make_fault(
    fault_id: int, at_s: float, duration_s: float, action: str, target: str, params: Mapping[str, Any]
) -> Fault:
    """A checked fault with its parameters' defaults filled in. FaultError says what is wrong."""
    known = ACTIONS.get(action)
    if known is None:
        raise FaultError(f"fault {fault_id}: unknown action {action!r}: one of {', '.join(ACTIONS)}")
    here = f"fault {fault_id} ({action})"
    known.duration_s.check(f"{here}: duration_s", duration_s)
    if at_s < 0:
        raise FaultError(f"{here}: at_s = {at_s}: must not be negative")
    for name in params:
        if name not in known.params:
            raise FaultError(f"{here}: unknown parameter {name!r}: {', '.join(known.params) or 'it takes none'}")
    checked = {n: p.check(f"{here}: {n}", params.get(n, p.default)) for n, p in known.params.items()}
    check_target(here, target)
    return Fault(fault_id, float(at_s), float(duration_s), action, target, checked)


def check_target(here: str, target: str) -> tuple[str, str]:
    """(kind, argument) of a target such as "leader:appends-0-1". FaultError where it is none."""
    kind, _, argument = target.partition(":")
    if kind not in NODE_TARGETS:
        raise FaultError(f"{here}: unknown target {target!r}: one of {', '.join(NODE_TARGETS)}")
    if kind == "node" and not argument.isdigit():
        raise FaultError(f"{here}: target {target!r}: node needs a broker id, as in node:2")
    if kind in ("leader", "follower") and argument and "-" not in argument:
        raise FaultError(f"{here}: target {target!r}: a partition is TOPIC-NUMBER, as in {kind}:appends-0-1")
    return kind, argument
