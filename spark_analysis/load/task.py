"""Reads the range of one Spark task: a thread fetches and decodes, and Spark takes Arrow record batches from it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from squall.spark_analysis.load.clients import consumer_settings, run_with_client
from squall.spark_analysis.load.folder import note_range
from squall.spark_analysis.load.rows import record_batches
from squall.workloads.load.fetching import read_range
from squall.workloads.load.reading import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa

    from squall.spark_analysis.load.options import LoadOptions
    from squall.workloads.client.client import Client
    from squall.workloads.load.ranges import OffsetRange
    from squall.workloads.load.reading import ReadBatch

WAITING = 2
"""Limits the record batches that wait for Spark: so a task's memory does not depend on the length of its range."""
TAKEN_S = 0.5
"""Is how often the thread of a task that nobody reads any more looks whether it may end."""


class TaskEnded(Exception):
    """Says, in the thread of a task, that Spark takes no more rows."""


def rows_of(wanted: OffsetRange, options: LoadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range in order. Raises a LoadError if the range cannot be read as it was planned."""
    waiting: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(WAITING)
    ended = threading.Event()

    def put(item: pa.RecordBatch | BaseException | None) -> None:
        while not ended.is_set():
            try:
                waiting.put(item, timeout=TAKEN_S)
                return
            except queue.Full:
                continue
        raise TaskEnded

    def work() -> None:
        try:
            _read(wanted, options, put)
            put(None)
        except TaskEnded:
            pass
        except BaseException as problem:
            put(problem)

    thread = threading.Thread(target=work, name=f"load {wanted}", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ended.set()
        thread.join()


def _read(wanted: OffsetRange, options: LoadOptions, put: Callable[[pa.RecordBatch], None]) -> None:
    reader = RangeReader(wanted, options.isolation, allow_gaps=not options.fail_on_data_loss)
    records = size = 0

    async def emit(found: list[ReadBatch]) -> None:
        nonlocal records, size
        # The next response is asked for before this one is decoded.
        await trio.lowlevel.checkpoint()
        for rows in record_batches(wanted, found, options.columns, headers=options.headers):
            records, size = records + rows.num_rows, size + rows.nbytes
            put(rows)

    async def read(client: Client) -> None:
        await read_range(client, reader, emit, consumer_settings(options), options.patience_ms / 1000)

    run_with_client(options, read)
    if options.ranges:
        note_range(Path(options.ranges), reader, records, size)
