"""Plants Redpanda #5026: the known batches of a producer survive a new epoch, and new batches are taken for duplicates.
"""

from __future__ import annotations

from squall.broker.log.producer_rules import BatchMetadata, ProducerRules, ProducerStateEntry
from squall.broker.protocol.records import SEQUENCE_MASK, BatchHeader
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan


def known_batch(self: ProducerRules, entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
    """Return the batch in the log that has the same sequence numbers, or None. The correct function also requires the
    same producer epoch, because a new epoch begins its sequence numbers at 0.
    """
    first = header.base_sequence
    last = first + header.last_offset_delta & SEQUENCE_MASK
    for sent in entry.window:
        if (sent.first_sequence, sent.last_sequence) == (first, last):
            return sent
    return None


def restart(self: ProducerStateEntry, epoch: int) -> None:
    """Restart the sequence numbers for a new epoch, but keep the known batches of the earlier epoch. The correct
    function forgets these batches.
    """
    self.epoch = epoch
    self.next_sequence = 0


def plan(seed: int) -> Plan:
    """Return a plan with transactions of V2, each in an epoch of its own."""
    rng = draw(seed, "35")
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5)


MUTANT = Mutant(
    id="35",
    name="window-survives-epochs",
    title="takes the first batch of a new producer epoch for a repetition of one of an earlier epoch",
    source="Redpanda #5026",
    replaces=(
        ReplacedFunction(ProducerRules, "known_batch", known_batch),
        ReplacedFunction(ProducerStateEntry, "restart", restart),
    ),
    expected=("lost-write", "unseen", "torn-txn", "lost-txn", "stale-ack", "wrong-offset"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
