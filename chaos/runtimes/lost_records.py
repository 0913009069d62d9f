"""The records that a power loss took out of each log, found in the files as they were before it and are after it.

The broker under test is not asked: a broker whose recovery drops what was synced must not explain the loss itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from squall.broker.env import Buffer
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader, batches

_NOWHERE = (1 << 63) - 1
"""Behind all offsets."""


class LostOffsetRanges:
    """Collects, for each partition, the offsets from the first lost batch to the end that its log had.

    Batches behind the first lost one count as lost, too: recovery cuts a log at its first damage.
    """

    def __init__(self) -> None:
        self._lost: dict[str, tuple[int, int]] = {}
        self._returned: dict[str, int] = {}
        """Log to which a removed segment returned -> where the segments that were left so far end."""

    def changed(self, path: str, before: Buffer, after: Buffer) -> None:
        """Compare a file that had unsynced changes, is gone (empty `after`) or has returned (empty `before`).

        What is no segment is ignored.
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
        """The logs whose segments `left` needs."""
        return sorted({**self._lost, **self._returned})

    def left(self, path: str, content: Buffer) -> None:
        """Look at a segment that is left: after every `changed`, and in the order of the segments' offsets.

        It may follow a lost one. It is lost itself if it follows one that returned, and those between them did not.
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
        """Return the first offset and the one behind the last, for each partition that lost records."""
        return {name: [low, high] for name, (low, high) in sorted(self._lost.items()) if low < high}

    def _add(self, name: str, first: int, end: int) -> None:
        low, high = self._lost.get(name, (first, end))
        self._lost[name] = min(low, first), max(high, end)


def _partition(path: str) -> str:
    """The partition whose segment a file is, by the name of its directory; empty if it is none."""
    folder, _, name = path.rpartition("/")
    directory = folder.rpartition("/")[2]
    stem, dot, kind = name.partition(".")
    is_segment = stem.isdigit() and dot + kind == ".log" and directory.rpartition("-")[2].isdigit()
    return directory if is_segment else ""


def _batches(view: memoryview) -> Iterator[tuple[BatchHeader, int, int]]:
    with suppress(MalformedFrame):  # of a file that was damaged before
        yield from batches(view)
