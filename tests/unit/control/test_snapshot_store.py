"""Snapshots as files: what a crash leaves, what a damaged disk leaves, and what the log makes of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from squall.broker.control.kraft.quorum_storage import QuorumStorage
from squall.broker.control.kraft.snapshot_store import SnapshotStore, decode_snapshot, encode_snapshot, id_of
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema.metadata_records import NoOpRecord, TopicRecord
from squall.broker.quorum.effects import (
    AppendLeaderBatch,
    AppendLeaderChange,
    InstallSnapshot,
    Truncate,
    WriteSnapshotChunk,
)
from squall.broker.quorum.messages import SnapshotId
from squall.broker.quorum.settings import QuorumSettings
from squall.broker.quorum.state import DamagedQuorumState
from tests.support.brokers.memory_env import WALL_MS, SteppedEnv
from tests.support.disks.memory_fs import Crashed, MemoryFs
from tests.unit.control.test_quorum_edge import DIRECTORY, load_log

SETTINGS = QuorumSettings(1, (1, 2, 3))


def names(count: int) -> list[Any]:
    return [TopicRecord(name=f"t{n}", topic_id=bytes([n % 256]) * 16) for n in range(count)]


def snapshot_of(count: int, epoch: int = 3) -> bytes:
    return encode_snapshot([(record, 0) for record in names(count)], epoch, WALL_MS)


def fresh() -> MemoryFs:
    fs = MemoryFs()
    fs.mkdirs(DIRECTORY)
    fs.fsync_dir("data")
    fs.fsync_dir(".")
    return fs


def storage(fs: MemoryFs) -> QuorumStorage:
    return QuorumStorage(SteppedEnv(fs=fs), load_log(fs), SETTINGS, "c")


def written(fs: MemoryFs, records: int = 20) -> QuorumStorage:
    """A log of epoch 3 with single records, in two segments: 0 begins the epoch, topics follow; all of it synced."""
    kept = storage(fs)
    kept.write(AppendLeaderChange(0, 3, (1, 2, 3), (1, 2)))
    for offset in range(1, records):
        if offset == 8:
            kept._log.roll()
        kept.write(AppendLeaderBatch(offset, 3, 1, kept.encode([(names(records)[offset - 1], 0)])))
    kept._log.flush(WALL_MS)
    return kept


@pytest.mark.parametrize("count", [0, 1, 3, 1200])
def test_what_is_encoded_is_decoded(count: int) -> None:
    assert decode_snapshot(snapshot_of(count)) == (WALL_MS, names(count))


@pytest.mark.parametrize("cut", [1, 70, 200])
def test_a_file_that_is_cut_short_is_not_whole(cut: int) -> None:
    data = snapshot_of(3)
    with pytest.raises(MalformedFrame):
        decode_snapshot(data[:-cut])


def test_every_flipped_bit_is_noticed() -> None:
    data = snapshot_of(3)
    rng = random.Random(1)
    for _ in range(200):
        at = rng.randrange(len(data))
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << rng.randrange(8)
        if not 0 <= at % 1000 < 12 and bytes(spoiled) != data:
            try:
                assert decode_snapshot(bytes(spoiled))[1] == names(3)  # the part of a batch that no CRC covers
            except MalformedFrame:
                pass


def test_the_name_is_kafkas() -> None:
    fs = fresh()
    store = SnapshotStore(fs, DIRECTORY)
    store.write(SnapshotId(17, 3), snapshot_of(1))
    store.add(SnapshotId(17, 3))
    assert "00000000000000000017-0000000003.checkpoint" in fs.list(DIRECTORY)
    assert id_of("00000000000000000017-0000000003.checkpoint") == SnapshotId(17, 3)
    others = (
        "00000000000000000017.log",
        "17-3.checkpoint",
        "0000000000000000001x-0000000003.checkpoint",
        "a.checkpoint",
    )
    assert [id_of(name) for name in others] == [None] * 4
    assert SnapshotStore(fs, DIRECTORY).ids == [SnapshotId(17, 3)]


def test_pieces_are_given_by_position_and_put_together_again() -> None:
    fs = fresh()
    store = SnapshotStore(fs, DIRECTORY)
    snapshot, data = SnapshotId(9, 3), snapshot_of(40)
    store.write(snapshot, data)
    store.add(snapshot)
    assert store.piece(SnapshotId(8, 3), 0, 100) is None
    here = SnapshotStore(other := fresh(), DIRECTORY)
    position = 0
    while position < len(data):
        found = store.piece(snapshot, position, 100)
        assert found is not None
        size, piece = found
        assert size == len(data)
        assert here.with_part(snapshot, position, piece) == data[: position + len(piece)]
        here.write_part(snapshot, position, piece)
        position += len(piece)
    here.install(snapshot)
    assert here.read(snapshot) == data
    assert SnapshotStore(other, DIRECTORY).newest == snapshot


def test_a_part_that_was_left_behind_is_removed() -> None:
    fs = fresh()
    SnapshotStore(fs, DIRECTORY).write_part(SnapshotId(9, 3), 0, b"begun")
    assert SnapshotStore(fs, DIRECTORY).ids == []
    assert not [name for name in fs.list(DIRECTORY) if name.endswith(".part")]


def take(kept: QuorumStorage, end_offset: int) -> SnapshotId:
    snapshot = SnapshotId(end_offset, 3)
    kept.snapshots.write(snapshot, snapshot_of(end_offset - 1))
    kept.snapshots.add(snapshot)
    return snapshot


def test_a_start_hands_on_the_newest_snapshot_and_then_the_log() -> None:
    fs = fresh()
    take(written(fs), 10)
    again = storage(fs.after_crash())
    assert again.loaded == names(9)
    assert [offset for offset, _, _ in again.read(10, 99)[1]] == list(range(10, 20))
    assert (again.extent().start_offset, again.extent().start_epoch) == (0, 0), "nothing was dropped"


def test_a_damaged_snapshot_is_dropped_where_the_log_has_it_all() -> None:
    fs = fresh()
    kept = written(fs)
    take(kept, 5)
    fs.write(f"{DIRECTORY}/{10:020d}-{3:010d}.checkpoint", snapshot_of(9)[:-3])
    again = storage(fs.after_crash())
    assert again.snapshots.ids == [SnapshotId(5, 3)]
    assert again.loaded == names(4)


def test_a_trimmed_log_without_its_snapshot_stops_the_node() -> None:
    fs = fresh()
    kept = written(fs)
    take(kept, 5)
    kept.trim(take(kept, 10), 20)
    assert kept.snapshots.ids == [SnapshotId(10, 3)]
    assert (kept.extent().start_offset, kept.extent().start_epoch, kept.extent().epochs) == (10, 3, [(3, 10)])
    fs.write(f"{DIRECTORY}/{10:020d}-{3:010d}.checkpoint", b"rotten")
    with pytest.raises(DamagedQuorumState, match="where no snapshot ends"):
        storage(fs.after_crash())


def check_whole(fs: MemoryFs, least: int) -> None:
    """Whatever the crash left: from the snapshot on the log continues without a gap, and nothing synced is missing."""
    kept = storage(fs)
    newest = kept.snapshots.newest
    extent = kept.extent()
    begins = newest.end_offset if newest is not None else 0
    assert extent.start_offset <= begins <= extent.end_offset
    assert extent.end_offset >= least
    assert kept.loaded == names(begins - 1 if begins else 0)
    following = [record for _, _, record in kept.read(begins, extent.end_offset)[1]]
    assert kept.loaded + following == names(len(kept.loaded) + len(following))
    assert all(extent.epoch_at(offset) == 3 for offset in range(extent.start_offset, extent.end_offset))


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_while_a_snapshot_is_taken_and_the_log_trimmed_loses_nothing(seed: int, power_loss: bool) -> None:
    step = 0
    while True:
        step += 1
        fs = fresh()
        kept = written(fs)
        take(kept, 5)
        fs.crash_at = fs.calls + step
        try:
            kept.trim(take(kept, 10), 20)
        except Crashed:
            check_whole(fs.after_crash(random.Random(seed) if power_loss else None), 20)
        else:
            break
    assert step > 6, "the crash was to come between all of its steps"


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_while_a_snapshot_is_installed_leaves_the_old_log_or_the_snapshot(seed: int, power_loss: bool) -> None:
    snapshot, data = SnapshotId(50, 3), snapshot_of(49)
    step = 0
    while True:
        step += 1
        fs = fresh()
        kept = written(fs)
        fs.crash_at = fs.calls + step
        try:
            kept.write(WriteSnapshotChunk(snapshot, 0, data[:100]))
            kept.write(WriteSnapshotChunk(snapshot, 100, data[100:]))
            kept.write(InstallSnapshot(snapshot, 1))
        except Crashed:
            check_whole(fs.after_crash(random.Random(seed) if power_loss else None), 20)
        else:
            check_whole(fs.after_crash(random.Random(seed) if power_loss else None), 50)
            break
    assert step > 6


async def test_after_an_install_the_log_goes_on_behind_the_snapshot() -> None:
    fs = fresh()
    kept = written(fs)
    snapshot, data = SnapshotId(50, 4), snapshot_of(49, 4)
    kept.write(WriteSnapshotChunk(snapshot, 0, data))
    kept.write(InstallSnapshot(snapshot, 1))
    assert kept.loaded == names(49)
    kept.write(AppendLeaderBatch(50, 4, 1, kept.encode([(NoOpRecord(), 0)])))
    assert await kept.sync() == (51, 1)
    extent = storage(fs.after_crash(random.Random(1))).extent()
    assert (extent.start_offset, extent.start_epoch, extent.end_offset, extent.last_epoch) == (50, 4, 51, 4)


def test_a_log_whose_truncation_a_power_loss_undid_is_left_for_the_snapshot_of_what_followed() -> None:
    fs = fresh()
    kept = written(fs)
    undone = {name: fs.read(f"{DIRECTORY}/{name}") for name in fs.list(DIRECTORY)}
    kept.write(Truncate(9, 1))
    kept.write(AppendLeaderChange(9, 4, (1, 2, 3), (2, 3)))
    take(kept, 5)
    snapshot, data = SnapshotId(10, 4), snapshot_of(9, 4)
    kept.snapshots.write(snapshot, data)
    assert storage(fs.after_crash()).extent().last_epoch == 4, "what was written after the truncation is kept"
    for name, content in undone.items():
        fs.write(f"{DIRECTORY}/{name}", content)
    again = storage(fs.after_crash())
    extent = again.extent()
    assert (extent.start_offset, extent.start_epoch, extent.end_offset, extent.last_epoch) == (10, 4, 10, 4)
    assert again.snapshots.ids == [snapshot], "the log no longer goes on from the older one"
