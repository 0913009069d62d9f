"""Draws the workload `appends` from a seed: the records of a load, and the settings of a seed in a swarm (many
simulated runs with random plans).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.workloads.agenda import BURST_EVERY_S, BURST_S, PlannedRecord
from squall.workloads.client.settings import IDEMPOTENT_IN_FLIGHT
from squall.workloads.scenario import RandomStreamFactory, SwarmCluster
from squall.workloads.swarm_draws import FLUSH_SHARE, INDEX_INTERVAL, INDEX_INTERVALS, fetch_sizes

if TYPE_CHECKING:
    from random import Random

    from squall.workloads.client.cluster import Place

BURST_SHARE, CLOSED_SHARE = 0.12, 0.8
SMALL_BYTES, SMALL_SEGMENT = 4000, "4096"
FITS: Mapping[str, int] = {SMALL_SEGMENT: SMALL_BYTES, "16384": 16_000}
"""Maps a topic's segment size to the largest batch size for its producers, both in bytes. A broker refuses a batch that
does not fit into a segment, and an idempotent producer stops after that.
"""


def operations(
    stream: RandomStreamFactory,
    producers: int,
    rate: int,
    places: Sequence[Place],
    sizes: tuple[int, int],
    begin_s: float,
    end_s: float,
    burst: int = 0,
) -> tuple[PlannedRecord, ...]:
    """Draw the records of a load, in order of time, at `rate` records per second of all producers together. Each
    producer has its own random stream. In bursts the rate is `burst` instead, if that is higher.
    """
    interval_s = producers / rate
    found = _bursts(stream, producers, burst - rate, places, sizes, begin_s, end_s) if burst > rate else []
    for producer in range(producers):
        random = stream("operations", producer).random
        count = int((end_s - begin_s) / interval_s)
        for number in range(count):
            at_s = round((number + random()) * interval_s + begin_s, 4)
            if at_s < end_s:
                topic, partition = places[int(random() * len(places))]
                size = sizes[0] + int(random() * (sizes[1] - sizes[0] + 1))
                found.append(PlannedRecord(at_s, producer, topic, partition, size))
    found.sort()
    return tuple(found)


def _bursts(
    stream: RandomStreamFactory,
    producers: int,
    more: int,
    places: Sequence[Place],
    sizes: tuple[int, int],
    begin_s: float,
    end_s: float,
) -> list[PlannedRecord]:
    """Draw the records that bursts add to the usual ones: `more` per second of all producers together."""
    found = []
    begins = range(int((end_s - begin_s) / BURST_EVERY_S) + 1)
    for producer in range(producers):
        random = stream("bursts", producer).random
        for number in begins:
            for _ in range(round(more * BURST_S / producers)):
                at_s = round(begin_s + number * BURST_EVERY_S + random() * BURST_S, 4)
                topic, partition = places[int(random() * len(places))]
                size = sizes[0] + int(random() * (sizes[1] - sizes[0] + 1))
                if at_s < end_s:
                    found.append(PlannedRecord(at_s, producer, topic, partition, size))
    return found


def settings(stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> dict[str, Any]:
    """Draw the workload's settings for one random plan. The load is small, because replication breaks by the timing of
    events and not by the amount of data.
    """
    rng = stream("workload")
    replicas = rng.choice([n for n in (1, 2, 3, 3, 3) if n <= drawn_cluster.nodes] or [1])
    min_isr = rng.choice([n for n in (1, 1, 2, 2, 2, 3) if n <= replicas])
    acks = rng.choice((-1, -1, -1, -1, 1, 0))
    low, high = rng.choice(((100, 300), (100, 2048), (64, 100), (1000, 9000)))
    topic_settings = _topic_settings(stream, high, drawn_cluster)
    drawn = {
        "topics": rng.choice((1, 1, 2)),
        "partitions": rng.choice((1, 2, 3, 4)),
        "replication_factor": replicas,
        "min_isr": min_isr,
        "acks": acks,
        "idempotence": acks == -1 and rng.random() < 0.75,
        "max_in_flight": rng.choice((1, 5, 5)),
        "producers": rng.choice((1, 2, 3)),
        "readers": rng.choice((1, 2)),
        "rate": rng.choice((5, 10, 20, 40)),
        "min_bytes": low,
        "max_bytes": high,
        "linger_ms": rng.choice((0, 5, 50, 100)),
        "codec": rng.choice(("none", "none", "none", "gzip", "lz4", "zstd")),
        "poll_pause_ms": rng.choice((20, 100, 300)),
        "request_timeout_ms": rng.choice((1000, 3000)),
        "delivery_timeout_ms": rng.choice((5000, 20_000)),
        "topic_settings": topic_settings,
        **_of_segments(topic_settings.get("segment.bytes", "")),
    }
    return {**drawn, **_of_clients(stream, drawn)}


def _of_segments(segment_bytes: str) -> dict[str, Any]:
    """Return the workload settings that a topic with this segment size needs: batches that fit into a segment, and
    short pauses between polls, because a fetch of a partition ends at the segment's end.
    """
    return {"batch_bytes": FITS[segment_bytes], "poll_pause_ms": 20} if segment_bytes in FITS else {}


def _of_clients(stream: RandomStreamFactory, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Draw settings with which Squall's clients behave more like Kafka's own, for example bursts and fetch sessions.
    Each setting is on in some random plans only.
    """
    found: dict[str, Any] = {}
    if drawn["codec"] != "none" and stream("snappy").random() < 0.25:
        found["codec"] = "snappy"
    if stream("bursts").random() < BURST_SHARE:
        # In between there is less, so that the seed costs hardly more.
        found |= {"burst": stream("bursts", "rate").choice((60, 100, 200)), "rate": 5, "linger_ms": 5}
    if drawn["idempotence"] and stream("keep in flight").random() < 0.4:
        found |= {"keep_in_flight": True, "max_in_flight": IDEMPOTENT_IN_FLIGHT}
    if stream("lookups").random() < 0.25:
        found["lookups"] = True
    fetching = stream("fetching")
    if fetching.random() < 0.5:
        found["fetch_sessions"] = True
    if fetching.random() < 0.25:
        found["fetch_min_bytes"] = fetching.choice((200, 2000, 20_000))
    if fetching.random() < 0.4:
        found["fetch_max_wait_ms"] = fetching.choice((1000, 2000))
    if "fetch_min_bytes" not in found:
        found |= fetch_sizes(stream)
    if (release := stream("client release")).random() < 0.15:
        too_new = "fetch_sessions" in found or found.get("codec", drawn["codec"]) == "zstd"
        found["client_release"] = release.choice(("2.4", "2.8", *(() if too_new else ("0.11",))))
    return found


