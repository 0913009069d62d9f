"""Defines a slice of complete batches in a file, which the kernel can send without the broker reading it (mechanism L2
in docs/mechanisms.md).
"""

# Slices up to 256 KB are read, and leave in one call with the bytes around them; `sendfile` would take three calls.
# This saves a third of the wake-ups with batches of 1 KB and a fifth of the broker's CPU with batches of 100 KB, and
# nothing with megabytes. While much is unsent, slices stay in their files, so a client that does not read takes no
# memory.
#
# A truncation resets the connections that were sent bytes of that log: `sendfile` queues pages of the page cache, so
# rewriting them changes bytes in flight. Rejected: copying.

from __future__ import annotations

from typing import NamedTuple

from squall.broker.env import File


class FileSlice(NamedTuple):
    """Describes `length` bytes of `file` from byte `position`. It keeps the file open if its segment is removed."""

    file: File
    position: int
    length: int

    def read(self) -> bytes:
        """Read the bytes, for callers that cannot send a file. If the file was truncated meanwhile, fewer bytes are
        returned.
        """
        return self.file.pread(self.length, self.position)
