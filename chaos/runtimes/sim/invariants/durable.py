"""Finds out which of a log's batches surely survive a power loss. It reads the simulated disk, and does not trust what
the broker believes.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING, Any

from squall.broker.control.kraft.snapshot_store import id_of
from squall.broker.log.checkpoints import RECOVERY_POINTS
from squall.broker.log.segment import LOG, file_name
from squall.chaos.runtimes.sim.disk_names import FileNode, FolderNode
from squall.chaos.runtimes.sim.invariants.batches import read

if TYPE_CHECKING:
    from squall.broker.log.log import Log
    from squall.chaos.runtimes.sim.disk_content import FileContent


def durable_end(log: Log, disk: Any) -> int:
    """Return the exclusive end offset of the batches that surely survive a power loss: their bytes and the name of
    their file are durable.
    """
    # Once for the folder: looking up each file by its path took a twentieth of a simulation.
    here, kept = disk.names.find(log.directory), disk.names.find(log.directory, durable=True)
    if not isinstance(here, FolderNode) or not isinstance(kept, FolderNode):
        return log.segments[0].base_offset
    now, durable = here.entries.get, kept.durable.get
    for segment in log.segments:
        name = file_name(segment.base_offset, LOG)
        found = durable(name)
        # A durable file of this name may be another one, which has been deleted or replaced since.
        if not isinstance(found, FileNode) or found is not now(name):
            return segment.base_offset
        content = found.content
        if content.pending and (sure := sure_bytes(content)) < segment.size:
            at = bisect_right(segment.stops, sure) - 1
            return segment.ends[at] if at >= 0 else _end_within(content, int(sure), segment.base_offset)
    return log.log_end_offset


def _end_within(content: FileContent, size: int, base: int) -> int:
    end = base
    for batch, _ in read(content.cached, 0, size):
        end = batch.end
    return end


def sure_bytes(content: FileContent) -> float:
    """Return how many bytes at the beginning of a file are durable without a gap; infinite if the whole file is.
    Changes on which an fsync failed count as not durable, also after a later successful fsync.
    """
    sure = content._sure() if content._after_failure else ()
    doubtful = (op[0] for at, op in enumerate(content.pending) if at >= len(sure) or not sure[at])
    return min(doubtful, default=inf)


def newest_snapshot_end(disk: Any, directory: str) -> int:
    """Return the end offset of the newest durable snapshot of the metadata log; 0 if there is none."""
    names, end = disk.names, 0
    for name in getattr(names.find(directory), "entries", {}):
        snapshot, path = id_of(name), f"{directory}/{name}"
        if snapshot is None or snapshot.end_offset <= end:
            continue
        found = names.find(path, durable=True)
        if found is not None and found is names.find(path) and sure_bytes(found.content) == inf:
            end = snapshot.end_offset
    return end


def snapshot_ends(disk: Any, directory: str) -> list[int]:
    """Return the end offsets of the metadata log's snapshots, including snapshots that a power loss may take."""
    found = map(id_of, getattr(disk.names.find(directory), "entries", {}))
    return [snapshot.end_offset for snapshot in found if snapshot is not None]


def recovery_points(disk: Any, directory: str) -> dict[tuple[str, int], int]:
    """Return the recovery points in the node's checkpoint file, by topic and partition; empty if the file cannot be
    read.
    """
    return offsets_in(disk, f"{directory}/{RECOVERY_POINTS}")


def offsets_in(disk: Any, path: str) -> dict[tuple[str, int], int]:
    """Return the offsets in the checkpoint file at `path`, by topic and partition."""
    found = disk.names.find(path)
    rows = [] if found is None else [row.split() for row in bytes(found.content.cached).decode().splitlines()[2:]]
    return {(row[0], int(row[1])): int(row[2]) for row in rows if len(row) == 3}