_RARE: Mapping[str, Callable[[Random], str]] = {
    "unclean.leader.election.enable": lambda rng: "true",
    "flush.messages": lambda rng: "1",
    "segment.bytes": lambda rng: rng.choice(("16384", "65536")),
    INDEX_INTERVAL: lambda rng: rng.choice(INDEX_INTERVALS),
    "message.timestamp.type": lambda rng: "LogAppendTime",
    "retention.ms": lambda rng: rng.choice(("8000", "12000")),  # final reads need what was written after healing
    "squall.record.validation.enable": lambda rng: "true",
}
"""Maps each topic setting that is rare in random plans to a function that draws its value."""


def _topic_settings(stream: RandomStreamFactory, max_bytes: int, drawn_cluster: SwarmCluster) -> dict[str, str]:
    found = {}
    for name, draw in _RARE.items():
        rng = stream("topic", name)
        if rng.random() < 0.15:
            found[name] = draw(rng)
    if drawn_cluster.hurts_fsyncs and stream("fsyncs").random() < FLUSH_SHARE:
        found["flush.messages"] = "1"  # else there are hardly any fsyncs that could be hit
    if drawn_cluster.damages_files and stream("closed files").random() < CLOSED_SHARE:
        found["segment.bytes"] = SMALL_SEGMENT  # else there are hardly any closed files that could be lost
    if "retention.ms" in found or found.get("segment.bytes") == SMALL_SEGMENT:
        # What is retired is whole segments; a batch that is larger than one is refused.
        found["segment.bytes"] = SMALL_SEGMENT if max_bytes < SMALL_BYTES else "16384"
    return found
