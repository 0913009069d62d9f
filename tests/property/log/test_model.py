"""A log behaves as a list of batches under any sequence of operations."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from squall.broker.log.config import LogConfig
from squall.broker.log.lookups import SearchBudget, SearchPause, TimestampAndOffset, TimestampLookup
from squall.broker.log.producers import ProducerStates
from squall.broker.protocol.records import decode_batch
from tests.support.disks.batches import NEWEST, batch, marker
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import (
    Stored,
    assert_producers,
    epochs_of,
    open_log,
    producers_of,
    small_chunks,
    stable_offset,
    stored_batches,
)
from tests.support.effort import examples

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=150, retention_ms=-1)
counts = st.integers(1, 4)
sizes = st.sampled_from([0, 10, 60, 150])
times = st.integers(0, 60)
places = st.floats(0, 1)
producers = st.sampled_from([-1, -1, 1, 2])


def in_short_turns(lookup: TimestampLookup) -> TimestampAndOffset | None:
    """Return the result of a search by time that yields before each batch header."""
    while (step := lookup.next(SearchBudget(headers=1))) is not None:
        if not isinstance(step, SearchPause):
            lookup.take(step, step.search())
    return lookup.found


class LogMachine(RuleBasedStateMachine):
    """Random operations on a log and on `held`, the list of all its batches since the last full truncation."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFs()
        self.log = open_log(self.fs, config=CONFIG)
        self.held: list[Stored] = []
        self.start = 0
        self.epoch = 0
        self.high_watermark = 0

    @property
    def end(self) -> int:
        return self.held[-1].end if self.held else self.start

    @property
    def live(self) -> list[Stored]:
        """The batches whose segments have not been deleted."""
        first = self.log.segments[0].base_offset
        return [item for item in self.held if item.base >= first]

    def made(self, count: int, size: int, time: int, pid: int, epoch: int, *, base: int) -> memoryview:
        entry = self.log.producers.entries.get(pid)
        sequence = -1 if pid < 0 else (entry.next_sequence if entry else 0)
        transactional = pid == 2
        return batch(
            count,
            size=size,
            timestamp=time,
            pid=pid,
            seq=sequence,
            epoch=entry.epoch if entry else 0,
            base=base,
            leader_epoch=epoch,
            transactional=transactional,
        )

    # --------------------------------------------------------------------------------------------------- changes

    @rule(count=counts, size=sizes, time=times, pid=producers, bump=st.booleans())
    def append_as_leader(self, count: int, size: int, time: int, pid: int, bump: bool) -> None:
        self.epoch += bump
        end = self.end
        sent = self.made(count, size, time, pid, -1, base=0)
        result = self.log.append_as_leader(sent, self.epoch, wall_ms=60)
        assert result[:5] == (0, end, end + count - 1, -1, False)
        self.held.append(Stored(bytes(sent)))

    @rule(commit=st.booleans())
    @precondition(lambda self: 2 in self.log.producers.entries)
    def end_transaction(self, commit: bool) -> None:
        sent = marker(2, self.log.producers.entries[2].epoch, commit=commit)
        result = self.log.append_as_leader(sent, self.epoch, 60, client=False)
        assert result.error == 0
        if not result.duplicate:
            self.held.append(Stored(bytes(sent)))

    @rule(data=st.data(), several=st.integers(1, 6), torn=st.integers(0, 70))
    def append_as_follower(self, data: st.DataObject, several: int, torn: int) -> None:
        run = bytearray()
        first = end = self.end
        added = []
        for _ in range(several):
            self.epoch += data.draw(st.booleans())
            count = data.draw(counts)
            item = bytes(self.made(count, data.draw(sizes), data.draw(times), -1, self.epoch, base=end))
            added.append(Stored(item))
            run += item
            end += count
        whole = len(run)
        run += bytes(self.made(4, 10, 5, -1, self.epoch, base=end))[:torn]
        assert self.log.append_as_follower(memoryview(run), NEWEST) == (first, end, whole)
        self.held += added

    @rule(back=st.integers(0, 25))
    def truncate(self, back: int) -> None:
        offset = max(self.log.log_start_offset, self.end - back)
        generation = self.log.generation
        dropped = self.log.truncate_to(offset)
        assert dropped == any(item.end > offset for item in self.held)
        assert self.log.generation == generation + dropped
        self.held = [item for item in self.held if item.end <= offset]
        self.start = min(self.start, offset)

    @rule(ahead=st.integers(0, 30))
    def start_anew(self, ahead: int) -> None:
        self.start = max(0, self.end - 15 + ahead)
        self.log.truncate_fully_and_start_at(self.start)
        self.held = []

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(forward=st.integers(1, 30))
    def delete_records(self, forward: int) -> None:
        self.log.increment_log_start(min(self.end, self.log.log_start_offset + forward))
        for base in self.log.delete_old_segments(0, self.end):
            assert base < self.log.log_start_offset
        assert len(self.log.segments) == 1 or self.log.segments[0].next_offset > self.log.log_start_offset

    @rule()
    def flush(self) -> None:
        self.log.flush(0)
        assert self.log.recovery_point == self.end
        assert self.log.begin_flush() is None

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.log.close(0)
        point, start = self.log.recovery_point, self.log.log_start_offset
        self.fs = self.fs.after_crash()
        self.log = open_log(self.fs, clean=clean, recovery_point=point, log_start_offset=start, config=CONFIG)
        self.log.recall_undecided(self.high_watermark)
        assert self.log.recovery.truncated_bytes == 0
        assert self.log.recovery.reason is None
        assert self.log.recovery.clean == clean
        assert self.log.log_start_offset == start

    # ---------------------------------------------------------------------------------------------------- checks

    @invariant()
    def holds_what_it_should(self) -> None:
        assert self.log.log_end_offset == self.end
        assert stored_batches(self.log) == self.live
        assert self.log.size == sum(len(item.data) for item in self.live)

    @invariant()
    def knows_epochs_and_producers(self) -> None:
        found = [entry for entry in self.log.epochs.entries if entry[1] < self.end]
        assert found == [e for e in epochs_of(self.held, self.log.log_start_offset) if e[1] < self.end]
        assert_producers(self.log.producers, producers_of(self.held))

    @rule(asked=st.lists(st.tuples(places, places, st.integers(0, 1200), st.booleans()), min_size=1, max_size=8))
    @precondition(lambda self: len(self.held) > 0)
    def slice(self, asked: list[tuple[float, float, int, bool]]) -> None:
        first, live = self.log.segments[0].base_offset, self.live
        bases = {segment.base_offset for segment in self.log.segments}
        for from_place, limit_place, most, at_least_one in asked:
            offset = first + round(from_place * (self.end + 1 - first))
            limit = first + round(limit_place * (self.end - first))
            expected = b""
            for item in live:
                if item.end <= offset:
                    continue
                if item.end > limit or (expected and item.base in bases):
                    break
                if len(expected) + len(item.data) > most and (expected or not at_least_one):
                    break
                expected += item.data
            found = self.log.slice(offset, limit, most, at_least_one)
            assert (found.read() if found else b"") == expected

    @rule(time=times, back=st.integers(0, 20))
    def find_timestamp(self, time: int, back: int) -> None:
        limit = self.end - back
        wanted = None
        best = None
        for item in self.live:
            for record in decode_batch(item.header, memoryview(item.data)):
                if not self.log.log_start_offset <= record.offset < limit:
                    continue
                found = TimestampAndOffset(record.timestamp, record.offset, item.header.leader_epoch)
                if wanted is None and record.timestamp >= time:
                    wanted = found
                if best is None or record.timestamp > best.timestamp:
                    best = found
        assert self.log.offset_for_timestamp(time, limit).run() == wanted
        assert in_short_turns(self.log.offset_for_timestamp(time, limit)) == wanted
        if back == 0:
            assert self.log.offset_for_timestamp(None, limit).run() == best
            assert in_short_turns(self.log.offset_for_timestamp(None, limit)) == best

    @invariant()
    def knows_aborted_transactions(self) -> None:
        states = ProducerStates()
        replayed = [states.replay(item.header, memoryview(item.data)) for item in self.held]
        first = self.log.segments[0].base_offset
        expected = [txn for txn in replayed if txn is not None and txn.last_offset >= first]
        assert self.log.aborted_transactions(first, self.end) == expected

    @rule(back=st.integers(0, 4))
    def commit(self, back: int) -> None:
        self.high_watermark = max(self.high_watermark, self.end - back)

    @invariant()
    def last_stable_offset_is_where_the_first_undecided_transaction_began(self) -> None:
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.end)
        expected = stable_offset(producers_of(self.held), self.high_watermark)
        assert stable_offset(self.log.producers, self.high_watermark) == expected


def test_a_log_behaves_as_a_list_of_batches() -> None:
    with small_chunks():
        run_state_machine_as_test(
            LogMachine, settings=settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
        )
