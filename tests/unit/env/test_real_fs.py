"""RealFs and RealFile over a temporary directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.env import Fs
from broker.real_env import RealFile, RealFs


@pytest.fixture
def fs() -> Fs:
    return RealFs()


def test_append_returns_where_the_data_begins(fs: Fs, tmp_path: Path) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    assert file.append(b"abc") == 0
    assert file.append(memoryview(b"defg")) == 3
    assert file.size() == 7
    assert file.pread(100, 2) == b"cdefg"


def test_append_goes_to_the_end_after_truncate_and_pwrite(fs: Fs, tmp_path: Path) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"0123456789")
    file.truncate(4)
    assert file.append(b"x") == 4
    file.pwrite(b"yz", 8)
    assert file.append(b"!") == 10
    assert file.pread(20, 0) == b"0123x\0\0\0yz!"


def test_a_reopened_file_appends_at_its_end(fs: Fs, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = fs.open(path, create=True)
    file.append(b"abc")
    file.close()
    file.close()
    assert fs.open(path).append(b"d") == 3
    assert fs.open(path, truncate=True).size() == 0


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


def test_opening_a_missing_file_without_create_is_an_error(fs: Fs, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open(str(tmp_path / "missing"))


def test_names_are_listed_sorted_and_can_be_renamed_and_removed(fs: Fs, tmp_path: Path) -> None:
    root = str(tmp_path / "a" / "b")
    fs.mkdirs(root)
    fs.mkdirs(root)
    for name in ("z", "m", "a"):
        fs.open(f"{root}/{name}", create=True).close()
    fs.rename(f"{root}/z", f"{root}/a")
    fs.fsync_dir(root)
    assert fs.list(root) == ["a", "m"]
    fs.remove(f"{root}/m")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{root}/m")
    assert fs.exists(root)
    fs.mkdirs(f"{root}/deep/er")
    fs.remove_dir(str(tmp_path / "a"))
    assert not fs.exists(root)
    with pytest.raises(FileNotFoundError):
        fs.remove_dir(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError):
        fs.list(root)


def test_dropping_the_last_reference_closes_the_file(fs: Fs, tmp_path: Path) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    assert isinstance(file, RealFile)
    fd = file.fileno()
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
