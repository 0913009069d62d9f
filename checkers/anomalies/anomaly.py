"""Defines the form in which each module of this folder describes its anomalies.

The same anomaly can be seen with different evidence. A configuration that may lose records also permits the
consequences of such a loss, for example an offset that is given to a second record, or an acknowledged offset below an
earlier one. It never permits these consequences among the final reads, because the cluster has converged by then. So a
finding carries its evidence:

- `final`: the final reads alone show it;
- `reads`: an earlier read is needed to see it;
- `acks`: an acknowledgement is needed to see it.

`squall.checkers.guarantees` permits an anomaly by name (`duplicate`), or a name with one kind of evidence
(`inconsistent-offset/acks`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

from squall.checkers.history.tables import History

FINAL = "final"
READS = "reads"
OWN, PROGRAM = "squall", "program"
"""Are the names that a history uses for our own client and for a program under test."""
ACKS = "acks"

JEPSEN = "jepsen.tests.kafka"
"""Names Jepsen's Kafka workload, for the anomalies that it defines too."""
IN_ORDER = f"{JEPSEN}; Kafka documentation, introduction: a partition is read in the order in which it was written"
"""Names the source of the promise that readers get a partition's records in order."""

T = TypeVar("T")


class AnomalyFamily(StrEnum):
    """Names the subject of an anomaly: data, readers, transactions, groups or liveness."""

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
    """Describes one kind of anomaly: its name, definition, source, and what a history needs to show it."""

    name: str
    family: AnomalyFamily
    definition: str
    source: str
    """Cites where it is written that a cluster must not show the anomaly. If only Squall uses the anomaly's name, says
    where the rule comes from.
    """
    jepsen: str = ""
    """Is the anomaly's name in jepsen.tests.kafka; empty if Jepsen has no name for it."""
    other: str = ""
    """Says what the field `other` of a witness holds; empty if the field is always -1."""
    meaning: str = ""
    """Says what several witnesses mean to the owner of a cluster. Reports write a number before the text, as in "12
    records came back altered". If the text contains `{others}`, reports replace that by a second number: the sum of the
    witnesses' field `other`, taken once for each process and partition.
    """
    meaning_of_one: str = ""
    """Says what one witness means, as in "record came back altered"."""
    counts: str = ""
    """Says what the number before `meaning` counts: "processes" or "partitions" that have a witness; empty if it counts
    the witnesses.
    """
    needs: tuple[HistoryNeed, ...] = ()
    """Lists what a history must contain: a history without one of these neither shows the anomaly nor rules it out."""


class HistoryViews:
    """Holds a history and the derived views of it that several finders share."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._views: dict[Any, Any] = {}

    def view(self, make: Callable[[History], T]) -> T:
        """Return what `make` computes from the history; it is computed once and then kept. Finders must not change it.
        """
        if make not in self._views:
            self._views[make] = make(self.history)
        return cast(T, self._views[make])
