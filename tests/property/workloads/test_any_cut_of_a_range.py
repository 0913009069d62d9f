"""A range has the same records in whatever tasks it is cut, and however responses cut the log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from squall.broker.protocol.records import batches, encode_batch
from squall.workloads.load.ranges import OffsetRange, split
from squall.workloads.load.reading import RangeReader
from tests.support.effort import examples

PRODUCERS = 3


class DrawnLog:
    """A log of transactions of three producers, with the index of its aborted ones."""

    def __init__(self, steps: list[tuple[int, int, bool]]) -> None:
        """Append by `steps`: (producer, records; 0 ends its transaction, whether that is a commit)."""
        self.batches: list[tuple[int, bytes]] = []
        self.aborted: list[tuple[int, int, int]] = []
        """Lists (producer, first offset, offset of the marker)."""
        self.end = 0
        first: dict[int, int] = {}
        for producer, count, commit in steps:
            if count:
                first.setdefault(producer, self.end)
                records = [(self.end + n, n, b"k", b"%d" % (self.end + n), ()) for n in range(count)]
                batch = encode_batch(records, base_offset=self.end, producer_id=producer, transactional=True)
                self._append(batch, count)
            elif producer in first:
                if not commit:
                    self.aborted.append((producer, first[producer], self.end))
                del first[producer]
                record = (self.end, 0, bytes((0, 0, 0, commit)), bytes(6), ())
                of = {"producer_id": producer, "transactional": True, "control": True}
                self._append(encode_batch([record], base_offset=self.end, **of), 1)
        self.stable = min(first.values(), default=self.end)

    def _append(self, batch: bytes, count: int) -> None:
        self.batches.append((self.end + count, batch))
        self.end += count

    def fetch(self, offset: int, most: int, isolation: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Return what a broker answers to a fetch at `offset`: at most `most` batches, and the aborted transactions."""
        limit = self.stable if isolation else self.end
        found = [(end, batch) for end, batch in self.batches if offset < end <= limit][:most]
        last = found[-1][0] if found else offset
        aborted = [(producer, first) for producer, first, end in self.aborted if first < last and end >= offset]
        return b"".join(batch for _, batch in found), aborted


def read(log: DrawnLog, wanted: OffsetRange, most: int, isolation: int) -> list[tuple[int, bytes | None]]:
    reader, found = RangeReader(wanted, isolation), []
    while not reader.done:
        data, aborted = log.fetch(reader.position, most, isolation)
        for batch in reader.take(memoryview(data), aborted):
            found += [(record.offset, record.value) for record in batch.records]
    skipped = reader.skipped
    assert len(found) + skipped.control + skipped.aborted == wanted.end - wanted.start
    return found


steps = st.lists(st.tuples(st.integers(0, PRODUCERS - 1), st.integers(0, 4), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=examples(200))
@given(steps, st.integers(1, 6), st.integers(1, 5), st.integers(0, 1))
def test_any_cut_gives_the_same_records(
    drawn: list[tuple[int, int, bool]], per_task: int, most: int, isolation: int
) -> None:
    log = DrawnLog(drawn)
    whole = OffsetRange("t", 0, 0, log.stable if isolation else log.end)
    cut = [record for task in split(whole, per_task) for record in read(log, task, most, isolation)]
    assert cut == read(log, whole, 1000, isolation)
    assert [offset for offset, _ in cut] == sorted({offset for offset, _ in cut})
    aborted = {n for producer, first, end in log.aborted for n in _of(log, producer, first, end)}
    assert not isolation or not aborted & {offset for offset, _ in cut}


def _of(log: DrawnLog, producer: int, first: int, end: int) -> list[int]:
    """Return the offsets of a producer's records from `first` up to its marker at `end`."""
    return [
        offset
        for _, batch in log.batches
        for header, _, _ in batches(memoryview(batch))
        for offset in range(header.base_offset, header.next_offset)
        if header.producer_id == producer and first <= offset < end
    ]
