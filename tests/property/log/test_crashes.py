"""After a crash of the OS process or the machine at any moment, recovery yields the log that was promised.

The steps are random appends, flushes, rolls, truncations, deletions and restarts on two logs under a manager. A crash
comes at a random call of the file system (also while loading), by kill or by power loss. Recovery must yield an
unbroken run of batches that were in the log: all batches that were flushed, and after a kill every batch. Epochs and
producers must be those that a rebuild from these batches gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.broker.log.config import LONG_MAX
from squall.broker.log.log import Log
from squall.broker.log.manager import LogManager
from squall.broker.protocol.records import check_crc
from tests.support.disks.batches import NEWEST, batch, marker
from tests.support.disks.memory_fs import Crashed, MemoryFs
from tests.support.disks.small_log import (
    SMALL,
    Stored,
    assert_producers,
    epochs_of,
    facts,
    producers_of,
    small_chunks,
    stored_batches,
)
from tests.support.effort import examples

PLACES = (("a", 0), ("b", 1))


@dataclass
class Expected:
    """The permitted contents of one log after a crash."""

    held: list[Stored] = field(default_factory=list)
    """The log's batches, including those that retention has deleted."""
    adding: list[Stored] = field(default_factory=list)
    """Batches of the append that is not finished, as far as known."""
    start: int = 0
    """The offset at which the log begins if it is empty."""
    durable: int = 0
    """Batches before this offset must survive."""
    front: int = 0
    """Batches before this offset may have been deleted by retention."""
    kept: int | None = None
    """The offset of a truncation that is not finished."""
    restarts: list[int] = field(default_factory=list)
    """Offsets at which the log may begin again, empty: a full truncation is not finished."""
    lost_from: int | None = None
    """The disk reports that a power loss took the batches from this offset on."""

    @property
    def end(self) -> int:
        return self.held[-1].end if self.held else self.start


