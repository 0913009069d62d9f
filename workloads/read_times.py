"""Remembers the timestamps of a reader's latest records, to check its lookups of offsets by timestamp."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

KEPT = 10_000
"""Limits how many records are remembered for each partition; older ones are dropped. Readers look up only timestamps of
the last seconds, which these records cover.
"""


class RecordTimestamps:
    """Remembers offsets and timestamps of one reader's records, by the partition's number in the history. For each
    partition, it keeps only records that the leader of the latest epoch returned: this leader never truncates its log,
    but the next leader may lack a record that this one returned.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._got: dict[int, deque[tuple[int, int]]] = {}

    def got(self, part: int, leader_epoch: int, records: Iterable[tuple[int, int]]) -> None:
        """Remember records of the partition `part`, which the leader of this epoch returned, as (offset, timestamp in
        ms) in log order. Records of another epoch are forgotten.
        """
        if self._epochs.get(part) != leader_epoch:
            self._epochs[part], self._got[part] = leader_epoch, deque(maxlen=KEPT)
        self._got[part].extend(records)

    def forget(self, part: int) -> None:
        """Forget a partition's records, because the reader seeks to another offset."""
        self._epochs.pop(part, None)

    def since(self, part: int, leader_epoch: int, timestamp_ms: int) -> int:
        """Return the lowest offset among the remembered records of this leader epoch that are not earlier than the
        timestamp; -1 if there is none.
        """
        if leader_epoch < 0 or self._epochs.get(part) != leader_epoch:
            return -1
        return next((offset for offset, sent_ms in self._got[part] if sent_ms >= timestamp_ms), -1)
