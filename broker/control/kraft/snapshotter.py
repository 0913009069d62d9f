"""Decides when to take a snapshot of the metadata log. A snapshot holds the cluster image after a complete batch of
records, never after a part of one (KIP-630).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from squall.broker.cluster.snapshot import records_of

if TYPE_CHECKING:
    from squall.broker.cluster.feed import ImageFeed
    from squall.broker.cluster.image import ImageDelta
    from squall.broker.config import BrokerConfig
    from squall.broker.control.kraft.metadata_quorum import MetadataQuorum
    from squall.broker.env import Env


class Snapshotter:
    """Takes this node's snapshots of the metadata log: after metadata.log.max.record.bytes.between.snapshots bytes of
    batches, or metadata.log.max.snapshot.interval.ms after the last snapshot if there are new records.
    """

    def __init__(self, env: Env, config: BrokerConfig, feed: ImageFeed, quorum: MetadataQuorum) -> None:
        self._env, self._feed, self._quorum = env, feed, quorum
        self._max_bytes = config.metadata_log_max_record_bytes_between_snapshots
        interval_ms = config.metadata_log_max_snapshot_interval_ms
        self._interval_s = interval_ms / 1000 if interval_ms else math.inf
        self._bytes_before = 0
        self._wanted = trio.Event()
        feed.follow(self._changed)

    def _changed(self, delta: ImageDelta) -> None:
        if self._quorum.read_bytes - self._bytes_before >= self._max_bytes:
            self._wanted.set()

    async def run(self) -> None:
        """Take snapshots when they are due, until cancelled. Raises OSError if the disk fails."""
        while True:
            with self._env.timeout(self._interval_s):
                await self._wanted.wait()
            self._wanted = trio.Event()
            self._bytes_before = self._quorum.read_bytes
            image, newest = self._feed.image, self._quorum.snapshot
            if image.offset >= (newest.end_offset if newest is not None else 0):
                await self._quorum.take_snapshot(records_of(image), image.offset, image.epoch)
