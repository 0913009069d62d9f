"""Checks after every event of a simulation that the cluster keeps its invariants. The checks see into the memory and
disks of all nodes at once.

Every invariant is a small pure function with its definition and its source in the table `INVARIANTS`.
`InvariantChecker` reads the nodes after each event. `PartitionModel` holds what the checks know of a partition, above
all the ledger: the list of batches that some leader has committed. A "permitted loss" is a loss of committed batches
that the configuration allows, for example by an unclean election.
"""

# Invariants read the broker's own fields: the broker needs no hooks, and an error shows at the event that caused it.
# Rejected: hooks in the broker; checks at the end of a run.

from squall.chaos.runtimes.sim.invariants import (
    acks,
    broker_sessions,
    commitment,
    decisions,
    derived,
    fetch_sessions,
    group_times,
    groups,
    leaders,
    metadata,
    producers,
    reads,
    replicas,
    request_order,
    transactions,
    txn_times,
)
from squall.chaos.runtimes.sim.invariants.table import INVARIANTS, CheckTrigger, Invariant
from squall.chaos.runtimes.sim.invariants.topic_guarantees import TopicGuarantees
from squall.chaos.runtimes.sim.invariants.violation import InvariantViolation
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker

CHECK_MODULES = (
    *(acks, broker_sessions, commitment, decisions, derived, fetch_sessions, group_times, groups, leaders, metadata),
    *(producers, reads, replicas, request_order, transactions, txn_times),
)
"""Lists the modules that define invariants. Importing such a module adds its invariants to the table."""

__all__ = ["INVARIANTS", "Invariant", "TopicGuarantees", "InvariantViolation", "InvariantChecker", "CheckTrigger"]
