"""Defines the form in which a module of this folder describes its anomalies.

Some anomalies can be seen with different evidence, and a configuration that may lose records also permits what such a
loss looks like from further away: an offset given to a second record, an acknowledgement below an earlier one. It never
permits the same thing among the final reads, where the cluster has converged. So a finding carries its evidence:

- `final`: the final reads alone show it;
- `reads`: an earlier read is needed to see it;
- `acks`: an acknowledgement is needed to see it.

`squall.checkers.guarantees` permits a name (`duplicate`) or a name with one kind of evidence
(`inconsistent-offset/acks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from squall.checkers.findings import Witness
from squall.checkers.history.tables import History

FINAL = "final"
READS = "reads"
OWN, PROGRAM = "squall", "program"
"""Our own client and a program under test, as a history names them."""
ACKS = "acks"

JEPSEN = "jepsen.tests.kafka"
"""A source: Jepsen's Kafka workload, whose name for it is `AnomalyDefinition.jepsen`."""
IN_ORDER = f"{JEPSEN}; Kafka documentation, introduction: a partition is read in the order in which it was written"
"""A source: what readers are promised."""

T = TypeVar("T")


class AnomalyFamily(StrEnum):
    """Names the subject of an anomaly."""

    DATA = "data"
    READERS = "readers"
    TRANSACTIONS = "transactions"
    GROUPS = "groups"
    LIVENESS = "liveness"


class HistoryNeed(StrEnum):
    """Names what a history must contain for an anomaly to show."""

    SENDS = "sends"
    ACKS = "acknowledged sends with an offset"
    FAILURES = "sends that definitely failed"
    READS = "records that were read"
    OWN_READERS = "readers of our own client: libraries do not say exactly what they were told"
    PLACES = "offsets of acknowledged or read records"
    FINAL_READS = "final reads"
    TRANSACTIONS = "transactions"
    COMMITTED_READS = "reads at read_committed"
    COMMITTED_FINAL_READS = "final reads at read_committed"
    READS_INSIDE = "records that polls at read_committed returned inside transactions"
    MEMBERS = "members of groups that owned partitions"
    RESUMED = "members that began at a committed position"
    RIVALS = "second member that owned partitions"
    WRITES_AFTER_HEALING = "writes after healing"
    PROOFS = "requests that a coordinator accepted as a member's: of libraries only commits are known"
    COMMITS = "committed positions"
    POSITIONS = "committed positions that coordinators reported"
    OUTPUTS = "records that members of groups made of those that they had read"
    LOOKUPS = "offsets that readers looked up by time, of records that they had got"
    MARKS = "high watermarks and last stable offsets that brokers reported"


@dataclass(frozen=True, slots=True)
class AnomalyDefinition:
    """Describes one kind of wrong."""

    name: str
    family: AnomalyFamily
    definition: str
    source: str
    """Where it is written that this is wrong; for what only Squall calls by this name, where the rule comes from."""
    jepsen: str = ""
    """Its name in jepsen.tests.kafka; empty where that has none."""
    other: str = ""
    """What a witness's `other` field holds; empty where it is -1."""
    meaning: str = ""
    """What so many witnesses mean to whoever runs the cluster, after their number: "records stand at two offsets".
    `{others}` stands for their `other`, summed over processes and partitions."""
    meaning_of_one: str = ""
    """The same of one witness: "record stands at two offsets"."""
    counts: str = ""
    """What `meaning` counts if not witnesses, of which several may be of the same one: processes, or partitions."""
    needs: tuple[HistoryNeed, ...] = ()
    """A history that lacks one of these neither shows it nor rules it out."""


class HistoryViews:
    """A history, and the views of it that several finders share."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._views: dict[Any, Any] = {}

    def view(self, make: Callable[[History], T]) -> T:
        """Return what `make` makes of the history, made once. Finders must not change it."""
        if make not in self._views:
            self._views[make] = make(self.history)
        return cast(T, self._views[make])


AnomalyFinder = Callable[[HistoryViews], Iterable[Witness]]
"""The obvious slow finder: the oracle of the Spark query. Good for up to about a million records."""


@dataclass(frozen=True, slots=True)
class AnomalyCheck:
    """Describes what one module looks for, and how."""

    module: str
    """Its __name__."""
    anomalies: tuple[AnomalyDefinition, ...]
    find: AnomalyFinder | None = None
    """Finds them in a history. None: something else than a history shows them."""
    exists: bool = True
    """False: nothing looks for them yet."""

    @property
    def name(self) -> str:
        """Return the name of the module, of its Spark query, and of its tests."""
        return self.module.rpartition(".")[2]
