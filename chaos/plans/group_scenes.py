"""Defines scenes (groups of faults that only together reach a rare situation) for swarm plans with consumer groups:
coordinators fail, or answer late, just when members need them.

A rebalance takes a fraction of a second, so a fault at a random time seldom hits one. In most scenes the groups
therefore rebalance all the time (`BUSY`), and some faults wait until a rebalance begins. Each scene is a function. Its
`groups` are the workload's groups, and its `table` has the workload's settings, as in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from squall.chaos.plans.scenes import NODES, RarePathScene, SceneBuilder

CLASSIC = "classic"
JOINS: Mapping[str, tuple[str, ...]] = {
    CLASSIC: ("JoinGroup", "SyncGroup", "SyncGroup", "OffsetFetch"),
    "consumer": ("ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", "OffsetFetch"),
    "mixed": ("JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat", "OffsetFetch"),
}
"""Maps each group protocol to the requests that its members send in a rebalance."""
BUSY: Mapping[str, Any] = {"churn": 90, "replication_factor": NODES, "min_isr": 2}
"""Holds workload settings with which groups rebalance all the time."""
WAITS_S = 12.0


def protocol_of(table: Mapping[str, Any]) -> str:
    """Return the group protocol with which members begin, by these workload settings. Their group may be converted
    later.
    """
    return str(table.get("group_protocol", CLASSIC))


def build_scene(
    builder: SceneBuilder, workload: Mapping[str, Any], settings: Mapping[str, str], time_s: float | None
) -> RarePathScene:
    """Return a scene with the faults and conditions that the builder has collected. time_s: the length of the load in
    s; None: the usual length.
    """
    return RarePathScene(tuple(builder.made), workload, settings, time_s, when=builder.when)


def coordinators_that_go(rng: Random, groups: Sequence[str], table: Mapping[str, Any]) -> RarePathScene:
    """Kill or pause a group's coordinator while the group rebalances."""
    builder, at_s = SceneBuilder(), 2.0
    for _ in range(2):
        group, down_s = rng.choice(groups), rng.uniform(2, 3)
        state = rng.choice(("!= Stable", "== PreparingRebalance" if protocol_of(table) == CLASSIC else "!= Stable"))
        action = "kill" if rng.random() < 0.5 else "pause"
        builder.add_when(f"group:{group} {state}", at_s, down_s, action, f"coordinator:{group}")
        at_s += down_s + rng.uniform(6, 8)
    return build_scene(builder, BUSY, {}, None)


def slow_loads(rng: Random, groups: Sequence[str], table: Mapping[str, Any]) -> RarePathScene:
    """Make a new group coordinator take long to load. It serves only once all records in its partition of
    __consumer_offsets are committed, and followers fetch these records late. Members that have lost the old coordinator
    find the new one while it still loads.
    """
    builder, at_s = SceneBuilder(), 2.0
    for _ in range(2):
        down_s, late_ms = rng.uniform(2, 3), rng.choice((400, 600, 800))
        late: dict[str, Any] = {"api": "Fetch", "act": "delay", "delay_ms": late_ms, "count": 0, "side": "replication"}
        builder.add(at_s, down_s + 4, "protocol", "all", **late)
        builder.add(at_s + rng.uniform(0.7, 1.5), down_s, "kill", f"coordinator:{rng.choice(groups)}")
        at_s += down_s + rng.uniform(7, 8)
    # A coordinator's load waits for records that followers have without knowing that they are committed. There
    # must always be such records.
    often = {"commit_every_ms": 0, "auto_commit": False} if "commit_every_ms" in table else {}
    return build_scene(builder, {**BUSY, **often, "rate": 15}, {"replica.lag.time.max.ms": "6000"}, None)


