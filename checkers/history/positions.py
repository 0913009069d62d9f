"""Tracks the positions of readers: which of their reads follow each other, and how far each final read came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from squall.checkers.history.tables import ObservedPartition, PartitionFinalRead


class ReaderPositionTracker:
    """Counts, for each reader and partition, how often the reader's position became unknown. Each read gets the current
    count. Reads with the same count follow each other, and only these are compared.

    A position becomes unknown when anything may have moved it: a partition missing from an assignment, a seek, a
    rebalance, a crash, a failed poll, or records removed below the log start.
    """

    def __init__(self) -> None:
        self._seg: dict[tuple[int, int], int] = {}
        self._position: dict[tuple[int, int], int] = {}
        self._last_read: dict[tuple[int, int], tuple[int, int]] = {}
        self._assigned: dict[int, Iterable[int]] = {}

    def seg(self, proc: int, part: int) -> int:
        """Return how often this process's position in this partition has become unknown so far. Its next reads carry
        this number.
        """
        return self._seg.get((proc, part), 0)

    def assigned(self, proc: int, at: Mapping[int, int]) -> None:
        """Record that a poll begins. `at` maps each partition that is assigned to the process to its position."""
        before = self._assigned.get(proc, ())
        if before != at.keys():
            for part in before:
                # It may come back at any position.
                if part not in at:
                    self.forget_one(proc, part)
            self._assigned[proc] = at.keys()

    def last_read(self, proc: int, part: int) -> tuple[int, int]:
        """Return (offset, operation) of the last record that this reader got since its position became unknown; (-1,
        -1) if there is none.
        """
        return self._last_read.get((proc, part), (-1, -1))

    def moved(self, proc: int, part: int, position: int, last_read: tuple[int, int] | None) -> None:
        """Record that a response left the reader at `position`. `last_read` is (offset, operation) of its last record;
        None if it had none.
        """
        self._position[proc, part] = position
        if last_read is not None:
            self._last_read[proc, part] = last_read

    def log_starts_at(self, proc: int, part: int, log_start: int) -> None:
        """Record that the log now begins at `log_start`. If the reader's position was lower, the records in between
        were removed: the reader did not skip them, and its next read does not follow its last one.
        """
        if log_start > self._position.get((proc, part), log_start):
            self.forget_one(proc, part)

    def forget_one(self, proc: int, part: int) -> None:
        """Record that the position of this reader may have moved in a way that is not recorded."""
        self._seg[proc, part] = self.seg(proc, part) + 1
        self._position.pop((proc, part), None)
        self._last_read.pop((proc, part), None)

    def forget(self, proc: int) -> None:
        """Record that all positions of this process may have moved."""
        for part in [part for reader, part in self._position if reader == proc]:
            self.forget_one(proc, part)


Bounds = tuple[int, int]
"""Is (high watermark, last stable offset), -1 if not reported."""


class LastSeenWatermarks:
    """Holds the high watermark and last stable offset that each client last saw, by partition and leader epoch.

    A new leader may know lower offsets than the old leader, so a response of an unknown epoch is compared with nothing.
    Within an epoch, a response is compared only with responses that came before its request was sent:

    - A client has at most one Fetch request for a partition under way, and at most one ListOffsets request. So each
      response is compared with all earlier responses of its own kind.
    - A ListOffsets request is sent after all Fetch responses that came earlier, so its response is compared with these.
    - A Fetch request is sent after the previous Fetch response came. So its response is compared with the ListOffsets
      responses that came before that previous one, and not with later ones.

    A ListOffsets response is also compared with earlier epochs: a new leader returns no latest offset, of either
    isolation level, before it is at least what its predecessors returned (KIP-207).
    """

    def __init__(self) -> None:
        self._fetched: dict[tuple[int, int, int], Bounds] = {}
        self._listed: dict[tuple[int, int, int], Bounds] = {}
        self._settled: dict[tuple[int, int, int], Bounds] = {}
        """Maps (process, partition, leader epoch) to the bounds that ListOffsets responses had reported before the last
        Fetch response came. The next Fetch response is compared with them.
        """
        self._highest: dict[tuple[int, int], dict[int, Bounds]] = {}
        """Maps (process, partition) to the highest bounds of each leader epoch."""

    def fetched(self, client: tuple[int, int, int], hw: int, lso: int) -> Bounds:
        """Record the bounds in a Fetch response. Return the lowest bounds that a correct response may have: those that
        the client had seen before. `client` is process, partition and leader epoch.
        """
        if client[2] < 0:
            return UNKNOWN
        before, settled = self._fetched.get(client, UNKNOWN), self._settled.get(client, UNKNOWN)
        self._fetched[client] = _newer(before, hw, lso)
        listed = self._listed.get(client, UNKNOWN)
        self._settled[client] = listed[0] if hw >= 0 else settled[0], listed[1] if lso >= 0 else settled[1]
        self._note(client, hw, lso)
        return max(before[0], settled[0]), max(before[1], settled[1])

    def listed(self, client: tuple[int, int, int], hw: int, lso: int) -> Bounds:
        """Record the bounds in a ListOffsets response. Return the lowest bounds that a correct response may have: those
        that the client had seen before, in this leader epoch or an earlier one. `client` is process, partition and
        leader epoch.
        """
        if client[2] < 0:
            return UNKNOWN
        fetched, before = self._fetched.get(client, UNKNOWN), self._listed.get(client, UNKNOWN)
        self._listed[client] = _newer(before, hw, lso)
        earlier = [reported for epoch, reported in self._highest.get(client[:2], {}).items() if epoch < client[2]]
        self._note(client, hw, lso)
        reported = fetched, before, *earlier
        return max(each[0] for each in reported), max(each[1] for each in reported)

    def _note(self, client: tuple[int, int, int], hw: int, lso: int) -> None:
        by_epoch = self._highest.setdefault(client[:2], {})
        known = by_epoch.get(client[2], UNKNOWN)
        by_epoch[client[2]] = max(known[0], hw), max(known[1], lso)


UNKNOWN: Bounds = (-1, -1)


def _newer(before: Bounds, hw: int, lso: int) -> Bounds:
    return (hw if hw >= 0 else before[0], lso if lso >= 0 else before[1])


@dataclass(slots=True)
class _FinalReadProgress:
    part: int
    proc: int
    round: int
    iso: int
    t0: int
    t1: int
    start: int
    reached: int
    log_start: int = -1
    end: int = -1
    whole: bool = True


def passages(
    stood: int, pairs: Sequence[Sequence[int]], partition: ObservedPartition, position: int, log_start: int
) -> list[tuple[int, int]]:
    """Return (from, to) of each stretch of offsets over which a poll moved its reader without returning a record. With
    records there are at most two: before the first record and behind the last one. Without records there is always one,
    the whole move; its `from` is -1 if the reader passed over no record that should still exist.

    `stood` is the reader's position before the poll. It is -1 if the stretch before the first record is to be left out,
    because an earlier record of the reader (`RecordRow.before`) already shows it. `pairs` holds (offset, value) of each
    record. `position` is the reader's position after the poll, and `log_start` the log start offset in the response.
    """
    if not pairs:
        return [(_moved_from(stood, partition, position, log_start), position)]
    offsets = [pair[0] for pair in pairs]
    ends = (stood, min(offsets)), (max(offsets) + 1, position)
    moved = [(_moved_from(before, partition, after, log_start), after) for before, after in ends]
    return [each for each in moved if each[0] >= 0]


def _moved_from(stood: int, partition: ObservedPartition, position: int, log_start: int) -> int:
    """Return the first offset that a reader skipped when it moved from `stood` to `position`; -1 if it skipped none.
    Offsets whose records may have been removed by then do not count as skipped.
    """
    stood = max(stood, partition.removed_before(log_start)) if stood >= 0 else stood
    return stood if 0 <= stood < position else -1


class FinalReadTracker:
    """Follows the readers of final reads, and derives which part of each partition may be judged."""

    def __init__(self) -> None:
        self._readings: dict[tuple[int, int], _FinalReadProgress] = {}

    def began(self, proc: int, iso: int, round_: int, t0: int, at: Mapping[int, int]) -> None:
        """Record that reader `proc` begins another poll of its final read at `t0`. `at` maps each partition to the
        position from which it reads. `iso` is the reader's isolation level, and `round_` the round of final reads.
        """
        for part, position in at.items():
            reading = self._readings.get((proc, part))
            if reading is None:
                self._readings[proc, part] = _FinalReadProgress(part, proc, round_, iso, t0, t0, position, position)
            elif position > reading.reached:
                # Records may exist between the two positions, and this reader will not see them.
                reading.whole = False

    def reached(self, proc: int, part: int, position: int, log_start: int, t1: int) -> None:
        """Record a response that left the final reader at `position`, with the log start offset."""
        reading = self._readings.get((proc, part))
        if reading is not None:
            reading.reached, reading.t1 = max(reading.reached, position), t1
            # The first response's: retention may move the log start while the read continues.
            if reading.log_start < 0:
                reading.log_start = log_start

    def ended(self, proc: int, ends: Mapping[int, int]) -> None:
        """Record that the final reader read each of these partitions up to its end offset, which it had requested when
        it began.
        """
        for part, end in ends.items():
            reading = self._readings.get((proc, part))
            if reading is not None:
                reading.end = end

    def finish(self, partitions: Mapping[int, ObservedPartition]) -> list[PartitionFinalRead]:
        """Return all final reads, by partition and process, and record in `partitions` which offsets may be judged.

        If transactions wrote to a partition, read_committed readers leave out records of its log, so only
        read_uncommitted readers count there.
        """
        finals = [
            PartitionFinalRead(
                each.part, each.proc, each.round, each.iso, each.t0, each.t1, each.start, each.log_start, each.reached,
                each.end, int(each.whole),
            )
            for each in self._readings.values()
        ]  # fmt: skip
        finals.sort()
        for final in finals:
            partition = partitions[final.part]
            if final.complete and final.iso == 1:
                partition.last_committed_round = max(partition.last_committed_round, final.round)
            elif final.complete:
                partition.last_round = max(partition.last_round, final.round)
            if final.iso == 1 and final.complete:
                partition.committed_t0 = max(partition.committed_t0, final.t0)
            if final.iso == 1 and partition.transactional:
                continue
            # The furthest read counts; of two that came as far, the one that began lower.
            if final.whole and (final.reached, -final.start) > (partition.cover_to, -partition.cover_from):
                partition.cover_from, partition.cover_to = final.start, final.reached
            if final.complete:
                partition.cover_t0 = max(partition.cover_t0, final.t0)
        return finals
