"""A disk that is full in the middle of a night: how that is seen, and what is kept back so that the night ends well.

A run that fails because of it says nothing of the cluster, and neither would those behind it. So the night ends there,
the run is as if it had not been played, and `--resume` plays it once there is room.
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
"""What programs print of these."""
LOW_BYTES = 64 << 20
"""If a run proves nothing, and less than this is free when it has ended, the disk was too small for it."""
RESERVE = ".reserve"
RESERVE_BYTES = 4 << 20
"""Given back when the disk is full: enough for the results of the runs that have ended, JUnit and the summary."""


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is a disk without room."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup) and any(map(is_full, error.exceptions)):
            return True
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def caused_by_full_disk(why: str, folder: Path) -> bool:
    """Return whether a run below `folder` that proves nothing, for the reason `why`, failed for want of room."""
    return any(word in why for word in (*WORDS, TOO_SMALL)) or free_bytes(folder) < LOW_BYTES


def free_bytes(folder: Path) -> int:
    """On the disk of a folder, or of the nearest one above it that there is."""
    path = folder.absolute()
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.is_dir())).free


def reserve(folder: Path) -> None:
    """Keep room back. OSError where there is none."""
    with (folder / RESERVE).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)


def give_back(folder: Path) -> None:
    """Free what was kept back."""
    with suppress(OSError):
        (folder / RESERVE).unlink(missing_ok=True)


def sentence(folder: Path) -> str:
    """Return the sentence that the user sees."""
    return f"the disk of {folder} is full, {free_bytes(folder) >> 20} MiB are free"
