"""Defines scenes for swarm plans. A scene is a few faults that only together reach a rare situation, with a load and
settings that suit them.

Some code paths of the broker need several conditions at once. Independent draws meet these conditions once in a
thousand seeds. A scene reaches one such path nearly always. The seed still draws the times, lengths and parameters of
its faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from squall.chaos.faults.kind import Fault
from squall.chaos.faults.vocabulary import make_fault

NODES = 3
SESSIONS_S = 150.0
"""Gives the length in s of a load in which fetch sessions can expire, which takes two minutes (KIP-227)."""


class RarePathScene(NamedTuple):
    """Holds the faults and settings of a scene, which replace the seed's own draws. The rest of the plan is drawn as
    usual.
    """

    faults: tuple[Fault, ...]
    workload: Mapping[str, Any]
    settings: Mapping[str, str]
    time_s: float | None = None
    """Gives the length of the load in s; None: the usual length."""
    nodes: int = NODES
    """Gives the number of brokers that the scene needs at least."""
    when: Mapping[int, str] = {}
    """Maps the number of a fault to the condition that the fault waits for."""


class SceneBuilder:
    """Collects the faults of a scene, and the conditions that some of these faults wait for."""

    def __init__(self) -> None:
        self.made: list[Fault] = []
        self.when: dict[int, str] = {}

    def add(self, at_s: float, duration_s: float, action: str, target: str, **params: Any) -> None:
        """Add a fault. Its times are rounded to hundredths of a second."""
        self.made.append(make_fault(len(self.made), round(at_s, 2), round(duration_s, 2), action, target, params))

    def add_when(self, when: str, at_s: float, duration_s: float, action: str, target: str) -> None:
        """Add a fault that waits for the condition `when`, from `at_s` on."""
        self.when[len(self.made)] = when
        self.add(at_s, duration_s, action, target)


def refused_proposals(rng: Random) -> RarePathScene:
    """Kill a broker and start it again, twice. When it is in sync again, leaders ask the controller to add it to ISRs.
    These AlterPartition requests are dropped or refused; after the second kill they may also be late or sent twice.
    """
    faults, at_s = SceneBuilder(), 3.0
    for number in range(2):
        down_s = rng.uniform(2, 3)
        faults.add(at_s, down_s, "kill", rng.choice(("follower", "leader")))
        acts: list[dict[str, Any]] = [{"act": "drop"}, {"act": "error", "error": "NOT_CONTROLLER"}]
        if number:
            acts += [{"act": "delay", "delay_ms": rng.choice((500, 1500))}, {"act": "duplicate"}]
        act = rng.choice(acts)
        faults.add(at_s + down_s - 0.5, 7, "protocol", "all", api="AlterPartition", count=0, side="peers", **act)
        at_s += down_s + rng.uniform(7, 8)
    return RarePathScene(
        tuple(faults.made), {"topics": 2, "partitions": 4, "replication_factor": NODES, "min_isr": 1}, {}
    )


def lost_registrations(rng: Random) -> RarePathScene:
    """Answer brokers' heartbeats with STALE_BROKER_EPOCH, as if the controller did not know their registrations."""
    faults, at_s = SceneBuilder(), rng.uniform(3, 5)
    for _ in range(rng.randint(2, 4)):
        params = {"act": "error", "error": "STALE_BROKER_EPOCH", "nth": rng.randint(1, 3), "count": rng.choice((1, 2))}
        faults.add(at_s, 3, "protocol", "controller", api="BrokerHeartbeat", side="peers", **params)
        at_s += rng.uniform(4, 6)
    return RarePathScene(tuple(faults.made), {"replication_factor": NODES, "min_isr": rng.choice((1, 2))}, {})


def stale_sessions(rng: Random) -> RarePathScene:
    """Kill two of three brokers one after the other. The third has only one slot for fetch sessions. A killed
    incarnation's session keeps this slot, and the next broker that needs it waits for two minutes.
    """
    faults, at_s = SceneBuilder(), rng.uniform(3, 5)
    for node in rng.sample((1, 2, 3), 2):
        faults.add(at_s, rng.uniform(2, 3), "kill", f"node:{node}")
        at_s += rng.uniform(7, 8)
    workload = {"topics": 1, "partitions": NODES, "replication_factor": NODES, "min_isr": 1, "readers": 3, "rate": 3}
    slots = {"max.incremental.fetch.session.cache.slots": "1"}
    return RarePathScene(tuple(faults.made), workload, slots, SESSIONS_S)


