"""A task holds a few Arrow record batches, however long its range is and however slowly Spark takes them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from squall.broker.protocol.records import encode_batch
from squall.spark_analysis.load import rows, task
from squall.spark_analysis.load.options import LoadOptions
from squall.spark_analysis.load.task import WAITING, rows_of
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import CorruptBatch, RangeReader, ReadBatch

BATCHES_OF_A_RESPONSE, RECORDS = 6, 10
OPTIONS = LoadOptions(bootstrap=(("nowhere", 1),))
Emit = Callable[[list[ReadBatch]], Awaitable[None]]


class Log:
    """A partition whose batches of 10 KB are made when they are fetched."""

    def __init__(self, bad: float = math.inf) -> None:
        self.decompressed = 0
        """Counts the batches that were decompressed."""
        self._bad = bad

    def response(self, first: int) -> bytes:
        found = b""
        for base in range(first, first + BATCHES_OF_A_RESPONSE * RECORDS, RECORDS):
            records = [(base + n, 7, b"k", bytes(1_000), ()) for n in range(RECORDS)]
            batch = bytearray(encode_batch(records, base_offset=base, codec=1))
            if base >= self._bad:
                batch[-1] ^= 1
            found += batch
        return found


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Let tasks read from a log of this process, and rows be made of a batch each."""
    made = Log()

    async def read(client: Any, reader: RangeReader, emit: Emit, *given: Any) -> None:
        while not reader.done:
            await emit(reader.take(memoryview(made.response(reader.position)), None))

    def decompressed(batch: ReadBatch) -> bytes:
        made.decompressed += 1
        return body(batch)

    body = ReadBatch.body.fget
    assert body is not None
    monkeypatch.setattr(ReadBatch, "body", property(decompressed))
    monkeypatch.setattr(rows, "MOST_BYTES", 1)
    monkeypatch.setattr(task, "read_range", read)
    monkeypatch.setattr(task, "run_with_client", lambda options, use: trio.run(use, None))
    return made


@pytest.mark.parametrize("responses", [5, 50])
def test_a_task_decompresses_little_more_than_spark_has_taken(log: Log, responses: int) -> None:
    end = responses * BATCHES_OF_A_RESPONSE * RECORDS
    most = taken = 0
    for each in rows_of(OffsetRange("t", 0, 0, end), OPTIONS):
        assert each.num_rows == RECORDS
        taken += 1
        most = max(most, log.decompressed - taken)
    assert taken == responses * BATCHES_OF_A_RESPONSE
    # Those that wait, one that is being handed over, and one that shows that the one before is full.
    assert most <= WAITING + 2


def test_the_error_of_a_task_comes_after_the_rows_before_it(log: Log) -> None:
    log._bad = 2 * BATCHES_OF_A_RESPONSE * RECORDS
    found = rows_of(OffsetRange("t", 0, 0, 1_000), OPTIONS)
    assert sum(next(found).num_rows for _ in range(2 * BATCHES_OF_A_RESPONSE)) == log._bad
    with pytest.raises(CorruptBatch, match="t-0, batch at offset 120: its CRC-32C"):
        next(found)


def test_the_thread_of_a_task_that_is_given_up_ends(log: Log) -> None:
    found = rows_of(OffsetRange("t", 0, 0, 100_000), OPTIONS)
    next(found)
    found.close()  # type: ignore[attr-defined]  # returns when the thread has ended
    assert log.decompressed <= WAITING + 3
