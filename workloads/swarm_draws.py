"""Draws settings that several workloads share in random plans: settings of topics, and sizes of fetches. They suit
small loads, because random plans are simulated in large numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.workloads.scenario import RandomStreamFactory, SwarmCluster, Table

INDEX_INTERVAL = "index.interval.bytes"
INDEX_INTERVALS = ("0", "300", "1000")
"""Lists values of a topic's index.interval.bytes. All are below the default of 4096, because a node loads its logs with
the default, before it knows their topics' settings. The invariant `offset-index-is-dense` then expects an entry at
least every 4096 bytes, and an index written at a larger interval would break it.
"""
SEGMENT_BYTES = ("4096", "16384")
FLUSH_SHARE, SEGMENT_SHARE, INDEX_SHARE, FETCH_SHARE = 0.25, 0.25, 0.15, 0.25


def topic_settings(stream: RandomStreamFactory, drawn_cluster: SwarmCluster) -> dict[str, str]:
    """Draw a topic's settings for one random plan. Some plans get many segments, or more entries in the offset indexes.
    If the plan has faults that hit fsyncs, the topic may get an fsync for each record.
    """
    found = {}
    if drawn_cluster.hurts_fsyncs and stream("fsyncs").random() < FLUSH_SHARE:
        found["flush.messages"] = "1"
    if (segments := stream("segments")).random() < SEGMENT_SHARE:
        found["segment.bytes"] = segments.choice(SEGMENT_BYTES)
    if (index := stream("index entries")).random() < INDEX_SHARE:
        found[INDEX_INTERVAL] = index.choice(INDEX_INTERVALS)
    return found


def fetch_sizes(stream: RandomStreamFactory) -> Table:
    """Draw limits of readers' fetches for some random plans, so small that responses leave out records or whole
    partitions. These readers poll often: otherwise they would not keep up with the load.
    """
    rng, found = stream("fetch sizes"), {}
    if rng.random() < FETCH_SHARE:
        found = {"fetch_partition_max_bytes": rng.choice((500, 2000, 8000)), "poll_pause_ms": 20}
        if rng.random() < 0.5:
            found["fetch_max_bytes"] = rng.choice((1000, 4000))
    return found