def rotten_segments(rng: Random) -> RarePathScene:
    """Flip bits in segments while a follower that still needs these segments is down.

    The scene sets retention, which deletes these segments in the end, and acks=0, which promises nothing for their
    records. With any other configuration the run could only show that brokers notice the damage.
    """
    faults, at_s = SceneBuilder(), 5.0
    for _ in range(2):
        faults.add(at_s, 3, "kill", "follower")
        for rot in range(4):
            faults.add(at_s + 1.2 + rot / 2, 0.2, "bit_rot", "all", bits=rng.choice((1, 8)))
        at_s += rng.uniform(8, 9)
    workload = {
        "acks": 0,
        "idempotence": False,
        "replication_factor": NODES,
        "min_isr": 1,
        "topics": 1,
        "partitions": 2,
        "rate": 40,
        "min_bytes": 2000,
        "max_bytes": 3500,
        "batch_bytes": 4000,  # fits into a segment
        "readers": 1,
        "poll_pause_ms": 20,  # the reader gets to the end before retention deletes what was written last
        "topic_settings": {"retention.ms": "15000", "segment.bytes": "4096", "flush.messages": "1"},
    }
    return RarePathScene(tuple(faults.made), workload, {})


FLUSHED: Mapping[str, str] = {"flush.messages": "1"}


def slow_follower(rng: Random) -> RarePathScene:
    """Send many records while a follower is slow but stays in sync; then kill the leader. Records that the slow
    follower lacks must not count as committed.
    """
    faults, at_s = SceneBuilder(), 2.0
    for _ in range(2):
        slow_s = rng.uniform(4, 6)
        if rng.random() < 0.5:
            faults.add(at_s, slow_s, "slow", "follower", share=rng.choice((0.05, 0.1, 0.3)))
        else:
            late = {"latency_ms": rng.choice((100, 250, 500)), "jitter_ms": 50}
            faults.add(at_s, slow_s, "latency", "follower", **late)
        faults.add(at_s + rng.uniform(0.7, 1.2), rng.uniform(2, 3), "kill", "leader")
        at_s += slow_s + rng.uniform(4, 5)
    workload = {
        **_in_sync(),
        "rate": rng.choice((60, 80, 100)),
        "acks": -1,
        "partitions": 1,
        "topics": 1,
        "min_bytes": 64,
        "max_bytes": 200,
    }
    return RarePathScene(tuple(faults.made), workload, {})


def lonely_voter(rng: Random) -> RarePathScene:
    """Cut one voter off from the others, or slow it down, while topics are created and changed. Then kill the
    controller, so that the next one is elected with that voter.
    """
    faults, at_s = SceneBuilder(), 2.0
    for _ in range(2):
        away_s, voter = rng.uniform(3, 5), f"node:{rng.randint(1, NODES)}"
        if rng.random() < 0.5:
            faults.add(at_s, away_s, "partition", voter, shape="isolate", manner=rng.choice(("drop", "hold")))
        else:
            faults.add(at_s, away_s, "latency", voter, latency_ms=rng.choice((200, 400)), jitter_ms=100, side="peers")
        how = rng.choice(("partitions", "min_isr", "churn"))
        faults.add(at_s + 0.5, away_s, "topics", "all", how=how, value=rng.choice((1, 2)))
        faults.add(at_s + away_s - rng.uniform(0.1, 0.6), rng.uniform(2, 3), "kill", "controller")
        at_s += away_s + rng.uniform(5, 7)
    return RarePathScene(tuple(faults.made), {**_in_sync(), "rate": 7}, {})


def flapping_leaders(rng: Random) -> RarePathScene:
    """Take leaders down every two or three seconds; each leads again as soon as it is in sync. Segments are so small
    that every leader epoch has segments of its own.
    """
    faults, at_s = SceneBuilder(), 2.0
    for _ in range(8):
        down_s = rng.uniform(0.8, 1.3)
        faults.add(at_s, down_s, "kill" if rng.random() < 0.5 else "stop", "leader")
        at_s += down_s + rng.uniform(1.2, 1.7)
    topic = {"segment.bytes": rng.choice(("1024", "2048", "4096"))}
    if rng.random() < 0.5:
        topic |= FLUSHED
    workload = {"topics": 1, "partitions": 2, "min_bytes": 100, "max_bytes": 400, "rate": 30, "batch_bytes": 1024}
    settings = {
        "auto.leader.rebalance.enable": "true",
        "leader.imbalance.check.interval.seconds": "1",
        "leader.imbalance.per.broker.percentage": "0",
    }
    return RarePathScene(tuple(faults.made), {**_in_sync(), **workload, "topic_settings": topic}, settings)


