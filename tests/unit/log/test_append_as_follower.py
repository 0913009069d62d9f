"""Checks what a follower takes of what its leader sends."""

from __future__ import annotations

from struct import pack_into

import pytest
from crc32c import crc32c

from squall.broker.log.config import LogConfig
from squall.broker.log.scan import CorruptRecords, UnexpectedOffset
from tests.support.disks.batches import NEWEST, batch, marker
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import open_log, stable_offset, stored_batches


def run(*batches: memoryview) -> memoryview:
    return memoryview(b"".join(bytes(item) for item in batches))


def test_batches_of_several_epochs_go_in_with_one_write_and_unchanged() -> None:
    fs = MemoryFs()
    log = open_log(fs, config=LogConfig())
    log.append_as_follower(batch(1, leader_epoch=1), NEWEST)
    fs.log.clear()
    sent = run(
        batch(2, base=1, leader_epoch=1),
        batch(3, base=3, leader_epoch=4, pid=7, epoch=0, seq=0),
        batch(1, base=6, leader_epoch=6, pid=7, epoch=0, seq=3),
    )
    assert log.append_as_follower(sent, NEWEST) == (1, 7, len(sent))
    assert fs.log == ["create", "append", "fsync", "rename", "fsync_dir", "append"]
    assert b"".join(item.data for item in stored_batches(log))[-len(sent) :] == bytes(sent)
    assert log.epochs.entries == [(1, 0), (4, 3), (6, 6)]
    assert log.producers.entries[7].next_sequence == 4


def test_sequences_are_not_checked_again() -> None:
    log = open_log(MemoryFs())
    sent = run(batch(1, leader_epoch=0, pid=1, seq=0), batch(1, base=1, leader_epoch=0, pid=1, seq=9))
    log.append_as_follower(sent, NEWEST)
    assert log.log_end_offset == 2
    assert log.producers.entries[1].next_sequence == 10


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    log = open_log(MemoryFs())
    first, second = batch(2, leader_epoch=0), batch(2, base=2, leader_epoch=0)
    for cut in (1, 60, 61, len(second) - 1):
        log.truncate_to(0)
        assert log.append_as_follower(run(first, second[:cut]), NEWEST) == (0, 2, len(first))
    assert log.append_as_follower(memoryview(b""), NEWEST) == (2, 2, 0)


def test_what_follows_from_a_batch_of_a_later_epoch_on_is_left_out() -> None:
    """KAFKA-18723: a deposed leader sent the batch, or the bits of its epoch are damaged."""
    log = open_log(MemoryFs())
    first, later = batch(2, leader_epoch=1), batch(1, base=2, leader_epoch=3)
    sent = run(first, later, batch(1, base=3, leader_epoch=1))
    assert log.append_as_follower(sent, 1) == (0, 2, len(first))
    assert log.epochs.entries == [(1, 0)]
    assert log.append_as_follower(later, 2) == (2, 2, 0)
    assert log.append_as_follower(later, 3) == (2, 3, len(later))


def test_nothing_is_appended_where_one_batch_is_corrupt() -> None:
    log = open_log(MemoryFs())
    good = batch(2, leader_epoch=0)
    for at, form, value in ((17, ">I", 1), (8, ">i", 10), (16, ">b", 1), (12, ">i", -1)):
        bad = batch(2, base=2, leader_epoch=0)
        pack_into(form, bad, at, value)
        with pytest.raises(CorruptRecords):
            log.append_as_follower(run(good, bad), NEWEST)
    assert log.log_end_offset == 0
    assert log.epochs.entries == []
    assert log.size == 0


@pytest.mark.parametrize("base", [0, 1, 3])
def test_batches_must_continue_at_the_logs_end(base: int) -> None:
    log = open_log(MemoryFs())
    log.append_as_follower(batch(2, leader_epoch=0), NEWEST)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(2, base=base, leader_epoch=0), NEWEST)
    assert log.log_end_offset == 2


def test_offsets_may_be_missing_in_a_compacted_topic_only_forward() -> None:
    log = open_log(MemoryFs(), config=LogConfig(cleanup_policy=("compact", "delete")))
    log.append_as_follower(run(batch(2, leader_epoch=0), batch(2, base=10, leader_epoch=0)), NEWEST)
    assert log.log_end_offset == 12
    found = log.slice(5, 12, 1000, True)
    assert found is not None
    assert found.read() == bytes(batch(2, base=10, leader_epoch=0))
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(2, base=11, leader_epoch=0), NEWEST)


def test_a_log_emptied_by_deleted_records_may_begin_inside_of_a_batch() -> None:
    log = open_log(MemoryFs())
    log.truncate_fully_and_start_at(7)
    sent = run(batch(5, base=4, leader_epoch=2), batch(1, base=9, leader_epoch=2))
    assert log.append_as_follower(sent, NEWEST) == (4, 10, len(sent))
    assert log.log_start_offset == 7
    assert log.segments[0].base_offset == 4
    found = log.slice(7, 10, 10_000, True)
    assert found is not None
    assert found.length == len(sent)


def test_a_log_that_begins_inside_of_a_batch_at_offset_zero() -> None:
    log = open_log(MemoryFs())
    log.truncate_fully_and_start_at(2)
    assert log.append_as_follower(batch(5, leader_epoch=2), NEWEST).first_offset == 0
    assert log.log_start_offset == 2


def test_segments_are_cut_where_the_leader_cut_its_own() -> None:
    leader, follower = open_log(MemoryFs()), open_log(MemoryFs())
    for n in range(40):
        leader.append_as_leader(batch(1 + n % 3, size=40 * (n % 4), timestamp=n), 0, 1_000)
    sent = b"".join(item.data for item in stored_batches(leader))
    follower.append_as_follower(memoryview(sent), NEWEST)
    assert len(leader.segments) > 3
    assert [segment.base_offset for segment in follower.segments] == [
        segment.base_offset for segment in leader.segments
    ]


def test_markers_end_transactions_on_followers_too() -> None:
    log = open_log(MemoryFs())
    log.append_as_follower(
        run(
            batch(2, leader_epoch=0, pid=1, seq=0, transactional=True),
            marker(1, 0, commit=False, base=2, leader_epoch=0),
            batch(1, base=3, leader_epoch=0, pid=1, seq=2, transactional=True),
        ),
        NEWEST,
    )
    assert [txn[:3] for txn in log.aborted_transactions(0, 4)] == [(1, 0, 2)]
    assert stable_offset(log.producers, 4) == 3


def test_a_marker_that_cannot_be_read_is_corrupt() -> None:
    bad = bytes(marker(1, 0, commit=True, leader_epoch=0))
    broken = memoryview(bytearray(bad[:62] + b"\x7f" * (len(bad) - 62)))
    pack_into(">I", broken, 17, crc32c(broken[21:]))
    with pytest.raises(CorruptRecords, match="control batch"):
        open_log(MemoryFs()).append_as_follower(broken, NEWEST)


def test_a_failed_write_leaves_no_epoch_behind() -> None:
    fs = MemoryFs()
    log = open_log(fs)
    log.append_as_follower(batch(2, leader_epoch=1), NEWEST)
    fs.fail = lambda kind: OSError("no space") if kind == "append" else None
    with pytest.raises(OSError, match="no space"):
        log.append_as_follower(run(batch(1, base=2, leader_epoch=1), batch(1, base=3, leader_epoch=3)), NEWEST)
    assert log.epochs.entries == [(1, 0)]
    assert log.log_end_offset == 2
