"""RealFs and RealFile over a temporary directory, where they are more than `test_fs_contract` asks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from squall.broker import real_files
from squall.broker.env import Fs
from squall.broker.log.config import LogConfig
from squall.broker.log.log import Log
from squall.broker.log.recovery import load
from squall.broker.real_files import RealFile, RealFs
from tests.support.disks.batches import batch


@pytest.fixture
def fs() -> Fs:
    return RealFs()


def test_an_append_that_fails_half_way_leaves_the_file_as_it_was(
    fs: Fs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"before")
    real_pwrite = os.pwrite
    calls = []

    def full_disk(fd: int, data: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "no space")
        return real_pwrite(fd, data[:2], offset)

    monkeypatch.setattr(os, "pwrite", full_disk)
    with pytest.raises(OSError, match="no space"):
        file.append(b"record")
    monkeypatch.undo()
    assert file.size() == 6
    assert file.append(b"after") == 6


def test_dropping_the_last_reference_closes_the_file(fs: Fs, tmp_path: Path) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    assert isinstance(file, RealFile)
    fd = file.fileno()
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


KIB = 1024


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is set aside for small files, too."""
    monkeypatch.setattr(real_files, "RESERVED_FROM", 64 * KIB)
    monkeypatch.setattr(real_files, "RESERVED", 1024 * KIB)
    monkeypatch.setattr(real_files, "MIN_FREE_BYTES", 0)


def blocks(path: Path) -> int:
    """Bytes that a file takes on its disk."""
    return path.stat().st_blocks * 512


@pytest.mark.usefixtures("roomy")
def test_room_is_set_aside_for_a_file_that_has_grown_and_sealing_gives_it_back(fs: Fs, tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = fs.open(str(path), create=True)
    file.append(bytes(60 * KIB))
    assert blocks(path) < 500 * KIB
    file.append(b"x" * 10 * KIB)
    assert path.stat().st_size == file.size() == 70 * KIB
    assert blocks(path) >= 1000 * KIB
    file.seal()
    assert blocks(path) < 500 * KIB
    assert path.read_bytes() == bytes(60 * KIB) + b"x" * 10 * KIB
    assert file.append(b"behind") == 70 * KIB
    assert blocks(path) >= 1000 * KIB, "and so that of one that is written again"


@pytest.mark.usefixtures("roomy")
def test_a_file_that_a_killed_process_left_gives_back_what_that_had_set_aside(fs: Fs, tmp_path: Path) -> None:
    path = tmp_path / "f"
    fs.open(str(path), create=True).append(bytes(70 * KIB))
    assert blocks(path) >= 1000 * KIB
    fs.open(str(path)).seal()
    assert blocks(path) < 500 * KIB
    assert path.read_bytes() == bytes(70 * KIB)


@pytest.mark.usefixtures("roomy")
def test_a_truncation_takes_the_room_with_it_and_the_next_appends_get_new_one(fs: Fs, tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = fs.open(str(path), create=True)
    file.append(bytes(70 * KIB))
    file.truncate(8 * KIB)
    assert blocks(path) < 500 * KIB
    file.append(bytes(70 * KIB))
    assert path.stat().st_size == 78 * KIB
    assert blocks(path) >= 1000 * KIB


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize("lacking", ["call", "room"])
def test_where_no_room_can_be_set_aside_files_grow_as_they_are_written(
    fs: Fs, tmp_path: Path, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lacking == "call":
        monkeypatch.setattr(real_files, "_fallocate", lambda *_: -1)
    else:
        monkeypatch.setattr(real_files, "MIN_FREE_BYTES", 1 << 60)
    path = tmp_path / "f"
    file = fs.open(str(path), create=True)
    for _ in range(3):
        file.append(bytes(70 * KIB))
    assert path.stat().st_size == 210 * KIB
    assert blocks(path) < 500 * KIB


@pytest.mark.usefixtures("roomy")
def test_an_append_that_fails_leaves_no_room_behind_that_nobody_uses(
    fs: Fs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    file = fs.open(str(path), create=True)
    file.append(bytes(60 * KIB))

    def full_disk(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", full_disk)
    with pytest.raises(OSError, match="no space"):
        file.append(bytes(10 * KIB))
    monkeypatch.undo()
    assert path.stat().st_size == 60 * KIB
    assert blocks(path) < 500 * KIB


@pytest.mark.usefixtures("roomy")
def test_only_the_active_segment_of_a_log_has_room_and_a_kill_costs_no_record(fs: Fs, tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=150 * KIB)

    def loaded(*, clean: bool) -> Log:
        return load(fs, str(tmp_path / "t-0"), config, topic="t", partition=0, topic_id=bytes(16), clean=clean)

    log = loaded(clean=True)
    for _ in range(38):
        log.append_as_leader(batch(size=10 * KIB), 0, 1_000)
    *sealed, active = sorted((tmp_path / "t-0").glob("*.log"))
    assert len(sealed) >= 2
    assert all(blocks(path) < 300 * KIB for path in sealed)
    assert blocks(active) >= 1000 * KIB
    # Killed: nothing closes it. What it had set aside is behind the end of its file, and no part of it.
    again = loaded(clean=False)
    assert again.log_end_offset == log.log_end_offset == 38
    assert sum(path.stat().st_size for path in (*sealed, active)) == log.size
    again.close(0)
    assert blocks(active) < 300 * KIB
