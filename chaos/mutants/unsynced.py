"""Replacing a file without making it durable: what several bugs have in common."""

from __future__ import annotations

from squall.broker.env import Fs


def replace_unsynced(fs: Fs, path: str, data: bytes) -> None:
    """As `checkpoints.replace_file` does it, but without any fsync: after a power loss anything may be there."""
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True, truncate=True)
    try:
        file.append(data)
    finally:
        file.close()
    fs.rename(temporary, path)
