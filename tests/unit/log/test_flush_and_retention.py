"""Checks what is durable when (R14), and what is deleted when (L4)."""

from __future__ import annotations

from random import Random
from struct import pack_into

import pytest
from crc32c import crc32c

from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.protocol.records import Record, encode_batch
from tests.support.disks.batches import batch
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import DIRECTORY, open_log, small_chunks, stored_batches

ONE = len(batch(1))


def filled(config: LogConfig, count: int = 9, fs: MemoryFs | None = None) -> Log:
    """`count` batches of one record, with the timestamps 1000, 1010 ..."""
    log = open_log(fs or MemoryFs(), config=config)
    for n in range(count):
        log.append_as_leader(batch(1, timestamp=1_000 + 10 * n), 0, 1_000)
    return log


# ----------------------------------------------------------------------------------------------------------- flush


def test_a_flush_syncs_what_is_new_in_order_and_moves_the_recovery_point() -> None:
    fs = MemoryFs()
    log = filled(LogConfig(segment_bytes=3 * ONE), 7, fs)
    job = log.begin_flush()
    assert job is not None
    assert job.end_offset == 7
    log.append_as_leader(batch(1), 0, 1_000)
    fs.log.clear()
    job.run()
    # Two full segments with their indexes, the active one without, then the names.
    assert fs.log == ["fsync"] * 7 + ["fsync_dir"]
    assert log.recovery_point == 0
    log.finish_flush(job, 5)
    assert log.recovery_point == 7
    fs.log.clear()
    log.flush(5)
    assert fs.log == ["fsync"]
    assert log.recovery_point == 8
    assert log.begin_flush() is None


def test_a_truncation_meanwhile_makes_a_flush_say_nothing() -> None:
    log = filled(LogConfig())
    job = log.begin_flush()
    assert job is not None
    log.truncate_to(4)
    log.append_as_leader(batch(3), 1, 1_000)
    job.run()
    log.finish_flush(job, 0)
    assert log.recovery_point == 0


def test_flush_is_due_by_messages_or_time() -> None:
    log = filled(LogConfig(flush_messages=3), 2)
    assert not log.flush_due(10**15)
    log.append_as_leader(batch(1), 0, 1_000)
    assert log.flush_due(0)
    log.flush(0)
    assert not log.flush_due(0)

    log = filled(LogConfig(flush_ms=100), 0)
    assert not log.flush_due(10**15)
    log.flush(1_000)
    log.append_as_leader(batch(1), 0, 1_000)
    assert not log.flush_due(1_099)
    assert log.flush_due(1_100)
    log.flush(2_000)
    log.append_as_leader(batch(1), 0, 1_000)
    assert not log.flush_due(500)  # The clock was set back: the interval begins there.
    assert log.flush_due(600)


def test_the_recovery_point_is_lowered_durably_before_a_truncation_changes_files() -> None:
    fs = MemoryFs()
    log = filled(LogConfig(segment_bytes=3 * ONE), 9, fs)
    log.flush(0)
    seen = []

    def before_shrink(shrinking: Log) -> None:
        seen.append((shrinking.recovery_point, len(stored_batches(log))))

    log.before_shrink = before_shrink
    log.truncate_to(9)
    log.append_as_leader(batch(1), 0, 1_000)
    log.truncate_to(9)
    assert seen == []
    log.truncate_to(5)
    assert seen == [(5, 9)]
    assert log.generation == 2


class AllOrNothing(Random):
    """A power loss that keeps every change of a name and none of a content (0.0), or the other way round (0.99)."""

    def __init__(self, always: float) -> None:
        super().__init__(0)
        self.always = always

    def random(self) -> float:
        return self.always


@pytest.mark.parametrize("always", [0.0, 0.99])
def test_a_truncation_is_durable_when_it_returns(always: float) -> None:
    fs = MemoryFs()
    config = LogConfig(segment_bytes=3 * ONE)
    log = filled(config, 9, fs)
    log.flush(0)
    fs.fsync_dir("d")
    fs.fsync_dir("")
    log.truncate_to(4)
    again = open_log(fs.after_crash(AllOrNothing(always)), clean=False, recovery_point=4, config=config)
    assert again.log_end_offset == 4


# ------------------------------------------------------------------------------------------------------- retention


def test_segments_whose_newest_record_is_too_old_go() -> None:
    fs = MemoryFs()
    log = filled(LogConfig(segment_bytes=3 * ONE, retention_ms=100), 9, fs)
    assert log.delete_old_segments(1_120, 9) == []
    assert log.delete_old_segments(1_121, 9) == [0]
    assert (log.log_start_offset, log.epochs.entries) == (3, [(0, 3)])
    assert log.delete_old_segments(10_000, 9) == [3, 6]
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert [name for name in fs.list(DIRECTORY) if name.endswith((".log", "index"))] == [
        "00000000000000000009.index",
        "00000000000000000009.log",
        "00000000000000000009.timeindex",
    ]
    assert log.append_as_leader(batch(1), 0, 1_000).base_offset == 9


def test_segments_beyond_the_size_go_oldest_first() -> None:
    log = filled(LogConfig(segment_bytes=3 * ONE, retention_bytes=5 * ONE, retention_ms=-1))
    assert log.delete_old_segments(10**15, 9) == [0]
    assert log.size == 6 * ONE


def test_nothing_beyond_the_high_watermark_goes() -> None:
    log = filled(LogConfig(segment_bytes=3 * ONE, retention_ms=0))
    assert log.delete_old_segments(10_000, 5) == [0]
    assert log.delete_old_segments(10_000, 6) == [3]


