"""Lets a program outlive the readers of its output: `squall run | head -1` goes on, and its exit code is the verdict's.

`python -m chaos.standard_streams MODULE WORDS` runs another module so. The raw streams are replaced, because everything
that prints (click, rich, the interpreter at its end) has its own answer to a broken pipe, mostly the exit code 1, which
is an anomaly's.
"""

from __future__ import annotations

import errno
import io
import os
import runpy
import stat
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _OutlivingStream(io.FileIO):
    """A standard stream that discards what is written once its reader has gone."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write as `io.FileIO.write` does, and report everything as written if nobody reads it any more."""
        try:
            return super().write(data)
        except OSError as error:
            if not self._reader_has_gone(error):
                raise
            _discard(self.fileno())
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
    """Replace this process's stdout and stderr by streams that discard what nobody can read any more.

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
        io.BufferedWriter(_OutlivingStream(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


if __name__ == "__main__":
    outlive_readers()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
