"""All logs of a data directory."""

from __future__ import annotations

from random import Random

import pytest

from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.log.manager import InconsistentMetaProperties, LogManager
from tests.support.disks.batches import batch
from tests.support.disks.memory_fs import Crashed, MemoryFs

ID, OTHER = bytes([1] * 16), bytes([2] * 16)
CONFIG = LogConfig(segment_bytes=300, file_delete_delay_ms=1_000)


def start(fs: MemoryFs, **known: object) -> LogManager:
    manager = LogManager(fs, "data", lambda topic: CONFIG, rng=Random(1), **known)  # type: ignore[arg-type]
    manager.load_all(0)
    return manager


def fill(log: Log, count: int = 6) -> None:
    for _ in range(count):
        assert log.append_as_leader(batch(1), 0, 1_000).error == 0


def remove_doomed(manager: LogManager, wall_ms: int) -> None:
    for directory in manager.take_removable(wall_ms):
        manager.remove(directory)


def test_logs_are_found_again_after_a_clean_stop() -> None:
    fs = MemoryFs()
    manager = start(fs)
    assert (manager.clean, manager.previous_broker_epoch) == (False, -1)
    fill(manager.get_or_create("a-b.c", 0, ID))
    fill(manager.get_or_create("a-b.c", 12, ID), 2)
    manager.close(0)
    manager.mark_clean_shutdown(55)
    again = start(fs.after_crash())
    assert (again.clean, again.previous_broker_epoch) == (True, 55)
    assert {place: log.log_end_offset for place, log in again.logs.items()} == {("a-b.c", 0): 6, ("a-b.c", 12): 2}
    assert all(log.recovery.clean and log.topic_id == ID for log in again.logs.values())
    assert again.logs["a-b.c", 0].recovery_point == 6
    assert again.get_or_create("a-b.c", 0, ID) is again.logs["a-b.c", 0]


def test_the_mark_of_a_clean_stop_is_gone_before_any_log_is_loaded() -> None:
    # KAFKA-10471: a crash while loading must not leave it for the next start to believe.
    fs = MemoryFs()
    manager = start(fs)
    fill(manager.get_or_create("a", 0, ID))
    manager.close(0)
    manager.mark_clean_shutdown(55)
    fs = fs.after_crash()
    fs.crash_at = fs.calls + 3  # Removal and fsync of the directory, then the first change while loading.
    again = LogManager(fs, "data", lambda topic: CONFIG, rng=Random(1))
    fs.write("data/b-0/00000000000000000000.log", b"damaged")
    with pytest.raises(Crashed):
        again.load_all(0)
    third = start(fs.after_crash())
    assert (third.clean, third.previous_broker_epoch) == (False, -1)


def test_what_is_no_partition_is_left_alone() -> None:
    fs = MemoryFs()
    for path in ("data/lost+found/x", "data/-0/x", "data/notes-1", "data/a-b/x"):
        fs.write(path, b"")
    assert start(fs).logs == {}
    assert fs.exists("data/notes-1")


def test_a_deleted_log_is_renamed_at_once_and_removed_later() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    found = log.slice(0, 6, 1_000, True)
    generation = log.generation
    assert manager.delete("a", 0, wall_ms=500)
    assert not manager.delete("a", 0, wall_ms=500)
    assert log.generation == generation + 1
    [name] = [name for name in fs.list("data") if name.endswith("-delete")]
    assert name.startswith("a-0.")
    assert found is not None
    assert len(found.read()) == found.length
    assert manager.take_removable(1_499) == []
    assert fs.exists(f"data/{name}")
    remove_doomed(manager, 1_500)
    assert manager.take_removable(9_999) == []
    assert not fs.exists(f"data/{name}")
    assert manager.get_or_create("a", 0, OTHER).log_end_offset == 0


def test_a_log_whose_removal_was_interrupted_is_removed_at_the_next_start() -> None:
    fs = MemoryFs()
    manager = start(fs)
    manager.get_or_create("a", 0, ID)
    manager.delete("a", 0, 0)
    again = start(fs.after_crash())
    assert again.logs == {}
    assert not [name for name in again._fs.list("data") if name.endswith("-delete")]


def test_the_longest_topic_name_can_be_deleted() -> None:
    fs = MemoryFs()
    manager = start(fs)
    manager.get_or_create("t" * 249, 0, ID)
    manager.delete("t" * 249, 0, 0)
    assert max(len(name) for name in fs.list("data")) == 255


def test_a_log_of_an_older_topic_of_the_same_name_is_deleted() -> None:
    fs = MemoryFs()
    manager = start(fs)
    fill(manager.get_or_create("a", 0, ID))
    fresh = manager.get_or_create("a", 0, OTHER)
    assert (fresh.log_end_offset, fresh.topic_id) == (0, OTHER)
    assert start(fs.after_crash()).logs["a", 0].topic_id == OTHER


def test_a_log_without_a_topic_id_is_given_one() -> None:
    fs = MemoryFs()
    manager = start(fs)
    fill(manager.get_or_create("a", 0, bytes(16)))
    log = manager.get_or_create("a", 0, ID)
    assert (log.log_end_offset, log.topic_id) == (6, ID)
    assert start(fs.after_crash()).logs["a", 0].topic_id == ID


def test_a_new_log_does_not_inherit_how_far_a_deleted_one_was_synced() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    log.flush(0)
    manager.checkpoint_recovery_points()
    manager.delete("a", 0, 0)
    fill(manager.get_or_create("a", 0, OTHER))
    again = start(fs.after_crash())
    assert again.logs["a", 0].recovery.scanned_bytes > 0
    assert again.logs["a", 0].recovery_point == 0


