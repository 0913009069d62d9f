"""Lets a program continue after its output cannot be written: after `squall run | head -1`, or `squall run >log` on a
full disk. The program still ends with the exit code of its verdict.

`python -m squall.chaos.standard_streams MODULE ARGUMENTS` runs another module in this way, with these arguments. The
raw streams are replaced, because everything that prints (click, rich, the interpreter at its end) has its own reaction
to a broken pipe or a full disk: the exit code 1, which means an anomaly, or 120, which no page documents.
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
    """Is a standard stream that discards data once its reader has gone or its disk is full."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as `io.FileIO.write` does, but report data that cannot be written as written. If the disk is full,
        print a line about that on standard error.
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
        """Return True if the error means a pipe without a reader or a closed terminal, and False if it means a failing
        disk.
        """
        if error.errno == errno.EIO:
            return stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
        return error.errno == errno.EPIPE


def _discard(descriptor: int) -> None:
    """Redirect a file descriptor to /dev/null, also for child processes that start later."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    if nowhere != descriptor:
        os.close(nowhere)


def outlive_readers() -> None:
    """Replace this process's stdout and stderr by streams that discard data that cannot be written any more.

    A stream that was closed before the process started discards everything. Otherwise the next file that is opened
    would get its descriptor, and with that the output of other programs.
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
