"""Plants a bug: min.insync.replicas is not enforced, neither before an append nor after it, nor for the high watermark.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.m15_commits_below_min_isr import alone_by_a_cut
from squall.chaos.mutants.m15_commits_below_min_isr import plan as last_one_standing
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def never(self: Partition) -> bool:
    """Return False in place of a rule that compares the ISR with min.insync.replicas: the ISR is never too small."""
    return False


def plan(seed: int) -> Plan:
    """Return the plan of mutant 15: the leader is alone in the ISR, and then loses its power. With this bug the leader
    has acknowledged records while it was alone.
    """
    return last_one_standing(seed)


def client_visible_plan(seed: int) -> Plan:
    """Return a plan that cuts a leader off from its followers until it dies. With this bug the leader has acknowledged
    records while it was alone in the ISR, and the next leader lacks them.
    """
    return alone_by_a_cut(seed, "20")


MUTANT = Mutant(
    id="20",
    name="min-isr-unchecked",
    title="acknowledges acks=all with fewer in-sync replicas than min.insync.replicas",
    source="min.insync.replicas; NOT_ENOUGH_REPLICAS (19), NOT_ENOUGH_REPLICAS_AFTER_APPEND (20)",
    replaces=(
        ReplacedFunction(PartitionRules, "under_min_isr_before_append", never),
        ReplacedFunction(PartitionRules, "under_min_isr_after", never),
        ReplacedFunction(PartitionRules, "is_high_watermark_frozen", never),
    ),
    expected=("strong-isr", "acknowledged-is-replicated", "hw-held-by-min-isr", "lost-write", "unseen"),
    faults=("pause", "power_loss"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)

MASKED = tuple(
    Mutant(
        id=mutant_id,
        name=name,
        title=title,
        source=source,
        replaces=(ReplacedFunction(PartitionRules, rule, never),),
        expected=("lost-write", "unseen"),
        faults=("pause", "power_loss"),
        plan=plan,
        masked="the high watermark stands still below min ISR (KAFKA-15583), so nothing is acknowledged there anyway",
    )
    for mutant_id, name, title, source, rule in (
        ("20a", "no-check-before", "appends although the ISR is too small", "error 19", "under_min_isr_before_append"),
        ("20b", "no-check-after", "acknowledges although the ISR has shrunk", "error 20", "under_min_isr_after"),
    )
)
"""Lists two mutants that each lack only one check of min.insync.replicas: the one before an append, or the one after
it. Both are masked: the high watermark does not advance while the ISR is too small, so neither bug has an effect.
"""
