"""Reads topics again and again, as the micro-batches of `spark.readStream` do.

The position of a stream is what Spark keeps in its checkpoint: for each topic its id, and for each partition the next
offset and the leader epoch in which the leader named that offset as readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from squall.spark_analysis.load.batch import places_of, ranges_of, tasks_of
from squall.spark_analysis.load.folder import note_gone
from squall.spark_analysis.load.planning import (
    Bounds,
    PlannedTopic,
    ask,
    bounds_of,
    chosen_offsets,
    chosen_topics,
    offsets_at_times,
)
from squall.spark_analysis.load.task import rows_of
from squall.workloads.client.connection import RequestFailed
from squall.workloads.load.fetching import end_of_epoch
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import GoneOffsets, OffsetsGone, TopicRemade

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from squall.spark_analysis.load.options import LoadOptions
    from squall.workloads.client.client import Client
    from squall.workloads.client.cluster import Place

EpochEnd = tuple[int, int | None]
"""Is a leader's epoch, and the offset at which its log ends an earlier leader epoch; None if it does not know."""
Position = dict[str, Any]
"""Is {"orders": {"id": "9f...", "offsets": {"0": 23}, "epochs": {"0": 4}}}, as Spark writes it into its checkpoint."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads what is new in topics: Spark asks for the latest offsets, and then reads up to them."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self._last: Position | None = None
        """Is the position up to which an AvailableNow trigger reads; None for other triggers."""

    def initialOffset(self) -> Position:
        """Return the position at which a new stream begins."""

        async def first(client: Client) -> Position:
            options = self._options
            topics = await chosen_topics(client, options)
            bounds = await bounds_of(client, places_of(topics), options.isolation)
            starts = chosen_offsets(options.starting, bounds, is_end=False)
            starts.update(await offsets_at_times(client, options.starting_times, bounds, options.isolation))
            return _position(topics, starts, bounds)

        return ask(self._options, first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of one micro-batch."""
        most = self._options.most_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to what is there now, however many micro-batches that takes."""
        self._last = self._latest(None)

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Return the position up to which the next micro-batch reads."""
        latest = self._latest(start) if self._last is None else self._last
        latest = ask(self._options, partial(_continued, start, latest, self._options))
        return limited(start, latest, limit.max_rows) if isinstance(limit, ReadMaxRows) else latest

    def reportLatestOffset(self) -> Position | None:
        """Return the position at the end of the topics, for the progress of a query."""
        return self._latest(None)

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Return the ranges of the tasks of one micro-batch. Raises TopicRemade if a topic has another id than in the
        checkpoint.
        """

        async def plan(client: Client) -> list[OffsetRange]:
            topics = await chosen_topics(client, self._options)
            _check_ids(start, topics)
            # A topic that is new in this batch begins at its first offset.
            known = {name: topic for name, topic in topics.items() if name in end}
            starts, ends = _offsets(start), _offsets(end)
            planned = {
                name: topic._replace(partitions=tuple(i for i in topic.partitions if (name, i) in ends))
                for name, topic in known.items()
            }
            missing = [place for place in places_of(planned) if place not in starts]
            if missing:
                bounds = await bounds_of(client, missing, self._options.isolation)
                starts.update({place: each.earliest for place, each in bounds.items()})
            return ranges_of(planned, starts, ends, _offsets(end, "epochs"))

        return tasks_of(ask(self._options, plan), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return rows_of(OffsetRange(*partition.value), self._options)

    def _latest(self, start: Position | None) -> Position:
        async def latest(client: Client) -> Position:
            topics = await chosen_topics(client, self._options)
            _check_ids(start or {}, topics)
            bounds = await bounds_of(client, places_of(topics), self._options.isolation)
            return _position(topics, {place: each.latest for place, each in bounds.items()}, bounds)

        return ask(self._options, latest)


async def _continued(start: Position, latest: Position, options: LoadOptions, client: Client) -> Position:
    """Return what `continued` returns, from what the leaders of new epochs answer. Raises OffsetsGone for rows whose
    records are gone, unless the load allows gaps.
    """
    epochs, led = _offsets(start, "epochs"), _offsets(latest, "epochs")
    kept: dict[Place, EpochEnd] = {}
    for place in led.keys() & epochs.keys():
        if led[place] > epochs[place] >= 0:
            kept[place] = await _epoch_end(client, place, epochs[place])
    found, gone = continued(start, latest, kept)
    for rows in gone:
        if options.fail_on_data_loss:
            raise OffsetsGone(f"{rows}; their rows have been loaded")
        if options.ranges:
            note_gone(Path(options.ranges), rows)
    return found


def continued(
    start: Position, latest: Position, kept: Mapping[Place, EpochEnd]
) -> tuple[Position, list[GoneOffsets]]:
    """Return the position up to which a stream at `start` can read, and the offsets before `start` that partitions no
    longer have (KIP-320).

    No partition goes back: it stays at `start` where `latest` is before that, because a leader of the past has
    answered, or because an unclean election took records away whose rows have been read. `kept` has, for each partition
    with a new leader epoch, where its leader ends the epoch of `start`.
    """
    starts, epochs = _offsets(start), _offsets(start, "epochs")
    # A topic that a pattern finds no longer keeps its place: if it comes back, it may have been made anew.
    found: Position = {name: topic for name, topic in start.items() if name not in latest}
    gone = []
    for name, topic in latest.items():
        offsets, led = dict(topic["offsets"]), dict(topic["epochs"])
        found[name] = {**topic, "offsets": offsets, "epochs": led}
        for index in offsets.keys() & start.get(name, {"offsets": {}})["offsets"].keys():
            place = name, int(index)
            begin, leader_epoch, end = starts[place], led[index], offsets[index]
            if place in kept:
                leader_epoch, end = kept[place]
            elif leader_epoch >= 0:
                end = begin
            if end is not None and end < begin:
                gone.append(GoneOffsets(place, end, begin, leader_epoch, epochs[place]))
            offsets[index] = max(begin, offsets[index])
            led[index] = max(led[index], epochs[place])
    return found, gone


async def _epoch_end(client: Client, place: Place, epoch: int) -> EpochEnd:
    client.track([place[0]])
    failures = 0
    while True:
        leader = client.view.leader(*place)
        try:
            if leader is not None:
                return leader.epoch, await end_of_epoch(client, leader, place, epoch)
        except RequestFailed:
            pass
        client.refresh_soon()
        failures += 1
        await client.env.sleep(client.backoff(failures))


def limited(start: Position, latest: Position, most: int) -> Position:
    """Return a position between two positions with at most `most` offsets before it. Each partition gets its share of
    the limit, by how far it lags.
    """
    ends = _offsets(latest)
    starts = {place: offset for place, offset in _offsets(start).items() if place in ends}
    lags = {place: max(0, end - starts.get(place, end)) for place, end in ends.items()}
    total = sum(lags.values())
    if total <= most:
        return latest
    found: Position = {}
    for name, topic in latest.items():
        offsets = {}
        for index, end in topic["offsets"].items():
            place = name, int(index)
            # At least one offset, so that no partition waits for ever.
            share = max(1, lags[place] * most // total) if lags[place] else 0
            offsets[index] = min(end, starts.get(place, end) + share)
        found[name] = {**topic, "offsets": offsets}
    return found


def _position(
    topics: Mapping[str, PlannedTopic], offsets: Mapping[Place, int], bounds: Mapping[Place, Bounds]
) -> Position:
    return {
        name: {
            "id": topic.topic_id.hex(),
            "offsets": {str(index): offsets[name, index] for index in topic.partitions},
            "epochs": {str(index): bounds[name, index].leader_epoch for index in topic.partitions},
        }
        for name, topic in topics.items()
    }


def _offsets(position: Position, what: str = "offsets") -> dict[Place, int]:
    return {(name, int(index)): n for name, topic in position.items() for index, n in topic[what].items()}


def _check_ids(position: Position, topics: Mapping[str, PlannedTopic]) -> None:
    for name, topic in topics.items():
        before = position[name]["id"] if name in position else topic.topic_id.hex()
        if before != topic.topic_id.hex():
            raise TopicRemade(
                f"topic {name} was made anew since this load began: its id was {before} and is "
                f"{topic.topic_id.hex()}; load it into another folder"
            )
