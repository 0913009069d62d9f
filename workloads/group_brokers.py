"""Chooses broker settings for workloads with consumer groups: for the topic __consumer_offsets, and for session
time-outs as short as the workload's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from squall.workloads.scenario import BrokerLimit

FACTOR = "offsets.topic.replication.factor"
"""Names the replication factor of __consumer_offsets. If a cluster has fewer brokers, no group finds its coordinator.
"""
PARTITIONS, SEGMENT_BYTES = "offsets.topic.num.partitions", "offsets.topic.segment.bytes"
SEGMENTS = ("4000", "12000")
"""Lists segment sizes of __consumer_offsets, in bytes. The largest batch has to fit: it is written when a consumer
group becomes a classic group, with 450 bytes per member.
"""
SHORTEST_SESSION, LONGEST_SESSION = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
FIRST_REBALANCE = "group.initial.rebalance.delay.ms"
CONSUMER_SESSION, CONSUMER_BEAT = "group.consumer.{}session.timeout.ms", "group.consumer.{}heartbeat.interval.ms"
LONGEST_SESSION_MS, LONGEST_BEAT_MS = 60_000, 5_000
"""These are Kafka's default upper limits of session time-out and heartbeat interval, in ms."""
FLUSH = "log.flush.interval.messages"
RETENTION_MINUTES, RETENTION_CHECK = "offsets.retention.minutes", "offsets.retention.check.interval.ms"
LEAST_RETENTION_S = 60
COMMITS, TXN_COMMITS = "OffsetCommit", "TxnOffsetCommit"
METADATA = BrokerLimit("offset.metadata.max.bytes", 26, "the metadata of commits", "commits are refused")
"""Requires that offset.metadata.max.bytes is at least 26 bytes: Squall's own members commit metadata of up to this
length with an offset (`client.groups.offsets.metadata_of`).
"""
HEARTBEATS = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}


SUITED_TO_GROUPS: Mapping[str, str] = {PARTITIONS: "5", SHORTEST_SESSION: "500", FIRST_REBALANCE: "500"}
"""Maps broker settings to values that suit group workloads: with these, a coordinator removes a dead member within
seconds.
"""


def session_settings_for(table: Mapping[str, Any], default_ms: int) -> dict[str, str]:
    """Return broker settings that give the members of a consumer group (KIP-848) the session time-out of this
    `[workload]` table, in ms, or `default_ms` if the table has none. Empty if the load has no consumer group: members
    of classic groups choose their time-out themselves.
    """
    session_ms = table.get("session_timeout_ms", default_ms)
    speaks = table.get("group_protocol") in ("consumer", "mixed") or table.get("conversions")
    asked = speaks and isinstance(session_ms, int)
    return sessions_of(session_ms) if asked else {}


def session_limits(protocols: Collection[str], session_ms: int) -> tuple[BrokerLimit, ...]:
    """Return the broker settings that must fit the session time-out, for members of these protocols.

    In a classic group a broker refuses a member with a time-out outside of its bounds. In a consumer group the broker
    decides the time-out. If it is longer than the workload's, dead members keep partitions for longer than
    `Scenario.longest_wait_s` allows.
    """
    asked, found = ("session_timeout_ms", "no member can join"), list[BrokerLimit]()
    if "classic" in protocols:
        found.append(BrokerLimit(SHORTEST_SESSION, session_ms, *asked, least=True))
        found.append(BrokerLimit(LONGEST_SESSION, session_ms, *asked))
    if "consumer" in protocols:
        why = "dead members keep their partitions longer than limits.stuck_s allows"
        found.append(BrokerLimit(CONSUMER_SESSION.format(""), session_ms, asked[0], why, least=True))
    return tuple(found)


def expiry_settings_for(table: Mapping[str, Any]) -> dict[str, str]:
    """Return broker settings with which committed offsets expire during a run. Empty unless this `[workload]` table
    leaves the group without members (`away_s`) for at least the shortest retention, a minute.
    """
    away_s = table.get("away_s", 0)
    if not isinstance(away_s, int) or away_s < LEAST_RETENTION_S:
        return {}
    return {RETENTION_MINUTES: "1", RETENTION_CHECK: "1000"}


def frequent_coordinator_apis(protocol: str, *commits: str, both: bool = False) -> tuple[str, ...]:
    """Return the APIs of the requests that group members send to their coordinator throughout a load, for faults that
    act on requests. `commits` lists the APIs with which they commit offsets.

    With `both`, the group has members of both protocols over time. Then the heartbeats are left out: which of the two
    heartbeat APIs is in use depends on timing.
    """
    return commits if both else (HEARTBEATS[protocol], *commits)


def sessions_of(session_ms: int) -> dict[str, str]:
    """Return settings for consumer groups whose members have this session time-out and send five heartbeats in it."""
    # A broker refuses a default outside of its own bounds (KIP-848), so the bounds are set as well.
    beat_ms = max(min(session_ms // 5, LONGEST_BEAT_MS), 1)
    return {
        CONSUMER_SESSION.format("min."): str(session_ms),
        CONSUMER_SESSION.format(""): str(session_ms),
        CONSUMER_SESSION.format("max."): str(max(session_ms, LONGEST_SESSION_MS)),
        CONSUMER_BEAT.format("min."): str(beat_ms),
        CONSUMER_BEAT.format(""): str(beat_ms),
    }


def draw_group_settings(rng: Random, workload: Mapping[str, Any]) -> dict[str, str]:
    """Draw broker settings for one random plan: one to three partitions of __consumer_offsets, and sometimes small
    segments, so that there are many segments.
    """
    found = {**SUITED_TO_GROUPS, PARTITIONS: rng.choice(("1", "2", "3"))}
    found[FIRST_REBALANCE] = rng.choice(("0", "500"))
    if workload["topic_settings"].get("flush.messages") == "1":
        found[FLUSH] = "1"  # else offsets could be lost where no record may be
    if rng.random() < 0.3:
        found[SEGMENT_BYTES] = rng.choice(SEGMENTS)
    return found
