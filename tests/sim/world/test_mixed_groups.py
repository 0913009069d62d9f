"""Members of both group protocols in one group: no partition has two owners, and all ways to change the protocol occur.
"""

from __future__ import annotations

from collections import Counter

from squall.chaos.plans.plan import make_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate
from squall.workloads.registry import SCENARIOS

WAYS = (
    "classic group taken over under its members",
    "classic member joined a consumer group",
    "consumer group left to its classic members",
)


def test_groups_go_over_and_back_under_their_members_while_coordinators_are_killed() -> None:
    load = {
        "name": "groups", "group_protocol": "mixed", "rate": 5, "partitions": 4, "members": 3, "churn": 60,
        "session_timeout_ms": 1500, "max_poll_interval_ms": 2000, "poll_pause_ms": 200, "static_members": True,
    }  # fmt: skip
    scenario, counts = SCENARIOS["groups"], Counter[str]()
    cluster = {"nodes": 3, "settings": {**scenario.BROKERS, **scenario.suited_brokers(load)}}
    kill = {"duration_s": 2, "action": "kill", "target": "coordinator:squall-group"}
    faults = [{"at_s": at_s, **kill} for at_s in (4, 12)]
    for seed in range(4):
        values = {"runtime": "sim", "seed": seed, "time_s": 20, "cluster": cluster, "workload": load, "faults": faults}
        result = simulate(make_plan(values))
        assert result.verdict == "valid", (seed, result.reasons)
        counts.update(result.counts)
    assert all(counts[way] for way in WAYS), counts


def test_some_seeds_of_a_swarm_have_mixed_members() -> None:
    plans = [swarm_plan(seed, workload="groups").workload.model_dump() for seed in range(60)]
    mixed = [plan for plan in plans if plan["group_protocol"] == "mixed"]
    assert 3 <= len(mixed) <= 18
    assert not any(plan["conversions"] for plan in mixed)