def test_a_compacted_topic_keeps_old_segments_but_not_deleted_records() -> None:
    log = filled(LogConfig(segment_bytes=3 * ONE, retention_ms=0, cleanup_policy=("compact",)))
    assert log.delete_old_segments(10_000, 9) == []
    log.increment_log_start(5)
    assert log.delete_old_segments(10_000, 9) == [0]
    assert log.log_start_offset == 5


def test_deleted_records_stay_deleted() -> None:
    log = filled(LogConfig())
    assert log.increment_log_start(4)
    assert not log.increment_log_start(3)
    assert log.log_start_offset == 4
    assert log.offset_for_timestamp(0, 9).run() == (1_040, 4, 0)


def test_a_slice_of_a_removed_segment_can_still_be_read() -> None:
    log = filled(LogConfig(segment_bytes=3 * ONE, retention_ms=0))
    found = log.slice(0, 9, 10_000, True)
    assert found is not None
    before = found.read()
    log.delete_old_segments(10_000, 9)
    assert found.read() == before
    assert found.length == 3 * ONE


# ------------------------------------------------------------------------------------------------------- timestamps


def test_timestamps_are_looked_up_over_segments_and_batches() -> None:
    log = filled(LogConfig(segment_bytes=3 * ONE))
    assert log.offset_for_timestamp(0, 9).run() == (1_000, 0, 0)
    assert log.offset_for_timestamp(1_041, 9).run() == (1_050, 5, 0)
    assert log.offset_for_timestamp(1_080, 9).run() == (1_080, 8, 0)
    assert log.offset_for_timestamp(1_080, 8).run() is None
    assert log.offset_for_timestamp(1_081, 9).run() is None
    assert log.offset_for_timestamp(None, 9).run() == (1_080, 8, 0)
    assert log.offset_for_timestamp(None, 8).run() == (1_070, 7, 0)
    assert open_log(MemoryFs()).offset_for_timestamp(None, 0).run() is None


def test_a_batch_is_searched_no_further_than_its_limit_and_then_stands_for_its_records() -> None:
    records = [Record(0, 500, None, bytes(2 << 20)), Record(1, 600, None, b"v")]
    packed = encode_batch(records, codec=4)
    for limit, found in ((1 << 20, (600, 0, 3)), (4 << 20, (600, 1, 3))):
        log = open_log(MemoryFs(), config=LogConfig(squall_decompressed_batch_max_bytes=limit))
        log.append_as_leader(memoryview(bytearray(packed)), 3, 1_000)
        assert log.offset_for_timestamp(600, 2).run() == found
        assert log.offset_for_timestamp(500, 2).run() == (500, 0, 3)


def test_the_offset_is_that_of_the_record_inside_of_its_batch() -> None:
    log = open_log(MemoryFs())
    log.append_as_leader(batch(10, timestamp=500, codec=1), 3, 1_000)
    assert log.offset_for_timestamp(506, 10).run() == (506, 6, 3)
    log.increment_log_start(8)
    assert log.offset_for_timestamp(506, 10).run() == (508, 8, 3)


def test_a_batch_that_cannot_be_unpacked_stands_for_its_records() -> None:
    log = open_log(MemoryFs())
    sent = batch(2, timestamp=500, codec=1)
    sent[70:] = bytes(len(sent) - 70)
    pack_into(">I", sent, 17, crc32c(sent[21:]))
    assert log.append_as_leader(sent, 3, 1_000).error == 0
    assert log.offset_for_timestamp(500, 2).run() == (501, 0, 3)


def test_truncated_timestamps_are_forgotten() -> None:
    log = filled(LogConfig(index_interval_bytes=0))
    log.append_as_leader(batch(1, timestamp=5_000), 0, 5_000)
    log.append_as_leader(batch(1, timestamp=2_000), 0, 5_000)
    log.truncate_to(9)
    assert log.offset_for_timestamp(None, 9).run() == (1_080, 8, 0)
    log.append_as_leader(batch(1, timestamp=1_500), 0, 5_000)
    assert log.offset_for_timestamp(None, 10).run() == (1_500, 9, 0)
    assert log.offset_for_timestamp(1_501, 10).run() is None


# ----------------------------------------------------------------------------------------------------------- slices


def test_recent_batches_are_sliced_without_reading_the_disk() -> None:
    fs = MemoryFs()
    log = filled(LogConfig(segment_bytes=50 * ONE), 120, fs)
    fs.reads = 0
    for offset in (119, 100, 99, 60, 50):
        found = log.slice(offset, 120, 10 * ONE, True)
        assert found is not None
        assert found.length <= 10 * ONE
    assert fs.reads == 0


def test_every_slice_of_old_batches_ends_before_its_limits() -> None:
    with small_chunks():
        log = filled(LogConfig(index_interval_bytes=150), 30)
        assert len(log.segments[0].index) == 14
        assert len(log.segments[0].ends) <= 7
        for offset in range(30):
            for limit in range(offset, 31):
                for most in (0, ONE, 5 * ONE + 3, 40 * ONE):
                    found = log.slice(offset, limit, most, at_least_one=False)
                    assert (found.length // ONE if found else 0) == min(limit - offset, most // ONE)
                    assert found is None or (found.position, found.length % ONE) == (offset * ONE, 0)


def test_places_kept_in_memory_are_bounded() -> None:
    log = filled(LogConfig(), 3)
    segment = log.segments[0]
    for n in range(20_000):
        segment.note(4 + n, ONE, 0)
    assert len(segment.ends) <= 8192


@pytest.mark.parametrize("clean", [True, False])
def test_the_configuration_may_change(clean: bool) -> None:
    log = filled(LogConfig(), 3)
    log.configure(LogConfig(segment_bytes=ONE))
    log.append_as_leader(batch(1), 0, 1_000)
    log.append_as_leader(batch(1), 0, 1_000)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 4]