class World:
    """One disk, and the successive log managers on it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.fs = MemoryFs()
        self.expected = {place: Expected() for place in PLACES}
        self.epoch = 0
        self.exact = True
        self.manager: LogManager
        self.boot()

    # ------------------------------------------------------------------------------------------------------ life

    def boot(self) -> None:
        """Start until a start is not interrupted by a crash, and check the logs that it finds."""
        while True:
            try:
                manager = LogManager(self.fs, "data", lambda topic: SMALL, rng=Random(1))
                manager.load_all(0)
                for topic, partition in PLACES:
                    manager.get_or_create(topic, partition, bytes([1] * 16))
            except Crashed:
                self.crash()
                continue
            break
        self.manager = manager
        for place in PLACES:
            self.check(place, manager.logs[place])
        self.fs.crash_at = None
        self.exact = True

    def crash(self) -> None:
        """Crash, and perhaps prepare another crash during the next start."""
        kill = self.rng.random() < 0.3
        self.exact = self.exact and kill
        self.fs = self.fs.after_crash(None if kill else self.rng)
        self.note_lost(self.fs.lost)
        self.fs.crash_at = self.rng.randrange(1, 30) if self.rng.random() < 0.3 else None

    def note_lost(self, lost: dict[str, list[int]] | None) -> None:
        """Keep the records that a disk reports as lost: all others must be found."""
        for (topic, partition), expected in self.expected.items():
            if lost is not None:
                low, _ = lost.get(f"{topic}-{partition}", (LONG_MAX, 0))
                expected.lost_from = low if expected.lost_from is None else min(low, expected.lost_from)

    def round(self) -> None:
        """Do random steps until a crash, and start again."""
        self.fs.crash_at = self.fs.calls + self.rng.randrange(1, 150)
        try:
            for _ in range(self.rng.randrange(1, 40)):
                self.work(self.rng.choice(PLACES))
        except Crashed:
            pass
        self.crash()
        self.boot()

    # ---------------------------------------------------------------------------------------------------- checks

    def check(self, place: tuple[str, int], log: Log) -> None:
        expected = self.expected[place]
        found = stored_batches(log)
        for item in found:
            assert check_crc(memoryview(item.data), 0, len(item.data))
        possible = expected.held + expected.adding
        if found:
            first = next(at for at, item in enumerate(possible) if item.base == found[0].base)
            assert possible[first : first + len(found)] == found
            assert found[0].base == possible[0].base or found[0].base <= expected.front
            assert log.log_end_offset == found[-1].end
        else:
            first = len(possible)
            allowed = {expected.start, expected.end, *expected.restarts, *(item.base for item in possible)}
            deleted = log.log_end_offset <= expected.front  # All of it: the log may start inside of a batch.
            assert log.log_end_offset in allowed or deleted or expected.restarts
        if log.log_end_offset not in expected.restarts:
            assert log.log_end_offset >= expected.durable
            whole = expected.end if expected.kept is None else expected.kept
            if self.exact and not expected.restarts:
                assert log.log_end_offset >= whole
            if expected.lost_from is not None and not expected.restarts:
                left = min(whole, expected.lost_from)
                assert log.log_end_offset >= left or left <= expected.front
                assert log.log_end_offset <= max(expected.lost_from, expected.front)
        assert log.log_start_offset <= max(expected.front, log.segments[0].base_offset)
        end = log.log_end_offset
        known = [entry for entry in log.epochs.entries if entry[1] < end]
        assert known == [entry for entry in epochs_of(found, log.log_start_offset) if entry[1] < end]
        history = [item for item in possible if item.end <= log.log_end_offset] if found else []
        if found and found[0].base == 0:
            assert_producers(log.producers, producers_of(history))
        else:
            # Of deleted batches only a snapshot knows, which may be there or lost.
            for producer_id, entry in producers_of(found).entries.items():
                if entry.window:
                    assert facts(log.producers.entries[producer_id])[:3] == facts(entry)[:3]
        assert log.recovery_point <= log.log_end_offset
        self.settle(expected, log, found, history)

    def settle(self, expected: Expected, log: Log, found: list[Stored], history: list[Stored]) -> None:
        """Make the log that was found the expected contents from here on."""
        expected.held = history if found else []
        expected.adding, expected.restarts, expected.kept, expected.lost_from = [], [], None, None
        expected.start = log.log_end_offset if not found else expected.start
        expected.durable = min(expected.durable, log.log_end_offset)
        expected.front = max(log.log_start_offset, log.segments[0].base_offset)

    # ------------------------------------------------------------------------------------------------------ work

    def work(self, place: tuple[str, int]) -> None:
        log, expected = self.manager.logs[place], self.expected[place]
        actions = [self.append, self.append, self.append, self.follow, self.follow, self.flush, self.flush]
        actions += [self.roll, self.truncate, self.checkpoint, self.delete_records]
        if self.rng.random() < 0.05:
            actions = [self.start_anew, self.restart]
        self.rng.choice(actions)(log, expected)
        assert log.log_end_offset == expected.end or place not in self.manager.logs

    def append(self, log: Log, expected: Expected) -> None:
        self.epoch += self.rng.random() < 0.2
        pid = self.rng.choice([-1, 1, 2])
        entry = log.producers.entries.get(pid)
        if pid == 2 and entry is not None and entry.txn_first_offset >= 0 and self.rng.random() < 0.4:
            sent = marker(2, entry.epoch, commit=self.rng.random() < 0.5)
        else:
            sequence = -1 if pid < 0 else entry.next_sequence if entry else 0
            count, size = self.rng.randrange(1, 4), self.rng.choice([5, 50, 150])
            sent = batch(
                count, size=size, timestamp=self.rng.randrange(60), pid=pid, seq=sequence, transactional=pid == 2
            )
        # What will be written: base offset and leader epoch go in before the write.
        stored = bytearray(sent)
        stored[0:8], stored[12:16] = expected.end.to_bytes(8, "big"), self.epoch.to_bytes(4, "big")
        expected.adding = [Stored(bytes(stored))]
        assert log.append_as_leader(sent, self.epoch, 60, client=False).error == 0
        expected.held += expected.adding
        expected.adding = []

    def follow(self, log: Log, expected: Expected) -> None:
        run, end = bytearray(), expected.end
        expected.adding = []
        for _ in range(self.rng.randrange(1, 7)):
            self.epoch += self.rng.random() < 0.2
            count, size = self.rng.randrange(1, 4), self.rng.choice([5, 50, 150])
            item = bytes(batch(count, size=size, timestamp=self.rng.randrange(60), base=end, leader_epoch=self.epoch))
            expected.adding.append(Stored(item))
            run += item
            end += count
        log.append_as_follower(memoryview(run), NEWEST)
        expected.held += expected.adding
        expected.adding = []

    def flush(self, log: Log, expected: Expected) -> None:
        end = expected.end
        log.flush(0)
        expected.durable = end
        if self.rng.random() < 0.5:
            self.manager.checkpoint_recovery_points()

    def checkpoint(self, log: Log, expected: Expected) -> None:
        self.manager.checkpoint_recovery_points()

    def roll(self, log: Log, expected: Expected) -> None:
        log.roll()

    def truncate(self, log: Log, expected: Expected) -> None:
        offset = max(log.log_start_offset, expected.end - self.rng.randrange(12))
        kept = [item for item in expected.held if item.end <= offset]
        expected.kept = kept[-1].end if kept else expected.start
        expected.durable = min(expected.durable, expected.kept)
        log.truncate_to(offset)
        expected.held, expected.kept = kept, None

    def start_anew(self, log: Log, expected: Expected) -> None:
        offset = max(0, expected.end - 10 + self.rng.randrange(20))
        expected.durable = 0
        expected.restarts = [offset]
        log.truncate_fully_and_start_at(offset)
        expected.held, expected.start, expected.front = [], offset, offset
        expected.durable, expected.restarts = offset, []

    def delete_records(self, log: Log, expected: Expected) -> None:
        offset = min(expected.end, log.log_start_offset + self.rng.randrange(15))
        expected.front = max(expected.front, offset)
        log.increment_log_start(offset)
        log.delete_old_segments(0, expected.end)

    def restart(self, log: Log, expected: Expected) -> None:
        self.manager.close(0)
        for place in PLACES:
            self.expected[place].durable = self.expected[place].end
        self.manager.mark_clean_shutdown(5)
        self.fs = self.fs.after_crash()
        self.boot()


def run(seed: int, rounds: int) -> None:
    with small_chunks():
        world = World(seed)
        for _ in range(rounds):
            world.round()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_recovery_after_a_crash_anywhere_yields_what_was_promised(seed: int) -> None:
    run(seed, rounds=4)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_crashes_at_the_same_calls(seed: int) -> None:
    with small_chunks():
        first, second = World(seed), World(seed)
        for world in (first, second):
            for _ in range(3):
                world.round()
    assert {path: inode and inode.cached for path, inode in first.fs.names.items()} == {
        path: inode and inode.cached for path, inode in second.fs.names.items()
    }
