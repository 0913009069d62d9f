"""Finds the segments that retention may delete (mechanism L4 in docs/mechanisms.md)."""

from __future__ import annotations

from collections.abc import Sequence

from squall.broker.log.config import LogConfig
from squall.broker.log.segment import Segment


def deletable(
    segments: Sequence[Segment], config: LogConfig, wall_ms: int, log_start_offset: int, high_watermark: int
) -> int:
    """Return how many of the oldest segments may be deleted. These are the segments below the log start and, with the
    cleanup policy "delete", the segments beyond retention.ms or retention.bytes.

    Stops at a segment that is empty or reaches beyond the high watermark. A segment's age is that of its newest record.
    """
    by_policy = "delete" in config.cleanup_policy
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    count = 0
    assert log_start_offset <= segments[-1].next_offset
    for segment in segments:
        if not segment.size or segment.next_offset > high_watermark:
            break
        old = segment.max_timestamp >= 0 and 0 <= config.retention_ms < wall_ms - segment.max_timestamp
        unreadable = segment.next_offset <= log_start_offset
        if not unreadable and not (by_policy and (old or excess >= segment.size)):
            break
        excess -= segment.size
        count += 1
    assert not count or segments[count - 1].next_offset <= high_watermark
    assert not count or segments[count - 1].size > 0
    return count
