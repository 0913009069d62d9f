"""Defines a planted bug: functions of the broker that are replaced for a while, and how a hunt looks for it.

Every mutant is a defect that some released broker had, or a setting that was claimed to be safe. The broker's code
knows nothing about mutants: `planted` replaces functions and restores them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.plans.plan import Plan
from squall.checkers.anomalies import replica_divergence
from squall.checkers.anomalies.registry import CATALOG

REPLICATION = "replication"
"""Names the group of mutants that need neither consumer groups nor transactions."""
TRANSACTIONS = "transactions"
"""Names the group of mutants that only producers and readers of transactions can meet."""
GROUPS = "groups"
"""Names the group of mutants that only members of consumer groups can meet."""
ON_DISKS = tuple(anomaly.name for anomaly in replica_divergence.ANOMALIES)
"""Names the anomalies of the brokers' files, which clients cannot read."""
_ABSENT = object()
Replacement = tuple[type[Any] | ModuleType, str, Callable[..., Any]]
"""Holds the values of a ReplacedFunction: owner, name, by."""
MakePlan = Callable[[int, Random], Plan]
"""Makes a plan from a seed, and from random numbers that belong to this seed and one mutant."""


@dataclass(frozen=True, slots=True)
class ReplacedFunction:
    """Names one function of the broker (a method, or a module's function) and its replacement."""

    # Where callers look the name up: a module that imports a function by its name has a name of its own for it.
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
    """Describes a known bug that can be planted. `plan` makes plans that provoke it, and `expected` names the checks
    that show it.
    """

    id: str
    """Is the mutant's number in docs/shown/mutants.md. Mutants with similar bugs may share a number, with different
    letters behind it.
    """
    name: str
    title: str
    """Says what the broker does wrong, in words that follow "the broker"."""
    source: str
    """Says where the bug is published."""
    replaces: tuple[ReplacedFunction, ...]
    """Lists the functions to replace. Empty for a setting that is claimed to be safe."""
    expected: tuple[str, ...]
    """Names the anomalies or invariants by which the bug can be found. One of them is enough."""
    faults: tuple[str, ...]
    """Names the kinds of faults that provoke the bug."""
    plan: Callable[[int], Plan]
    """Makes, from a seed, a plan that is likely to provoke the bug, and that a correct broker survives."""
    client_visible_plan: Callable[[int], Plan] | None = None
    """Makes the plan for a hunt that counts only what clients see (`--checks history`). Clients notice a bug later than
    invariants do. None: `plan` is used there, too.
    """
    masked: str = ""
    """Says which other rule of the broker prevents the bug's effect, so that no plan can find it; empty if a plan can.
    """
    unseen: str = ""
    """Says why no client can notice the bug, and what an inspection of the brokers shows; empty if clients can notice
    it.
    """
    group: str = REPLICATION
    load: str = ""
    """Names the workload of the mutant's plans. If it is empty, the group decides: the workload is `appends` for the
    group `replication`, and has the name of the group for `transactions` and `groups`.
    """

    def id_and_name(self) -> str:
        """Return the text `ID (NAME)`."""
        return f"{self.id} ({self.name})"

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Returns the anomalies that clients must see: those of `expected` that are neither invariants nor about
        brokers' files.
        """
        return tuple(name for name in self.expected if name in CATALOG and name not in ON_DISKS)

    @property
    def is_setting(self) -> bool:
        """Is True if the mutant is a configuration that is wrongly claimed to be safe. The broker itself is correct."""
        return not self.replaces

    @property
    def is_of_clients(self) -> bool:
        """Is True if the mutant's group is `transactions` or `groups` and clients can notice the bug. A hunt for such a
        mutant counts only what clients see.
        """
        return self.group != REPLICATION and not self.unseen

    @property
    def workload(self) -> str:
        """Returns the workload of the mutant's plans. `squall hunt --swarm` also draws its random plans for this
        workload.
        """
        return self.load or ("appends" if self.group == REPLICATION else self.group)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Replace the functions until the block ends. Must not be nested, nor used by two threads at the same time."""
        # Not getattr, which would unwrap a static method, and return an inherited function as the owner's own.
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


def mutant(
    mutant_id: str,
    title: str,
    *,
    source: str,
    expected: str,
    faults: str = "",
    replaces: Sequence[Replacement] = (),
    client_visible_plan: MakePlan | None = None,
    masked: str = "",
    unseen: str = "",
    group: str = REPLICATION,
    load: str = "",
) -> Callable[[MakePlan], Mutant]:
    """Return a decorator that turns the function which makes a mutant's plans into the mutant. Its name is that of the
    function, with hyphens. expected and faults: names with spaces between them; all else as in `Mutant`.
    """

    def made(plan: MakePlan) -> Mutant:
        return Mutant(
            id=mutant_id,
            name=plan.__name__.replace("_", "-"),
            title=title,
            source=source,
            replaces=tuple(ReplacedFunction(*each) for each in replaces),
            expected=tuple(expected.split()),
            faults=tuple(faults.split()),
            plan=lambda seed: plan(seed, draw(seed, mutant_id)),
            client_visible_plan=client_visible_plan
            and (lambda seed: client_visible_plan(seed, draw(seed, f"{mutant_id}: seen"))),
            masked=masked,
            unseen=unseen,
            group=group,
            load=load,
        )

    return made


txn_mutant = partial(mutant, group=TRANSACTIONS)
group_mutant = partial(mutant, group=GROUPS)
pipeline_mutant = partial(group_mutant, load="pipeline")
load_mutant = partial(txn_mutant, load="load")


def always(value: object) -> Callable[..., Any]:
    """Return a replacement that returns `value`, whatever it is called with."""

    def rule(*_args: object, **_named: object) -> object:
        return value

    return rule
