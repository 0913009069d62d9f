"""Plants a bug: the controller elects any live replica, though unclean elections are disabled."""

from __future__ import annotations

from squall.broker.controller import elections, leaders
from squall.broker.controller.decision import Command
from squall.broker.controller.elections import ElectionType
from squall.chaos.mutants.hunt_plans import hunt_plan
from squall.chaos.mutants.m17_unclean_election import plan as followers_out_then_leader_dies
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def election_for(command: Command, topic: str) -> ElectionType:
    """Always return the unclean election."""
    return ElectionType.UNCLEAN


def plan(seed: int) -> Plan:
    """Return the plan of mutant 17 (followers fall behind, then their leader dies), but with unclean elections
    disabled.
    """
    faults = [f.model_dump() for f in followers_out_then_leader_dies(seed).faults]
    return hunt_plan(seed, faults, workload={"replication_factor": 2, "min_isr": 1})


MUTANT = Mutant(
    id="17b",
    name="elects-anybody",
    title="elects a leader that is not in sync although unclean elections are off",
    source="KIP-106, KAFKA-1028",
    replaces=(
        ReplacedFunction(elections, "election_for", election_for),
        ReplacedFunction(leaders, "election_for", election_for),
    ),
    expected=("clean-election", "leader-completeness", "strong-isr", "lost-write", "unseen"),
    faults=("pause", "kill"),
    plan=plan,
)
