"""A run of whole batches in a file, to be sent without being read (L2)."""

from __future__ import annotations

from typing import NamedTuple

from squall.broker.env import File


class FileSlice(NamedTuple):
    """`length` bytes of `file` from byte `position`. Keeps the file open when its segment is removed meanwhile."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        """The bytes, for those that cannot send a file. A file that was truncated meanwhile gives fewer."""
        return self.file.pread(self.length, self.position)
