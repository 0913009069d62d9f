"""Plants Redpanda #3038: only the newest batch of a producer is recognised when it is sent again."""

from __future__ import annotations

from squall.broker.log.producer_rules import BatchMetadata, ProducerRules, ProducerStateEntry
from squall.broker.protocol.records import SEQUENCE_MASK, BatchHeader
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def known_batch(self: ProducerRules, entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
    """Recognise a batch as a duplicate only if it repeats the producer's newest batch."""
    last = header.base_sequence + header.last_offset_delta & SEQUENCE_MASK
    newest = entry.window[-1] if entry.window else None
    known = newest is not None and (newest.first_sequence, newest.last_sequence) == (header.base_sequence, last)
    return newest if known and header.producer_epoch == entry.epoch else None


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die with several responses to one producer in flight."""
    return hunt_plan(seed, killings_behind(seed, "36"), workload={"rate": 300, "partitions": 1})


MUTANT = Mutant(
    id="36",
    name="window-of-one",
    title="knows only the newest batch of a producer again, where five may be in flight",
    source="Redpanda #3038, #3077",
    replaces=(ReplacedFunction(ProducerRules, "known_batch", known_batch),),
    expected=("duplicate",),
    faults=("kill", "latency"),
    plan=plan,
    masked="the resent batch is refused as out of order; our client then gives it up as unknown, which is true. "
    "The duplicate came of Java clients that raise their epoch and send it again",
)
