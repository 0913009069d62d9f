"""Replaces a file without making it durable, which several bugs have in common."""

from __future__ import annotations

from squall.broker.env import Fs


def replace_unsynced(fs: Fs, path: str, data: bytes) -> None:
    """Replace a file as `checkpoints.replace_file` does, but without any fsync: after a power loss the file may hold
    anything.
    """
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True, truncate=True)
    try:
        file.append(data)
    finally:
        file.close()
    fs.rename(temporary, path)
