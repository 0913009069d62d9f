"""Finds the records that a power loss removed from each log, by comparing the files before and after the power loss.

The broker under test is not asked: a broker whose recovery drops synced records must not explain the loss itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from squall.broker.env import Buffer
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader, batches

_NOWHERE = (1 << 63) - 1
"""Is an offset above all others. It serves as the end offset of a log before the first of its segments is processed, so
the first segment never seems to follow a gap.
"""


class LostOffsetRanges:
    """Collects, for each partition, the range of lost offsets: from the first lost batch to the end of the log before
    the power loss.

    Batches behind the first lost one count as lost, too: recovery cuts a log at its first damage.
    """

    def __init__(self) -> None:
        self._lost: dict[str, tuple[int, int]] = {}
        self._returned: dict[str, int] = {}
        """Maps a partition to the end offset of the segments that `add_remaining` has processed so far. It holds only
        partitions in which a deleted segment has reappeared, because its removal was not synced.
        """

    def add_changed(self, path: str, before: Buffer, after: Buffer) -> None:
        """Compare one file before and after the power loss. Call it for each file that had unsynced changes, that is
        gone (empty `after`), or whose removal was undone (empty `before`).

        Files that are no segments are ignored.
        """
        name, old, new = _partition(path), memoryview(before), memoryview(after)
        if name and not before:
            self._returned[name] = _NOWHERE
        found = list(_batches(old)) if name else []
        first = next((each.base_offset for each, start, stop in found if old[start:stop] != new[start:stop]), None)
        if first is not None:
            self._add(name, first, found[-1][0].next_offset)

    @property
    def partitions(self) -> list[str]:
        """Returns the partitions in which whole segments may count as lost although their files remain: partitions with
        a lost batch, and partitions in which a deleted segment has reappeared. Their segments must be passed to
        `add_remaining`.
        """
        return sorted({**self._lost, **self._returned})

    def add_remaining(self, path: str, content: Buffer) -> None:
        """Count a segment that exists after the power loss as lost, if it is behind a lost batch. If a deleted segment
        has reappeared in the partition, a segment behind a gap counts as lost, too. There is a gap if a segment begins
        at a higher offset than the end offset of the segment before it.

        Call it after all calls of `add_changed`, for a partition's segments in the order of their offsets.
        """
        name = _partition(path)
        if name not in self._lost and name not in self._returned:
            return
        base = int(path.rpartition("/")[2].partition(".")[0])
        end = max([base, *(each.next_offset for each, _, _ in _batches(memoryview(content)))])
        if base > self._returned.get(name, _NOWHERE):
            self._add(name, base, end)
        elif name in self._lost:
            self._add(name, self._lost[name][0], end)
        if name in self._returned:
            self._returned[name] = end

    def evidence(self) -> dict[str, list[int]]:
        """Return the range of lost offsets of each partition that lost records, as [first, exclusive end]."""
        return {name: [low, high] for name, (low, high) in sorted(self._lost.items()) if low < high}

    def _add(self, name: str, first: int, end: int) -> None:
        low, high = self._lost.get(name, (first, end))
        self._lost[name] = min(low, first), max(high, end)


def _partition(path: str) -> str:
    """Return the partition of a segment file, by the name of the file's directory; empty if the file is no segment."""
    folder, _, name = path.rpartition("/")
    directory = folder.rpartition("/")[2]
    stem, dot, kind = name.partition(".")
    is_segment = stem.isdigit() and dot + kind == ".log" and directory.rpartition("-")[2].isdigit()
    return directory if is_segment else ""


def _batches(view: memoryview) -> Iterator[tuple[BatchHeader, int, int]]:
    with suppress(MalformedFrame):  # of a file that was damaged before
        yield from batches(view)
