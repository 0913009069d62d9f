"""Plants bugs of elections by the controller, and of the metadata quorum."""

from __future__ import annotations

from random import Random

from squall.broker.controller import brokers, elections, leaders
from squall.broker.controller.elections import ElectionType
from squall.broker.quorum.leadership import LeaderState
from squall.broker.quorum.raft import Raft
from squall.chaos.mutants.hunt_plans import ELIGIBLE, fault, hunt_plan
from squall.chaos.mutants.mutant import always, mutant
from squall.chaos.plans.plan import Plan


def client_visible_plan_16b(seed: int, rng: Random) -> Plan:
    """Return a plan in which no follower can fetch from two of three brokers. One of these loses its power and comes
    back with fewer records, and the other dies: only the third broker, which has all records, may lead now. So the plan
    accepts no loss.
    """
    at_s, faults = 0.5, []
    for _ in range(2):
        first, second = rng.sample((1, 2, 3), 2)
        faults.append(fault(at_s, 4.0, "partition", f"node:{first}", side="replication"))
        faults.append(fault(at_s + 0.05, 4.0, "partition", f"node:{second}", side="replication"))
        faults.append(fault(at_s + rng.uniform(0.8, 1.1), 0.4, "power_loss", f"node:{first}"))
        faults.append(fault(at_s + rng.uniform(2.3, 2.7), 0.9, "kill", f"node:{second}"))
        at_s += 6.5
    return hunt_plan(seed, faults, settings=ELIGIBLE, workload={"rate": 300, "readers": 2}, expect="safe")


@mutant(
    "16b",
    "lets a broker that did not stop cleanly stay an eligible leader",
    source="KIP-966",
    replaces=[(brokers, "stopped_cleanly", always(True))],
    expected="strong-isr leader-completeness lost-write unseen",
    faults="pause power_loss",
    client_visible_plan=client_visible_plan_16b,
)
def unclean_stop_stays_eligible(seed: int, rng: Random) -> Plan:
    """Return a plan with eligible leader replicas: a follower lags and leaves the ISR, and the last in-sync replica
    loses its power.
    """
    at_s, faults = 0.4, []
    for _ in range(3):
        leader, held = rng.sample((1, 2, 3), 2)
        held_s = rng.uniform(2.0, 2.6)
        faults.append(fault(at_s, held_s, "pause", f"node:{held}"))
        faults.append(fault(at_s + rng.uniform(0.9, 1.3), rng.uniform(0.3, 0.6), "power_loss", f"node:{leader}"))
        at_s += held_s + 2.5
    return hunt_plan(seed, faults, settings=ELIGIBLE, workload={"rate": 300})


@mutant(
    "17",
    "is configured with unclean elections, and called safe",
    source="unclean.leader.election.enable=true",
    expected="lost-write unseen wrong-offset offset-regression",
    faults="pause kill",
)
def unclean_election(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers fall behind and leave the ISR; then their leader dies, and one of them leads."""
    at_s, faults = 0.4, []
    for _ in range(3):
        leader = rng.randint(1, 3)
        cut_s = rng.uniform(1.6, 2.2)
        faults.append(fault(at_s, cut_s, "pause", f"node:{leader % 3 + 1}"))
        faults.append(fault(at_s + cut_s - 0.2, rng.uniform(1.2, 1.8), "kill", f"node:{leader}"))
        at_s += cut_s + 2.5
    return hunt_plan(
        seed,
        faults,
        settings={"unclean.leader.election.enable": "true"},
        workload={"replication_factor": 2, "min_isr": 1},
        expect="safe",
    )


@mutant(
    "17b",
    "elects a leader that is not in sync although unclean elections are off",
    source="KIP-106, KAFKA-1028",
    replaces=[
        (elections, "election_for", always(ElectionType.UNCLEAN)),
        (leaders, "election_for", always(ElectionType.UNCLEAN)),
    ],
    expected="clean-election leader-completeness strong-isr lost-write unseen",
    faults="pause kill",
)
def elects_anybody(seed: int, rng: Random) -> Plan:
    """Return the plan of mutant 17 (followers fall behind, then their leader dies), but with unclean elections
    disabled.
    """
    faults = [f.model_dump() for f in unclean_election.plan(seed).faults]
    return hunt_plan(seed, faults, workload={"replication_factor": 2, "min_isr": 1})


def committed_offset(self: LeaderState, own_synced_offset: int) -> int:
    """Return the offset that a majority holds, whatever the epoch of its record."""
    ends = sorted([own_synced_offset, *(replica.end_offset for replica in self.voters.values())], reverse=True)
    return max(0, ends[self._settings.majority - 1])


@mutant(
    "23",
    "commits metadata without a record of the leader's own epoch",
    source="Raft, section 5.4.2; KIP-595",
    replaces=[(LeaderState, "committed_offset", committed_offset)],
    expected="metadata-commits-own-epoch metadata-leader-completeness metadata-committed-prefix image-is-a-replay "
    "lost-write unseen inconsistent-offset",
    faults="kill partition",
    unseen="voters get the first record of an epoch in one answer with those before it. Who has these alone lost its "
    "power while it wrote that answer; then a third voter must have led in between",
)
def commit_of_earlier_epochs(seed: int, rng: Random) -> Plan:
    """Return a plan in which brokers, often the controller, die or are cut off, one soon after the other. A controller
    may then hold records that no other voter has, and may come back while another controller is elected.
    """
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


def _check_quorum(self: Raft, now_ms: int) -> None:
    """Schedule the next check, and check nothing."""
    self.member.deadline_ms = now_ms + self._timers.for_majority()


@mutant(
    "23b",
    "leads the metadata quorum on when a majority no longer fetches",
    source="KAFKA-15489",
    replaces=[(Raft, "_check_quorum", _check_quorum)],
    expected="metadata-leader-is-followed",
    faults="partition",
    unseen="such a leader commits nothing: what clients are told is late, and never wrong",
)
def no_check_quorum(seed: int, rng: Random) -> Plan:
    """Return a plan that cuts controllers off, in one direction or both, for much longer than their time-outs."""
    at_s, faults = 0.5, []
    for _ in range(2):
        length_s = rng.uniform(3.0, 5.0)
        shape, manner = rng.choice(("isolate", "one-way")), rng.choice(("hold", "drop"))
        faults.append(fault(at_s, length_s, "partition", "controller", shape=shape, manner=manner))
        at_s += length_s + 2.0
    return hunt_plan(seed, faults, workload={"rate": 50})
