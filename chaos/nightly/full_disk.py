"""Detects a disk that is full in the middle of a night, and reserves space so that the night can still end well.

A run that fails for want of space proves nothing about the cluster, and neither would the runs after it. So the night
ends there, the run counts as not played, and `--resume` plays it once there is space.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path

from squall.chaos.runs.directory import TOO_SMALL

FULL = (errno.ENOSPC, errno.EDQUOT)
WORDS = tuple(map(os.strerror, FULL))
"""Lists the error messages that programs print if the disk is full."""
LOW_BYTES = 64 << 20
"""Is a limit of free disk space. If less is free after a run without a verdict, the run is assumed to have failed
because the disk was full.
"""
RESERVE = ".reserve"
RESERVE_BYTES = 4 << 20
"""Is the size of the reserved file, which is removed when the disk is full, so that there is space for the results of
the runs that have ended, JUnit and the summary.
"""


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or an error that caused it, means that the disk is full."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup) and any(map(is_full, error.exceptions)):
            return True
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def caused_by_full_disk(why: str, folder: Path) -> bool:
    """Return whether a run has no verdict because the disk is full. why: the reason that the run gives; folder: any
    folder on its disk.
    """
    return any(word in why for word in (*WORDS, TOO_SMALL)) or free_bytes(folder) < LOW_BYTES


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, or of the nearest parent of it that exists."""
    path = folder.absolute()
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.is_dir())).free


def reserve(folder: Path) -> None:
    """Reserve space with a file. Raise OSError if there is no space."""
    with (folder / RESERVE).open("wb") as file:
        # A truncation would make a sparse file, which reserves nothing.
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def give_back(folder: Path) -> None:
    """Remove the file that reserves space."""
    with suppress(OSError):
        (folder / RESERVE).unlink(missing_ok=True)


def sentence(folder: Path) -> str:
    """Return the sentence for users that the disk of this folder is full, with its free space."""
    return f"the disk of {folder} is full, {free_bytes(folder) >> 20} MiB are free"
