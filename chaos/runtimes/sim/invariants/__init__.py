"""God's eye: what must hold of a cluster after every event of a simulation, and who looks.

Every invariant is a small pure function with its definition and its source in the table `INVARIANTS`.
`InvariantChecker` looks at the world; `PartitionModel` is what it knows of a partition, above all the ledger of
committed batches.
"""

# Invariants read the broker's own fields: the broker needs no hooks, and an error shows at the event that caused it.
# Rejected: hooks in the broker; checks at the end of a run.

from squall.chaos.runtimes.sim.invariants import (
    acks,
    commitment,
    decisions,
    derived,
    groups,
    metadata,
    one_order,
    producers,
    reads,
    replicas,
    transactions,
)
from squall.chaos.runtimes.sim.invariants.promise import Promise
from squall.chaos.runtimes.sim.invariants.table import INVARIANTS, Invariant, When
from squall.chaos.runtimes.sim.invariants.violation import Violation
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker

ROOMS = (acks, commitment, decisions, derived, groups, metadata, one_order, producers, reads, replicas, transactions)
"""Whoever is imported has entered its invariants into the table."""

__all__ = ["INVARIANTS", "Invariant", "Promise", "Violation", "InvariantChecker", "When"]
