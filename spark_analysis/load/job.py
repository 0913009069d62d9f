"""Loads topics into a folder of Parquet files, with Spark's Structured Streaming: its checkpoint and its file sink make
each row appear once, whenever the load is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from squall.spark_analysis.load.folder import OWN, LoadFolder, write_json
from squall.spark_analysis.load.held_back import HoldingTransaction
from squall.spark_analysis.load.lag import LoadLag, OffsetsRead, look_behind
from squall.spark_analysis.load.options import read_options
from squall.spark_analysis.load.source import SquallDataSource
from squall.workloads.load.reading import LoadError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from squall.spark_analysis.load.options import LoadOptions

LOOK_S: Final = 1.0
LAG_S: Final = 5.0
"""Is the time, in seconds, between two questions to brokers about how far the load is behind."""
SUMMARY: Final = "summary.json"


@dataclass(slots=True)
class LoadTotals:
    """Holds what a load has read so far, over all its starts."""

    records: int = 0
    bytes: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    lost: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Lists (topic, partition, first offset, end) of what is gone, for a load that allows gaps."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """Maps a partition to the offset up to which it was read without a break."""

    read: dict[tuple[str, int], OffsetsRead] = field(default_factory=dict)
    lag: LoadLag | None = None
    """Holds how far the load is behind, as of the last question to brokers; None if they have not answered it."""

    @property
    def lost_offsets(self) -> int:
        """Is the number of offsets that are gone."""
        return sum(end - first for _, _, first, end in self.lost)


def load(
    spark: SparkSession,
    folder: LoadFolder,
    options: Mapping[str, str],
    *,
    every_s: float | None,
    look: Callable[[LoadTotals], None],
    stopped: Callable[[], bool],
) -> LoadTotals:
    """Load what is there now, or, with `every_s`, a batch every so many seconds. End sooner once `stopped` returns
    True: what is not committed then is read again by the next load. `look` is called about once a second. `options`:
    those of the data source. Returns what the folder holds then.

    Raises a LoadError that says which partition and offsets cannot be loaded.
    """
    # A query's error is raised here. Spark would print it as well, with the traces of two languages.
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(SquallDataSource)
    reader = spark.readStream.format("squall").options(**options).option("ranges", str(folder.ranges))
    writer = (
        reader.load()
        .writeStream.format("parquet")
        .partitionBy("topic", "partition")
        .option("path", str(folder.path))
        .option("checkpointLocation", str(folder.checkpoint))
    )
    trigger = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s:g} seconds"}
    wanted, progress = read_options(options, streams=True), LoadProgress(folder)
    query = writer.trigger(**trigger).start()
    asked = -LAG_S
    try:
        while not _ended(query) and not stopped():
            found = progress.now()
            if time.monotonic() - asked >= LAG_S:
                progress.look_behind(wanted)
                asked = time.monotonic()
            look(found)
    finally:
        with suppress(Exception):
            query.stop()
    found = progress.now()
    progress.look_behind(wanted)
    look(found)
    _write_summary(folder, found)
    return found


class LoadProgress:
    """Adds up what the tasks of a folder's loads have read."""

    def __init__(self, folder: LoadFolder) -> None:
        self._folder, self._seen = folder, set[str]()
        self._found = LoadTotals()

    def now(self) -> LoadTotals:
        """Return what has been read so far."""
        found = self._found
        for wanted, read in self._folder.read_ranges(self._seen):
            found.records += read["records"]
            found.bytes += read["bytes"]
            found.control += read["control"]
            found.aborted += read["aborted"]
            found.compacted += read["compacted"]
            found.lost += [(wanted.topic, wanted.partition, first, end) for first, end in read["lost"]]
            place = wanted.topic, wanted.partition
            found.ends[place] = max(found.ends.get(place, 0), wanted.end)
            first, read_before = found.read.get(place, OffsetsRead(wanted.start, 0))
            size = 0 if read.get("gone") else wanted.end - wanted.start
            found.read[place] = OffsetsRead(min(first, wanted.start), read_before + size)
        return found

    def look_behind(self, options: LoadOptions) -> None:
        """Ask brokers how far the load is behind. It is not known if they do not answer."""
        self._found.lag = look_behind(options, self._found.read)


def _ended(query: StreamingQuery) -> bool:
    try:
        return bool(query.awaitTermination(LOOK_S))
    except Exception as failure:
        raise _load_error(failure) from None


def _load_error(failure: Exception) -> Exception:
    """Return the error of ours that ended a query, if it was one: Spark reports it as text."""
    for line in str(failure).splitlines():
        name, colon, message = line.strip().partition(": ")
        if colon and name.startswith("squall.") and name.rpartition(".")[2] in _names(LoadError):
            return LoadError(message)
    return failure


def _names(of: type[LoadError]) -> set[str]:
    names = {of.__name__}
    for each in of.__subclasses__():
        names |= _names(each)
    return names


def _open(found: LoadTotals) -> tuple[HoldingTransaction, ...]:
    return () if found.lag is None else found.lag.open


def _write_summary(folder: LoadFolder, found: LoadTotals) -> None:
    content: dict[str, Any] = {
        "records": found.records,
        "bytes": found.bytes,
        "without a record": {"control": found.control, "aborted": found.aborted, "compacted": found.compacted},
        "gaps": [
            {"topic": topic, "partition": index, "first": first, "end": end} for topic, index, first, end in found.lost
        ],
        "behind": None if found.lag is None else found.lag.behind,
        "held back by": [{**each._asdict(), "place": f"{each.place[0]}-{each.place[1]}"} for each in _open(found)],
        "read up to": {f"{topic}-{index}": end for (topic, index), end in sorted(found.ends.items())},
    }
    write_json(folder.path / OWN / SUMMARY, content)