def test_nor_does_it_where_the_deletion_was_interrupted() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    log.flush(0)
    manager.checkpoint_recovery_points()
    manager.delete("a", 0, 0)
    fs.fsync_dir("data")  # Renamed and durably so, but the checkpoint still speaks of it.
    fs = fs.after_crash()
    assert b"a 0 6" in fs.read("data/recovery-point-offset-checkpoint")
    fill(start(fs).get_or_create("a", 0, OTHER))
    assert start(fs.after_crash()).logs["a", 0].recovery_point == 0


def test_deleting_logs_waits_for_no_disk() -> None:
    fs = MemoryFs()
    manager = start(fs)
    for index in range(20):
        fill(manager.get_or_create("a", index, ID))
    fs.log.clear()
    for index in range(20):
        manager.delete("a", index, 0)
    assert fs.log == ["rename"] * 20
    remove_doomed(manager, 10_000)
    kinds = fs.log[20:]
    assert kinds[0] == "fsync_dir" not in kinds[1:], "half a log must not come back by its old name"


def test_a_deletion_that_a_power_loss_undid_leaves_the_log_as_it_was() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    log.flush(0)
    manager.checkpoint_recovery_points()
    fs.fsync_dir("data")
    manager.delete("a", 0, 0)
    found = [start(fs.after_crash(Random(seed))).logs.get(("a", 0)) for seed in range(8)]
    assert any(back is None for back in found)
    assert [(back.topic_id, back.log_end_offset) for back in found if back is not None][0] == (ID, 6)


def test_truncation_below_the_recovery_point_is_known_to_the_next_start() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    log.flush(0)
    manager.checkpoint_recovery_points()
    log.truncate_to(2)
    fill(log)
    assert start(fs.after_crash()).logs["a", 0].recovery_point == 2


def test_the_log_start_survives_by_its_checkpoint() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    log.increment_log_start(1)
    manager.checkpoint_recovery_points()
    assert fs.read("data/log-start-offset-checkpoint") == b"0\n1\na 0 1\n"
    assert start(fs.after_crash()).logs["a", 0].log_start_offset == 1


def test_tick_applies_retention_and_forgets_old_producers() -> None:
    fs = MemoryFs()
    manager = start(fs)
    log = manager.get_or_create("a", 0, ID)
    fill(log)
    log.append_as_leader(batch(1, pid=1, seq=0), 0, 1_000)
    log.append_as_leader(batch(1, pid=2, seq=0, transactional=True), 0, 1_000)
    day = 86_400_000
    assert list(manager.tick(1_000 + day - 1, lambda log: 8)) == [(log, [])]
    assert log.producers.entries.keys() == {1, 2}
    assert list(manager.tick(1_000 + day, lambda log: 8)) == [(log, [])]
    assert log.producers.entries.keys() == {2}  # Its transaction is open.
    assert list(manager.tick(1_001 + 7 * day, lambda log: 3)) == [(log, [0])]


def test_high_watermarks_are_kept() -> None:
    fs = MemoryFs()
    start(fs).high_watermarks.write({("a", 0): 7})
    assert fs.read("data/replication-offset-checkpoint") == b"0\n1\na 0 7\n"
    assert start(fs.after_crash()).high_watermarks.read() == {("a", 0): 7}


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    fs = MemoryFs()
    manager = start(fs, cluster_id="C", node_id=1)
    again = start(fs.after_crash(), cluster_id="C", node_id=1)
    assert again.directory_id == manager.directory_id
    with pytest.raises(InconsistentMetaProperties, match=r"cluster\.id=C"):
        start(fs.after_crash(), cluster_id="D", node_id=1)
    with pytest.raises(InconsistentMetaProperties, match=r"node\.id=1"):
        start(fs.after_crash(), cluster_id="C", node_id=2)


def test_other_lines_of_meta_properties_are_kept() -> None:
    fs = MemoryFs()
    fs.write("data/meta.properties", b"#\n#date\nversion=1\nnode.id=4\nother=x=y\n")
    start(fs, node_id=4, cluster_id="C")
    text = fs.read("data/meta.properties").decode()
    assert text.startswith("version=1\nnode.id=4\nother=x=y\ncluster.id=C\ndirectory.id=")


def test_a_broker_has_so_many_small_segments_at_most() -> None:
    """Of all logs, because each has open files. Those that follow have at least one MiB; nothing else changes."""
    fs = MemoryFs()
    manager = start(fs, segments=3)
    first, second = manager.get_or_create("a", 0, ID), manager.get_or_create("b", 0, ID)
    fill(first, 40)
    fill(second, 40)
    assert (len(first.segments), len(second.segments)) == (4, 1)
    assert first.log_end_offset == second.log_end_offset == 40
    follower = start(MemoryFs(), segments=3).get_or_create("a", 0, ID)
    data = b"".join(bytes(record) for _, record in first.read_batches(0, 40))
    follower.append_as_follower(memoryview(bytearray(data)), 0)
    assert (len(follower.segments), follower.log_end_offset) == (4, 40)
    assert [segment.size for segment in follower.segments] == [segment.size for segment in first.segments]
    manager.close(0)
    manager.mark_clean_shutdown(1)
    assert start(fs.after_crash()).logs["a", 0].log_end_offset == 40


def test_an_old_segment_still_goes_where_there_are_too_many() -> None:
    fs = MemoryFs()
    config = LogConfig(segment_bytes=300, retention_ms=1_000)
    manager = LogManager(fs, "data", lambda topic: config, rng=Random(1), segments=1)
    log = manager.get_or_create("a", 0, ID)
    fill(log, 40)
    assert len(log.segments) == 2
    log.delete_old_segments(1_000_000, 40)
    assert (log.log_start_offset, log.size) == (40, 0)
