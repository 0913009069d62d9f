"""Loading after an unclean stop (mechanism L6): cut at the first damage, keep and rebuild all before it."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack_into

import pytest

from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from tests.support.disks.batches import NEWEST, batch, marker
from tests.support.disks.memory_fs import Inode, MemoryFs
from tests.support.disks.small_log import (
    DIRECTORY,
    Stored,
    assert_producers,
    epochs_of,
    open_log,
    producers_of,
    stored_batches,
)

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


def filled(fs: MemoryFs, *, config: LogConfig = CONFIG) -> Log:
    """Six segments of five batches, with producers, epochs, and an aborted transaction in the second."""
    log = open_log(fs, config=config)
    for n in range(30):
        if n == 8:
            log.append_as_leader(marker(1, 0, commit=False), 2, 1_000, client=False)
            continue
        pid = n % 3 - 1
        entry = log.producers.entries.get(pid)
        sent = batch(2, pid=pid, seq=-1 if pid < 0 else entry.next_sequence if entry else 0, transactional=pid == 1)
        assert log.append_as_leader(sent, n // 4, 1_000).error == 0
    return log


def path(log: Log, segment: int, suffix: str) -> str:
    return f"{DIRECTORY}/{log.segments[segment].base_offset:020d}{suffix}"


def content(fs: MemoryFs, name: str) -> Inode:
    inode = fs.names[name]
    assert inode is not None
    return inode


def reload(fs: MemoryFs, *, clean: bool = False, recovery_point: int = 0, start: int = 0) -> Log:
    return open_log(fs.after_crash(), clean=clean, recovery_point=recovery_point, log_start_offset=start, config=CONFIG)


def assert_consistent(log: Log, batches: list[Stored]) -> None:
    assert stored_batches(log) == batches
    assert log.log_end_offset == batches[-1].end
    assert log.epochs.entries == epochs_of(batches, log.log_start_offset)
    assert_producers(log.producers, producers_of(batches))
    for item in batches:
        found = log.slice(item.base, log.log_end_offset, 1, True)
        assert found is not None
        assert found.read() == item.data


def test_an_undamaged_log_is_kept_whole() -> None:
    fs = MemoryFs()
    log = filled(fs)
    again = reload(fs)
    assert_consistent(again, stored_batches(log))
    assert again.recovery == (False, 6, log.size, 0, None, log.log_end_offset)
    assert again.aborted_transactions(0, 60) == log.aborted_transactions(0, 60) != []


def test_a_clean_log_whose_last_batch_has_an_impossible_offset_is_scanned() -> None:
    fs = MemoryFs()
    log = filled(fs)
    batches = stored_batches(log)
    log.close(0)
    last = log.segments[-1]
    pack_into(">q", content(fs, path(log, -1, ".log")).cached, last.size - len(batches[-1].data), 1)
    again = reload(fs, clean=True, recovery_point=log.recovery_point)
    assert again.recovery.scanned_segments == 1
    assert again.recovery.reason is not None
    assert again.log_end_offset == batches[-2].end


def test_only_segments_from_the_recovery_point_on_are_scanned() -> None:
    fs = MemoryFs()
    log = filled(fs)
    log.flush(0)
    bases = [segment.base_offset for segment in log.segments]
    for point, scanned in ((bases[3] + 1, 3), (bases[3], 4), (bases[5] + 1, 1), (0, 6)):
        again = reload(fs, recovery_point=point)
        assert again.recovery.scanned_segments == scanned
        assert_consistent(again, stored_batches(log))


def flip_crc(inode: Inode, at: int) -> None:
    inode.cached[at + 17] ^= 1


def flip_payload(inode: Inode, at: int) -> None:
    inode.cached[at + 70] ^= 0x80


def zero(inode: Inode, at: int) -> None:
    inode.cached[at:] = bytes(len(inode.cached) - at)


def tear(inode: Inode, at: int) -> None:
    del inode.cached[at + 80 :]


def tear_header(inode: Inode, at: int) -> None:
    del inode.cached[at + 20 :]


def shift_offset(inode: Inode, at: int) -> None:
    pack_into(">q", inode.cached, at, 1)


def huge_length(inode: Inode, at: int) -> None:
    pack_into(">i", inode.cached, at + 8, 2**31 - 1)


def old_magic(inode: Inode, at: int) -> None:
    inode.cached[at + 16] = 1


@pytest.mark.parametrize(
    "damage", [flip_crc, flip_payload, zero, tear, tear_header, shift_offset, huge_length, old_magic]
)
@pytest.mark.parametrize("segment", [0, 3, 5])
def test_the_log_is_cut_at_the_first_bad_batch(damage: Callable[[Inode, int], None], segment: int) -> None:
    fs = MemoryFs()
    log = filled(fs)
    batches = stored_batches(log)
    positions = [item for item in batches if item.base >= log.segments[segment].base_offset]
    at = len(positions[0].data) + len(positions[1].data)
    kept = [item for item in batches if item.end <= positions[1].end]
    damage(content(fs, path(log, segment, ".log")), at)
    after = fs.after_crash()
    again = open_log(after, clean=False, config=CONFIG)
    assert_consistent(again, kept)
    assert again.recovery.truncated_bytes > 0
    assert again.recovery.reason
    assert f"segment at offset {log.segments[segment].base_offset}" in again.recovery.reason
    assert [name for name in after.list(DIRECTORY) if name.endswith(".log")] == [
        f"{item.base_offset:020d}.log" for item in log.segments[: segment + 1]
    ]
    # What is appended now is what the next recovery finds.
    again.append_as_leader(batch(1), 50, 1_000)
    assert_consistent(reload(after), [*kept, *stored_batches(again)[-1:]])


def test_bytes_below_the_recovery_point_are_trusted() -> None:
    fs = MemoryFs()
    log = filled(fs)
    log.flush(0)
    flip_payload(content(fs, path(log, 1, ".log")), 0)
    again = reload(fs, recovery_point=log.segments[4].base_offset)
    assert again.log_end_offset == log.log_end_offset
    assert again.recovery.truncated_bytes == 0


def test_a_missing_segment_ends_the_log() -> None:
    fs = MemoryFs()
    log = filled(fs)
    kept = [item for item in stored_batches(log) if item.end <= log.segments[2].base_offset]
    fs.remove(path(log, 2, ".log"))
    again = reload(fs)
    assert_consistent(again, kept)
    expected = f"a segment begins at offset {log.segments[3].base_offset} instead of {log.segments[2].base_offset}"
    assert again.recovery.reason == expected


def test_compaction_may_leave_gaps_between_segments() -> None:
    fs = MemoryFs()
    config = LogConfig(segment_bytes=250, cleanup_policy=("compact",))
    log = open_log(fs, config=config)
    for base in (0, 10, 20, 30, 40):
        log.append_as_follower(batch(2, base=base, leader_epoch=0), NEWEST)
    log.flush(0)
    batches = stored_batches(log)
    fs.remove(path(log, 1, ".log"))
    for changed in (config, LogConfig(segment_bytes=250)):
        # Also when the policy has been changed since: the gaps inside of segments tell.
        again = open_log(fs.after_crash(), clean=False, config=changed)
        assert stored_batches(again) == [item for item in batches if item.base not in (20, 30)]
        assert again.recovery.reason is None


def test_missing_indexes_are_made_again_even_after_a_clean_stop() -> None:
    for suffix in (".index", ".timeindex"):
        fs = MemoryFs()
        log = filled(fs)
        batches = stored_batches(log)
        names = [path(log, segment, suffix) for segment in (1, 4)]
        log.close(0)
        before = [fs.read(name) for name in names]
        for name in names:
            fs.remove(name)
        after = fs.after_crash()
        again = open_log(after, clean=True, config=CONFIG)
        assert not again.recovery.clean
        assert again.recovery.reason is None
        assert_consistent(again, batches)
        again.close(0)
        assert [after.read(name) for name in names] == before


def test_a_missing_or_damaged_epoch_file_is_made_again() -> None:
    for clean in (True, False):
        for damage in (b"0\n", b"0\n2\n3 4\n3 9\n", None):
            fs = MemoryFs()
            log = filled(fs)
            batches = stored_batches(log)
            log.close(0)
            if damage is None:
                fs.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
            else:
                content(fs, f"{DIRECTORY}/leader-epoch-checkpoint").cached[:] = damage
            assert_consistent(reload(fs, clean=clean, recovery_point=log.log_end_offset), batches)


def test_a_damaged_snapshot_is_passed_over() -> None:
    fs = MemoryFs()
    log = filled(fs)
    batches = stored_batches(log)
    log.close(0)
    for name in fs.list(DIRECTORY):
        if name.endswith(".snapshot"):
            content(fs, f"{DIRECTORY}/{name}").cached[-1] ^= 1
    assert_consistent(reload(fs, clean=True), batches)
    assert_consistent(reload(fs, clean=False, recovery_point=log.log_end_offset), batches)


def test_a_clean_load_reads_no_batches_but_the_last_ones() -> None:
    fs = MemoryFs()
    log = filled(fs, config=LogConfig())
    log.close(0)
    after = fs.after_crash()
    again = open_log(after, clean=True, config=LogConfig())
    assert again.recovery == (True, 0, 0, 0, None, log.log_end_offset)
    assert after.reads < 25
    assert after.log == []


def test_an_epoch_file_that_is_ahead_of_the_log_is_cut_back() -> None:
    fs = MemoryFs()
    log = filled(fs)
    log.epochs.assign(99, log.log_end_offset)
    log.epochs.flush()
    batches = stored_batches(log)
    assert_consistent(reload(fs), batches)
    log.close(0)
    assert_consistent(reload(fs, clean=True), batches)


def test_leftovers_of_interrupted_work_are_removed() -> None:
    fs = MemoryFs()
    filled(fs)
    for name in ("00000000000000009999.index", "00000000000000009999.txnindex", "leader-epoch-checkpoint.tmp"):
        fs.write(f"{DIRECTORY}/{name}", b"x")
    fs.write(f"{DIRECTORY}/00000000000000009999.snapshot", b"")
    fs.write(f"{DIRECTORY}/partition.metadata", b"version: 0\n")
    after = fs.after_crash()
    open_log(after, clean=False, config=CONFIG)
    names = after.list(DIRECTORY)
    assert "partition.metadata" in names
    assert not [name for name in names if "9999" in name or name.endswith(".tmp")]


def test_a_log_that_ends_before_its_start_begins_anew_there() -> None:
    fs = MemoryFs()
    log = filled(fs)
    again = reload(fs, start=log.log_end_offset + 5)
    assert (again.log_start_offset, again.log_end_offset) == (log.log_end_offset + 5,) * 2
    assert again.size == 0
    assert again.epochs.entries == []


def test_an_empty_directory_becomes_a_log_at_its_start_offset() -> None:
    log = open_log(MemoryFs(), clean=False, log_start_offset=12)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (12, 12, 12)
    assert log.append_as_leader(batch(1), 0, 1_000).base_offset == 12


def test_the_recovery_point_is_not_beyond_the_end() -> None:
    fs = MemoryFs()
    log = filled(fs)
    end = log.segments[2].base_offset
    log.truncate_to(end)
    assert reload(fs, recovery_point=10_000).recovery_point == end
