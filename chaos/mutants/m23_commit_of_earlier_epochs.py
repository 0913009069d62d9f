"""Plants the bug of figure 8 of the Raft paper: the metadata leader counts a majority for records of earlier epochs as
a commit.
"""

from __future__ import annotations

from squall.broker.quorum.leadership import LeaderState
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def committed_offset(self: LeaderState, own_synced_offset: int) -> int:
    """Return the offset that a majority holds, whatever the epoch of its record."""
    ends = sorted([own_synced_offset, *(replica.end_offset for replica in self.voters.values())], reverse=True)
    return max(0, ends[self._settings.majority - 1])


def plan(seed: int) -> Plan:
    """Return a plan in which brokers, often the controller, die or are cut off, one soon after the other. A controller
    may then hold records that no other voter has, and may come back while another controller is elected.
    """
    rng = draw(seed, "23")
    at_s, faults = 0.3, []
    for _ in range(6):
        kind = rng.random()
        node = f"node:{rng.randint(1, 5)}"
        length_s = rng.uniform(0.8, 1.6)
        if kind < 0.5:
            faults.append(fault(at_s, length_s, "kill", rng.choice((node, "controller"))))
        else:
            shape = rng.choice(("isolate", "one-way"))
            target = rng.choice((node, "controller"))
            faults.append(fault(at_s, length_s + 0.7, "partition", target, shape=shape, manner="hold"))
        at_s += rng.uniform(0.5, 1.2)
    return hunt_plan(seed, faults, nodes=5)


MUTANT = Mutant(
    id="23",
    name="commit-of-earlier-epochs",
    title="commits metadata without a record of the leader's own epoch",
    source="Raft, section 5.4.2; KIP-595",
    replaces=(ReplacedFunction(LeaderState, "committed_offset", committed_offset),),
    expected=(
        "metadata-commits-own-epoch",
        "metadata-leader-completeness",
        "metadata-committed-prefix",
        "image-is-a-replay",
        "lost-write",
        "unseen",
        "inconsistent-offset",
    ),
    faults=("kill", "partition"),
    plan=plan,
    unseen="voters get the first record of an epoch in one answer with those before it. Who has these alone lost its "
    "power while it wrote that answer; then a third voter must have led in between",
)
