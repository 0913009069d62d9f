"""Checks what every `Fs` does: the operating system's, the tests' one in memory, and the simulated disk's."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from squall.broker.env import Fs
from squall.broker.real_files import RealFs
from squall.chaos.runtimes.sim.disk import SimDisk
from tests.support.disks.memory_fs import MemoryFs


@pytest.fixture(params=["real", "memory", "sim"])
def fs(request: pytest.FixtureRequest) -> Fs:
    if request.param == "real":
        return RealFs()
    return MemoryFs() if request.param == "memory" else SimDisk(Random(1)).mount(lambda op, path: None)


@pytest.fixture
def root(fs: Fs, tmp_path: Path) -> str:
    """A directory that is there."""
    fs.mkdirs(str(tmp_path))
    return str(tmp_path)


def test_append_returns_where_the_data_begins(fs: Fs, root: str) -> None:
    file = fs.open(f"{root}/f", create=True)
    assert file.append(b"abc") == 0
    assert file.append(memoryview(b"defg")) == 3
    assert file.append(bytearray()) == 7
    assert file.size() == 7
    assert file.pread(100, 2) == b"cdefg"
    assert file.pread(2, 1) == b"bc"
    assert file.pread(5, 7) == file.pread(5, 100) == b""


def test_append_goes_to_the_end_after_truncate_and_pwrite(fs: Fs, root: str) -> None:
    file = fs.open(f"{root}/f", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    assert file.append(b"x") == 4
    file.pwrite(b"yz", 8)
    assert file.append(b"!") == 10
    assert file.pread(20, 0) == b"0123x\0\0\0yz!"
    file.pwrite(b"AB", 3)
    assert file.pread(20, 0) == b"012AB\0\0\0yz!"
    file.truncate(13)
    assert file.pread(20, 9) == b"z!\0\0"
    file.fsync()


def test_a_reopened_file_appends_at_its_end(fs: Fs, root: str) -> None:
    file = fs.open(f"{root}/f", create=True)
    file.append(b"abc")
    file.close()
    file.close()
    assert fs.open(f"{root}/f").append(b"d") == 3
    assert fs.open(f"{root}/f", create=True).size() == 4
    assert fs.open(f"{root}/f", truncate=True).size() == 0


def test_a_closed_file_cannot_be_used(fs: Fs, root: str) -> None:
    file = fs.open(f"{root}/f", create=True)
    file.close()
    for call in (file.size, lambda: file.append(b"x"), lambda: file.pread(1, 0)):
        with pytest.raises(OSError, match=r"closed|Bad file descriptor"):
            call()


def test_what_is_not_there_is_not_found(fs: Fs, root: str) -> None:
    missing = f"{root}/missing"
    assert not fs.exists(missing)
    for call in (fs.open, fs.list, fs.remove, fs.remove_dir, fs.fsync_dir, lambda path: fs.rename(path, f"{root}/f")):
        with pytest.raises(FileNotFoundError):
            call(missing)
    with pytest.raises(FileNotFoundError):
        fs.open(f"{missing}/f", create=True)


def test_a_directory_is_no_file(fs: Fs, root: str) -> None:
    fs.mkdirs(f"{root}/d")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{root}/d", create=True)


def test_names_are_listed_sorted_and_can_be_renamed_and_removed(fs: Fs, root: str) -> None:
    folder = f"{root}/a/b"
    fs.mkdirs(folder)
    fs.mkdirs(folder)
    for name in ("z", "m", "a"):
        fs.open(f"{folder}/{name}", create=True).append(name.encode())
    fs.rename(f"{folder}/z", f"{folder}/a")
    fs.fsync_dir(folder)
    assert fs.list(folder) == ["a", "m"]
    assert fs.open(f"{folder}/a").pread(9, 0) == b"z"
    fs.remove(f"{folder}/m")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{folder}/m")
    assert fs.exists(folder)
    fs.mkdirs(f"{folder}/deep/er")
    fs.remove_dir(f"{root}/a")
    assert not fs.exists(folder)
    with pytest.raises(FileNotFoundError):
        fs.remove_dir(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.list(folder)


def test_a_directory_is_renamed_with_all_that_is_in_it(fs: Fs, root: str) -> None:
    fs.mkdirs(f"{root}/d/e")
    file = fs.open(f"{root}/d/e/f", create=True)
    fs.rename(f"{root}/d", f"{root}/g")
    file.append(b"still the same file")
    assert not fs.exists(f"{root}/d/e/f")
    assert fs.open(f"{root}/g/e/f").pread(5, 0) == b"still"


def test_an_open_file_outlives_its_name(fs: Fs, root: str) -> None:
    removed, replaced = fs.open(f"{root}/a", create=True), fs.open(f"{root}/b", create=True)
    removed.append(b"removed")
    replaced.append(b"replaced")
    fs.open(f"{root}/c", create=True).append(b"new")
    fs.remove(f"{root}/a")
    fs.rename(f"{root}/c", f"{root}/b")
    fs.open(f"{root}/a", create=True).append(b"another")
    assert removed.pread(99, 0) == b"removed"
    assert removed.append(b"!") == 7
    assert replaced.pread(99, 0) == b"replaced"
    assert fs.open(f"{root}/b").pread(99, 0) == b"new"
    assert fs.open(f"{root}/a").pread(99, 0) == b"another"


def test_the_space_of_a_volume_is_told(fs: Fs, root: str) -> None:
    total, usable = fs.space(root)
    assert 0 < usable <= total
