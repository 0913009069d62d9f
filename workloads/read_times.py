"""The timestamps of what a reader has got last: what it knows itself when it looks up offsets by time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

KEPT = 10_000
"""Records of each partition: those of the last seconds, which is what readers look up."""


class ReadTimes:
    """Remembers records of one reader, by dense id of the partition. Only those of one leader epoch are comparable: a
    leader cuts nothing from its log, and the next one may lack what this one returned.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._got: dict[int, deque[tuple[int, int]]] = {}

    def got(self, part: int, leader_epoch: int, records: Iterable[tuple[int, int]]) -> None:
        """The leader of that epoch returned these records: (offset, timestamp in ms), in the order of the log."""
        if self._epochs.get(part) != leader_epoch:
            self._epochs[part], self._got[part] = leader_epoch, deque(maxlen=KEPT)
        self._got[part].extend(records)

    def forget(self, part: int) -> None:
        """The reader goes on at another offset."""
        self._epochs.pop(part, None)

    def since(self, part: int, leader_epoch: int, timestamp_ms: int) -> int:
        """The lowest offset among the records from that leader epoch that are not earlier; -1 if there is none, or if
        the epoch is not known.
        """
        if leader_epoch < 0 or self._epochs.get(part) != leader_epoch:
            return -1
        return next((offset for offset, sent_ms in self._got[part] if sent_ms >= timestamp_ms), -1)
