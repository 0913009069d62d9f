"""The file system that the other tests run on: it agrees with the real one, and loses only what it may."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from squall.broker.config.topic import TopicConfig
from squall.broker.env import Fs
from squall.broker.log.config import LogConfig
from squall.broker.log.manager import LogManager
from squall.broker.real_files import RealFs
from tests.support.disks.batches import batch, marker
from tests.support.disks.memory_fs import Crashed, MemoryFs


def life(fs: Fs, root: str) -> None:
    """Some of everything, with a clean stop in the middle and at the end."""
    config = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)
    for begin in (0, 40):
        manager = LogManager(fs, root, lambda topic: config, rng=Random(5), cluster_id="C", node_id=1)
        manager.load_all(0)
        log = manager.get_or_create("t", 0, bytes(range(16)))
        gone = manager.get_or_create("gone", begin, bytes(range(16)))
        for n in range(begin, begin + 40):
            sent = batch(2) if n % 5 else batch(1 + n % 3, pid=n, seq=0, transactional=True, timestamp=n)
            log.append_as_leader(sent, n // 9, 1_000)
            gone.append_as_leader(batch(1), 0, 1_000)
            if n % 10 == 0:
                log.append_as_leader(marker(n, 0, commit=False), n // 9, 1_000, client=False)
        log.flush(0)
        log.truncate_to(log.log_end_offset - 7)
        log.increment_log_start(9)
        list(manager.tick(0, lambda log: log.log_end_offset))
        manager.delete("gone", begin, 0)
        manager.close(0)
        manager.mark_clean_shutdown(begin)


def test_real_and_remembered_files_are_the_same(tmp_path: Path) -> None:
    memory = MemoryFs()
    life(memory, "data")
    life(RealFs(), str(tmp_path / "data"))
    real = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    remembered = {path: bytes(inode.cached) for path, inode in memory.names.items() if inode is not None}
    assert real == remembered
    assert len(real) > 20


def test_what_is_synced_with_its_names_survives_every_power_loss() -> None:
    fs = MemoryFs()
    fs.mkdirs("a/b")
    file = fs.open("a/b/f", create=True)
    file.append(b"synced")
    file.fsync()
    for folder in ("a/b", "a", ""):
        fs.fsync_dir(folder)
    file.append(b" lost?")
    fs.open("a/b/g", create=True)
    fs.rename("a/b/f", "a/b/h")
    ends = set()
    for seed in range(60):
        after = fs.after_crash(Random(seed))
        names = after.list("a/b")
        assert ("f" in names) != ("h" in names)
        content = after.read("a/b/f" if "f" in names else "a/b/h")
        assert content[:6] == b"synced"
        ends.add((content[6:], tuple(names)))
    assert len(ends) > 8


def test_a_kill_loses_nothing_and_a_dead_process_changes_nothing() -> None:
    fs = MemoryFs(crash_at=3)
    file = fs.open("f", create=True)
    file.append(b"one")
    with pytest.raises(Crashed):
        file.append(b"two")
    with pytest.raises(Crashed):
        fs.remove("f")
    after = fs.after_crash()
    assert after.read("f") == b"one"
    after.open("f").append(b"!")
    assert fs.after_crash().read("f") == b"one"


def test_the_defaults_are_those_of_the_topics_settings() -> None:
    assert LogConfig.of(TopicConfig()) == LogConfig()
    assert LogConfig.of(TopicConfig(segment_bytes=100), producer_id_expiration_ms=5).producer_id_expiration_ms == 5
