"""Plants a bug: a voter of the metadata quorum answers before its vote is durable, and votes again after a power loss.
"""

from __future__ import annotations

from squall.broker.control.kraft.quorum_storage import QuorumStorage
from squall.broker.quorum.state import QuorumState
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.mutants.unsynced import replace_unsynced
from squall.chaos.plans.plan import Plan


def persist(self: QuorumStorage, state: QuorumState) -> None:
    """Write the vote without syncing it."""
    text = state.to_json(self._settings.voters, self._cluster_id)
    replace_unsynced(self._env.fs, self._state_path, text.encode())


def plan(seed: int) -> Plan:
    """Return a plan with elections of the quorum, and power losses of voters in the middle of elections."""
    rng = draw(seed, "19b")
    at_s, faults = 0.5, []
    for _ in range(6):
        faults.append(fault(at_s, rng.uniform(0.3, 0.7), "power_loss", f"node:{rng.randint(1, 3)}"))
        at_s += rng.uniform(1.0, 1.4)
    return hunt_plan(seed, faults, workload={"rate": 50})


def client_visible_plan(seed: int) -> Plan:
    """Return a plan with elections of the quorum, and power losses of voters in the middle of them. It has twice as
    many power losses as `plan`. A broker that finds only half of its unsynced vote does not start. If this happens to
    two of the three voters, no leader can be elected.
    """
    rng = draw(seed, "19b: seen")
    at_s, faults = 0.5, []
    for _ in range(12):
        faults.append(fault(at_s, rng.uniform(0.3, 0.7), "power_loss", f"node:{rng.randint(1, 3)}"))
        at_s += rng.uniform(1.0, 1.4)
    return hunt_plan(seed, faults, workload={"rate": 50})


MUTANT = Mutant(
    id="19b",
    name="unsynced-vote",
    title="does not sync its vote before it answers",
    source="Raft; KIP-595",
    replaces=(ReplacedFunction(QuorumStorage, "persist", persist),),
    expected=(
        "vote-durable-before-told",
        "one-vote-per-epoch",
        "quorum-epoch-monotone",
        "one-controller-per-epoch",
        "lost-write",
        "unseen",
        "stuck-producer",
        "stuck-consumer",
    ),
    faults=("power_loss",),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
