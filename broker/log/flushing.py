"""Making a log's batches durable, off the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.env import File, Fs
from broker.log.segment import Segment


class FlushJob(NamedTuple):
    """What `Log.begin_flush` found to be done. One job of a log runs at a time."""

    fs: Fs
    files: Sequence[File]
    directory: str | None
    """Its names are made durable too; None where they are."""
    end_offset: int
    """All before this offset is durable once `run` has returned."""
    generation: int
    names: int
    inactive: Sequence[Segment]

    def run(self) -> None:
        """Blocking: give it to `env.cpu`. An OSError means that nothing of the directory is known to be durable."""
        for file in self.files:
            file.fsync()
        if self.directory is not None:
            self.fs.fsync_dir(self.directory)