def markers_while_loading(rng: Random, groups: Sequence[str], table: Mapping[str, Any]) -> RarePathScene:
    """Kill a group's coordinator, and let transactions time out while the new coordinator still loads. The new
    coordinator was a follower that fetched late: it does not know whether the records at the end of its log are
    committed. So it waits until its own followers have fetched them, which takes long, too. The transactions can end
    meanwhile, because the transaction log has only one replica. Slow links to clients keep transactions open for most
    of the time.
    """
    builder, at_s = SceneBuilder(), rng.uniform(3.0, 4.0)
    builder.add(1.0, 24, "latency", "all", side="clients", latency_ms=rng.randint(60, 120), jitter_ms=20)
    late: dict[str, Any] = {"api": "Fetch", "act": "delay", "count": 0, "side": "replication"}
    for _ in range(2):
        fetches, coordinator = len(builder.made), f"coordinator:{rng.choice(groups)}"
        builder.add(at_s, 6, "protocol", "all", delay_ms=rng.choice((1500, 2000)), **late)
        builder.add_when(
            f"after fault {fetches} began", at_s + rng.uniform(0.5, 1.2), rng.uniform(2, 3), "kill", coordinator
        )
        at_s += rng.uniform(11, 12)
    settings = {
        "replica.lag.time.max.ms": "6000",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    load = {**BUSY, "churn": 10, "rate": 15, "instances": 3, "transaction_timeout_ms": rng.choice((2400, 3000))}
    return build_scene(builder, load, settings, None)


def late_joins(rng: Random, groups: Sequence[str], table: Mapping[str, Any]) -> RarePathScene:
    """Delay, duplicate or drop members' requests on their way during a rebalance."""
    builder, at_s = SceneBuilder(), 2.0
    for _ in range(3):
        act = rng.choice(({"act": "delay", "delay_ms": rng.randint(300, 1500)}, {"act": "drop"}, {"act": "duplicate"}))
        api, count = rng.choice(JOINS[protocol_of(table)]), rng.choice((1, 2, 4, 0))
        builder.add(at_s, 6, "protocol", "all", api=api, count=count, side="clients", **act)
        at_s += rng.uniform(6, 7)
    return build_scene(builder, BUSY, {}, None)


def expired_offsets(rng: Random, groups: Sequence[str], table: Mapping[str, Any]) -> RarePathScene:
    """Keep groups without members for longer than their offsets are retained. Then their coordinator fails, and members
    join again.
    """
    builder, away_s = SceneBuilder(), rng.randint(68, 72)
    for group in groups:
        if rng.random() < 0.7:
            builder.add(rng.uniform(away_s - 4, away_s + 1), rng.uniform(2, 3), "kill", f"coordinator:{group}")
    load = {"rate": 1, "churn": 0, "away_s": away_s, "replication_factor": NODES, "min_isr": 2}
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    return build_scene(builder, load, settings, away_s + 20.0)


def members_that_vanish(rng: Random, groups: Sequence[str], table: Mapping[str, Any]) -> RarePathScene:
    """Crash members, or start a second OS process with a member's instance id. Some of these faults happen while the
    coordinator is down.
    """
    builder, at_s = SceneBuilder(), 2.0
    static = {"static_members": True} if "static_members" in table and rng.random() < 0.5 else {}
    for _ in range(3):
        twin = (static or table.get("static_members")) and rng.random() < 0.5
        builder.add(at_s, rng.uniform(1, 3), "member_twin" if twin else "member_crash", "member")
        if rng.random() < 0.4:
            down = "kill" if rng.random() < 0.5 else "pause"
            builder.add(at_s + rng.uniform(0.5, 2), rng.uniform(1, 2), down, f"coordinator:{rng.choice(groups)}")
        at_s += rng.uniform(6, 8)
    # The members' own churn would hide the effects of the faults.
    return build_scene(builder, {**BUSY, "churn": 10, **static}, {}, None)


GroupScene = Callable[[Random, Sequence[str], Mapping[str, Any]], RarePathScene]
"""Is a function that draws a scene for these groups, given the settings of their workload."""
GROUP_SCENES: tuple[GroupScene, ...] = (
    coordinators_that_go,
    coordinators_that_go,
    slow_loads,
    slow_loads,
    late_joins,
    late_joins,
    expired_offsets,
    members_that_vanish,
    members_that_vanish,
)
TRANSACTIONAL_GROUP_SCENES: tuple[GroupScene, ...] = (*GROUP_SCENES, *(markers_while_loading,) * 4)
"""Lists the scenes for groups whose members commit offsets in transactions. A scene that is listed four times is drawn
four times as often as one that is listed once.
"""
