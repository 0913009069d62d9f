"""Reads topics once, as the batches of `spark.read` do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from squall.spark_analysis.load.planning import ask, bounds_of, chosen_offsets, chosen_topics, offsets_at_times
from squall.spark_analysis.load.task import rows_of
from squall.workloads.load.ranges import OffsetRange, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from squall.spark_analysis.load.options import LoadOptions
    from squall.spark_analysis.load.planning import PlannedTopic
    from squall.workloads.client.client import Client
    from squall.workloads.client.cluster import Place


class TaskRange(InputPartition):  # type: ignore[misc]  # PySpark has no types
    """Holds the range of one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(tuple(wanted))


class TopicReader(DataSourceReader):  # type: ignore[misc]
    """Reads topics once, from the offsets and up to the offsets that the options name."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of all tasks."""
        return tasks_of(ask(self._options, self._plan), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        # Of a plan without tasks PySpark makes one with a task that has no range.
        return iter(()) if partition.value is None else rows_of(OffsetRange(*partition.value), self._options)

    async def _plan(self, client: Client) -> list[OffsetRange]:
        options = self._options
        topics = await chosen_topics(client, options)
        bounds = await bounds_of(client, places_of(topics), options.isolation)
        starts = chosen_offsets(options.starting, bounds, is_end=False)
        starts.update(await offsets_at_times(client, options.starting_times, bounds, options.isolation))
        ends = chosen_offsets(options.ending, bounds, is_end=True)
        return ranges_of(topics, starts, ends, {place: each.leader_epoch for place, each in bounds.items()})


def places_of(topics: Mapping[str, PlannedTopic]) -> list[Place]:
    """Return the partitions of these topics."""
    return [(name, index) for name, topic in topics.items() for index in topic.partitions]


def ranges_of(
    topics: Mapping[str, PlannedTopic],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    epochs: Mapping[Place, int],
) -> list[OffsetRange]:
    """Return the range of each partition that has something to read. `epochs` holds the leader epochs in which the ends
    were named.
    """
    found = []
    for place in places_of(topics):
        topic = topics[place[0]]
        if starts[place] < ends[place]:
            span = starts[place], ends[place]
            found.append(OffsetRange(*place, *span, topic.topic_id, epochs[place], topic.compacted))
    return found


def tasks_of(ranges: Sequence[OffsetRange], options: LoadOptions) -> list[InputPartition]:
    """Return the ranges as Spark's tasks: a long one is cut."""
    return [TaskRange(each) for whole in ranges for each in split(whole, options.records_per_task)]
