"""RealFs and RealFile over a temporary directory, where they are more than `test_fs_contract` asks."""

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
