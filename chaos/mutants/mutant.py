"""Defines a planted bug: rules of the broker that others replace for a while, and how it is hunted.

Every mutant is a defect that some released broker had, or a setting that was claimed to be safe. The broker knows
nothing of them: `planted` puts other functions in the place of its rules and takes them away again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from squall.chaos.plans.plan import Plan
from squall.checkers.anomalies import replica_divergence
from squall.checkers.anomalies.registry import CATALOG

REPLICATION = "replication"
"""The mutants that need neither groups nor transactions."""
TRANSACTIONS = "transactions"
"""The mutants that only producers and readers of transactions can meet."""
GROUPS = "groups"
"""The mutants that only members of consumer groups can meet."""
ON_DISKS = tuple(anomaly.name for anomaly in replica_divergence.ANOMALIES)
"""Anomalies of the brokers' files, which clients cannot read."""
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ReplacedFunction:
    """Names one rule of the broker, a method or a module's function, and what replaces it."""

    owner: type[Any] | ModuleType
    name: str
    by: Callable[..., Any]

    def __str__(self) -> str:
        owner = self.owner.__name__ if isinstance(self.owner, ModuleType) else _path(self.owner)
        return f"{owner.removeprefix('squall.').removeprefix('broker.')}.{self.name}"


def _path(owner: type[Any]) -> str:
    return f"{owner.__module__}.{owner.__qualname__}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A known bug, planted. `plan` and `expected` say how it is found."""

    id: str
    """The row of the list of known bugs; a letter where a row has several."""
    name: str
    title: str
    """What the broker does wrong, as a sentence without a subject."""
    source: str
    """It is published there."""
    replaces: tuple[ReplacedFunction, ...]
    """The rule, in every place that it stands in. Empty for a setting that is claimed to be safe."""
    expected: tuple[str, ...]
    """Anomalies or invariants that show it: any of them."""
    faults: tuple[str, ...]
    """Kinds of faults that provoke it."""
    plan: Callable[[int], Plan]
    """A seed into a plan that is likely to provoke it, and that a sound broker stands."""
    seen_plan: Callable[[int], Plan] | None = None
    """In the place of `plan` where only that counts which clients see: what they notice takes more than what an
    invariant does. None: `plan` does for both.
    """
    masked: str = ""
    """Why no plan can find it, where that is so: which other rule of the broker stands behind this one."""
    unseen: str = ""
    """Why no client can notice it, where that is so: what only a look inside the brokers shows."""
    group: str = REPLICATION
    load: str = ""
    """The scenario of its plans, where its group has several."""

    def title_of(self) -> str:
        """Its id, and its name."""
        return f"{self.id} ({self.name})"

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Anomalies that clients must see: those of `expected` that are neither invariants nor of the brokers' files.
        """
        return tuple(name for name in self.expected if name in CATALOG and name not in ON_DISKS)

    @property
    def is_setting(self) -> bool:
        """True for a configuration that is claimed to be safe, and is not: the broker is as it should be."""
        return not self.replaces

    @property
    def is_of_clients(self) -> bool:
        """True for one of transactions or groups: it is found by what their clients see, unless they cannot."""
        return self.group != REPLICATION and not self.unseen

    @property
    def workload(self) -> str:
        """The scenario that a swarm hunts it with."""
        return self.load or ("appends" if self.group == REPLICATION else self.group)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Replace the rules while inside. Not to be nested, nor used by two threads at a time."""
        before = [vars(r.owner).get(r.name, _ABSENT) for r in self.replaces]
        for r in self.replaces:
            assert callable(getattr(r.owner, r.name, None)), f"mutant {self.id}: there is no rule {r}"
        try:
            for r in self.replaces:
                setattr(r.owner, r.name, r.by)
            yield
        finally:
            for r, rule in zip(self.replaces, before, strict=True):
                if rule is _ABSENT:
                    delattr(r.owner, r.name)
                else:
                    setattr(r.owner, r.name, rule)
