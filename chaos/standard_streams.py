"""Lets a program outlive its output: `squall run | head -1`, or on a full disk `squall run >log`, continues, and ends
with the exit code of its verdict.

`python -m squall.chaos.standard_streams MODULE WORDS` runs another module so. The raw streams are replaced, because
everything that prints (click, rich, the interpreter at its end) has its own answer to a broken pipe and a full disk:
the exit code 1, which is an anomaly's, or 120, which is in no table.
"""

from __future__ import annotations

import errno
import io
import os
import runpy
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_NO_MORE = "standard output takes nothing more, so what would be printed is discarded from here on"


class _BrokenPipeSafeStream(io.FileIO):
    """A standard stream that discards what is written once its reader has gone or it takes nothing more."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as `io.FileIO.write` does. What cannot be written is reported as written, and a line on standard error
        says so if somebody may still read the rest.
        """
        try:
            return super().write(data)
        except OSError as error:
            descriptor = self.fileno()
            unread = self._reader_has_gone(error)
            _discard(descriptor)
            if not unread and descriptor == 1:
                with suppress(OSError):
                    os.write(2, f"squall: {_NO_MORE}: {error.strerror}\n".encode())
            return memoryview(data).nbytes

    def _reader_has_gone(self, error: OSError) -> bool:
        """Tell a pipe without a reader, and a terminal that was closed, from a disk that fails."""
        if error.errno == errno.EIO:
            return stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
        return error.errno == errno.EPIPE


def _discard(descriptor: int) -> None:
    """Lead a descriptor to /dev/null, also for processes that start later."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    if nowhere != descriptor:
        os.close(nowhere)


def outlive_readers() -> None:
    """Replace this process's stdout and stderr by streams that discard what can no longer be read or stored.

    A stream that was closed before the process started discards everything: else the next file that is opened would
    have its descriptor, and the output of other programs.
    """
    sys.stdout = _outliving(sys.stdout, 1)
    sys.stderr = _outliving(sys.stderr, 2)


def _outliving(stream: Any, descriptor: int) -> TextIO:
    if stream is None:
        _discard(descriptor)
        return open(descriptor, "w", closefd=False)
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_BrokenPipeSafeStream(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


if __name__ == "__main__":
    outlive_readers()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
