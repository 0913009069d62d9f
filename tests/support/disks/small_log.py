"""A log with small segments, chunks and buffers, so that few batches reach every edge case; and an oracle for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

from squall.broker.log.config import LogConfig
from squall.broker.log.epochs import EpochCache
from squall.broker.log.log import Log
from squall.broker.log.producer_rules import ProducerStateEntry
from squall.broker.log.producers import ProducerStates
from squall.broker.log.recovery import load
from squall.broker.protocol.records import BatchHeader, read_header
from tests.support.disks.memory_fs import MemoryFs

DIRECTORY = "d/t-0"
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)


class Stored(NamedTuple):
    """A batch as the log should hold it."""

    data: bytes

    @property
    def header(self) -> BatchHeader:
        return read_header(memoryview(self.data), 0)

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_offset


@contextmanager
def small_chunks() -> Iterator[None]:
    """Make the log's buffers and caches so small that batches do not fit into them."""
    with (
        patch("squall.broker.log.segment.TAIL_BATCHES", 3),
        patch("squall.broker.log.segment.LOOKUP_CHUNK", 130),
        patch("squall.broker.log.scan.SCAN_CHUNK", 200),
        patch("squall.broker.log.indexes.WRITE_OUT_AT", 24),
    ):
        yield


def open_log(
    fs: MemoryFs,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    config: LogConfig = SMALL,
) -> Log:
    """Load the log from a file system. `clean` says that it was closed in good order."""
    return load(
        fs,
        DIRECTORY,
        config,
        topic="t",
        partition=0,
        topic_id=bytes(16),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def stored_batches(log: Log) -> list[Stored]:
    """Return all batches of the log, read from its first segment on."""
    return [Stored(data) for _, data in log.read_batches(log.segments[0].base_offset, log.log_end_offset)]


def epochs_of(batches: list[Stored], log_start_offset: int) -> list[tuple[int, int]]:
    """Return the leader epoch cache that these batches imply."""
    cache = EpochCache(MemoryFs(), "")
    for item in batches:
        cache.assign(item.header.leader_epoch, item.base)
    cache.truncate_from_start(log_start_offset)
    return cache.entries


def producers_of(batches: list[Stored]) -> ProducerStates:
    """Return the producer states that these batches imply."""
    states = ProducerStates()
    for item in batches:
        states.replay(item.header, memoryview(item.data))
    return states


def stable_offset(states: ProducerStates, high_watermark: int) -> int:
    """Return the last stable offset."""
    first = states.first_unstable_offset(high_watermark)
    return high_watermark if first is None else min(first, high_watermark)


def facts(entry: ProducerStateEntry) -> tuple[object, ...]:
    """Return what a restart must keep of a producer's state: all but the older batches of its window of last batches.
    """
    last = entry.window[-1][:4] if entry.window else None
    return entry.epoch, entry.next_sequence, last, entry.coordinator_epoch, entry.txn_first_offset


def assert_producers(found: ProducerStates, expected: ProducerStates) -> None:
    """Assert that both have the same producers in the same states. A producer's window may lack its oldest batches.

    Timestamps of batches are not compared: a snapshot keeps one timestamp for each producer, which markers update too.
    """
    assert found.entries.keys() == expected.entries.keys()
    for producer_id, entry in found.entries.items():
        wanted = expected.entries[producer_id]
        assert facts(entry) == facts(wanted), producer_id
        kept = [sent[:4] for sent in entry.window]
        assert [sent[:4] for sent in wanted.window][len(wanted.window) - len(kept) :] == kept
    assert list(found.ongoing.items()) == list(expected.ongoing.items())