def power_within_fsyncs(rng: Random) -> RarePathScene:
    """Cut the power while an fsync is in progress: every record is flushed, and fsyncs take long."""
    faults, at_s = SceneBuilder(), 2.0
    for node in rng.sample((1, 2, 3), 2):
        delay_ms = rng.choice((100, 200, 400))
        faults.add(at_s, 3.5, "disk", f"node:{node}", how="slow", op="fsync", nth=1, delay_ms=delay_ms)
        faults.add(at_s + rng.uniform(1.5, 3), rng.uniform(2, 3), "power_loss", f"node:{node}")
        at_s += rng.uniform(9, 11)
    workload = {"topics": 1, "partitions": 2, "rate": 20, "acks": -1, "topic_settings": dict(FLUSHED)}
    return RarePathScene(tuple(faults.made), {**_in_sync(), **workload}, {})


def truncations_within_fsyncs(rng: Random) -> RarePathScene:
    """Cut a leader off from the other brokers while each of its records waits for a slow fsync. Producers use acks=1,
    so the leader appends records that no follower gets. When the cut ends, the former leader has to truncate these
    records while an fsync is in progress.
    """
    faults, at_s = SceneBuilder(), 2.0
    for node in rng.sample((1, 2, 3), 2):
        delay_ms = rng.choice((400, 800))
        faults.add(at_s, 8, "disk", f"node:{node}", how="slow", op="fsync", nth=1, delay_ms=delay_ms)
        faults.add(at_s + rng.uniform(0.5, 1), rng.uniform(3, 4), "partition", f"node:{node}", side="peers")
        at_s += rng.uniform(10, 11)
    workload = {"topics": 1, "partitions": 3, "rate": 40, "acks": 1, "idempotence": False}
    workload |= {"min_bytes": 100, "max_bytes": 400}
    flushed = {"topic_settings": dict(FLUSHED), "replication_factor": NODES, "min_isr": 1}
    return RarePathScene(tuple(faults.made), {**workload, **flushed}, {})


def deletions_with_a_kill(rng: Random) -> RarePathScene:
    """Delete records while followers fetch late, and kill the leader before they have deleted the records too."""
    faults, at_s = SceneBuilder(), rng.uniform(2, 3)
    for _ in range(3):
        late = {"api": "Fetch", "act": "delay", "delay_ms": rng.choice((200, 400)), "count": 0, "side": "replication"}
        faults.add(at_s - 1, 3, "protocol", "all", **late)
        deletion = len(faults.made)
        faults.add(at_s, 3, "topics", "all", how="delete_records", value=0)
        faults.add_when(f"after fault {deletion} began", at_s, rng.uniform(1, 3), "kill", "leader")
        at_s += rng.uniform(7, 8)
    workload = {"topics": 1, "partitions": 1, "rate": 20, "acks": -1, "topic_settings": {}}
    return RarePathScene(tuple(faults.made), {**_in_sync(), **workload}, {}, when=faults.when)


def restarts_within_a_session(rng: Random) -> RarePathScene:
    """Kill leaders and start them again before the controller misses their heartbeats. So it still counts them as
    leaders in the ISR, although they have lost what was in memory.
    """
    faults, at_s = SceneBuilder(), 2.0
    for _ in range(5):
        kind = "power_loss" if rng.random() < 0.5 else "kill"
        faults.add(at_s, rng.uniform(0.2, 0.9), kind, "leader")
        at_s += rng.uniform(4, 5)
    workload = {"rate": rng.choice((20, 40)), "acks": -1, "topics": 1, "partitions": rng.choice((1, 2))}
    return RarePathScene(tuple(faults.made), {**_in_sync(), **workload}, {})


def power_behind_rolls(rng: Random) -> RarePathScene:
    """Cut the power of a node whose logs begin new segments all the time, so that the newest segments are not durable
    yet.
    """
    faults, at_s = SceneBuilder(), rng.uniform(2, 4)
    for node in rng.sample((1, 2, 3), 2):
        faults.add(at_s, rng.uniform(1, 3), "power_loss", f"node:{node}")
        at_s += rng.uniform(9, 11)
    topic = {"segment.bytes": rng.choice(("1024", "2048"))}
    workload = {"topics": 1, "partitions": 2, "min_bytes": 100, "max_bytes": 400, "rate": 40, "batch_bytes": 1024}
    often = {"acks": -1, "poll_pause_ms": 20, "topic_settings": topic}
    return RarePathScene(tuple(faults.made), {**_in_sync(), **workload, **often}, {})


def _in_sync() -> dict[str, Any]:
    return {"replication_factor": NODES, "min_isr": 2}


SCENES: tuple[Callable[[Random], RarePathScene], ...] = (
    refused_proposals,
    lost_registrations,
    stale_sessions,
    rotten_segments,
    rotten_segments,
    slow_follower,
    lonely_voter,
    flapping_leaders,
    power_within_fsyncs,
    truncations_within_fsyncs,
    deletions_with_a_kill,
    restarts_within_a_session,
    power_behind_rolls,
)
