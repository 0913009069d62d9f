"""A range is fetched from a scripted cluster: what is gone is noticed, whatever the broker says of it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.records import encode_batch
from squall.broker.protocol.schema.fetch import FetchResponse
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from squall.workloads.load.fetching import read_range
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import OffsetsGone, RangeReader, ReadBatch
from tests.support.clusters.fake_cluster import FakeCluster, Seen

CLIENT = ClientSettings(request_timeout_ms=5000, control_timeout_ms=1000, connect_timeout_ms=1000)
PLACE = ("orders", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    """Return a cluster with a partition of six records."""
    cluster = FakeCluster()
    cluster.topic(PLACE[0], [1])
    for number in range(6):
        cluster.partitions[PLACE].store(encode_batch([(0, 0, None, b"%d" % number, [])]))
    return cluster


async def read(cluster: FakeCluster, *, allow_gaps: bool = False, epoch: int = -1) -> tuple[list[int], RangeReader]:
    """Return the offsets that a reader of the whole partition got, and the reader. The range was planned in this leader
    epoch.
    """
    wanted = OffsetRange(*PLACE, 0, 6, leader_epoch=epoch)
    reader, offsets = RangeReader(wanted, allow_gaps=allow_gaps), list[int]()

    async def take(found: list[ReadBatch]) -> None:
        offsets.extend(record.offset for batch in found for record in batch.records)

    with trio.fail_after(60):
        async with cluster.client(CLIENT) as client:
            await read_range(client, reader, take, ConsumerSettings(), patience_s=30)
    return offsets, reader


def without_log_start(cluster: FakeCluster) -> None:
    """Let fetches of an offset that is out of range say nothing of the log, as brokers do."""

    def answer(seen: Seen) -> FetchResponse | None:
        if seen.api_key != ApiKey.FETCH:
            return None
        found, _ = cluster.fetch_now(seen, seen.message)
        for part in found.responses[0].partitions:
            if part.error_code:
                part.log_start_offset = part.high_watermark = -1
                return found
        return None

    cluster.script.append(answer)


async def test_a_range_is_read_from_start_to_end(cluster: FakeCluster, clock: MockClock) -> None:
    offsets, reader = await read(cluster)
    assert (offsets, reader.done) == ([*range(6)], True)


async def test_offsets_that_are_missing_at_the_end_of_a_range_are_gone(cluster: FakeCluster, clock: MockClock) -> None:
    cluster.partitions[PLACE].store(encode_batch([(0, 0, None, b"behind the range", [])]))
    del cluster.partitions[PLACE].batches[4:6]
    gone = pytest.RaisesExc(OffsetsGone, match="offsets 4 to 5 are gone: the next batch of the log begins at offset 6")
    with pytest.RaisesGroup(gone, flatten_subgroups=True):
        await read(cluster)


async def test_offsets_before_the_log_start_are_gone_though_the_fetch_does_not_name_it(
    cluster: FakeCluster, clock: MockClock
) -> None:
    without_log_start(cluster)
    cluster.partitions[PLACE].log_start = 4
    gone = pytest.RaisesExc(OffsetsGone, match="offsets 0 to 3 are gone")
    with pytest.RaisesGroup(gone, flatten_subgroups=True):
        await read(cluster)


async def test_a_load_that_allows_gaps_continues_at_the_log_start(cluster: FakeCluster, clock: MockClock) -> None:
    without_log_start(cluster)
    cluster.partitions[PLACE].log_start = 4
    offsets, reader = await read(cluster, allow_gaps=True)
    assert (offsets, reader.skipped.lost) == ([4, 5], ((0, 4),))


def elect_uncleanly(cluster: FakeCluster) -> None:
    """Let the partition lose the offsets from 3 on, and store others there and behind in the next leader epoch."""
    cluster.move(*PLACE, 2)
    del cluster.partitions[PLACE].batches[3:]
    for number in range(10):
        cluster.partitions[PLACE].store(encode_batch([(0, 0, None, b"other %d" % number, [])]))


async def test_offsets_that_an_unclean_election_took_are_gone_though_there_are_others(
    cluster: FakeCluster, clock: MockClock
) -> None:
    elect_uncleanly(cluster)
    gone = pytest.RaisesExc(OffsetsGone, match="offsets 3 to 5 are gone: the leader of epoch 1 ")
    with pytest.RaisesGroup(gone, flatten_subgroups=True):
        await read(cluster, epoch=0)


async def test_a_load_that_allows_gaps_reads_no_others_at_offsets_that_are_gone(
    cluster: FakeCluster, clock: MockClock
) -> None:
    elect_uncleanly(cluster)
    offsets, reader = await read(cluster, allow_gaps=True, epoch=0)
    assert (offsets, reader.skipped.lost, reader.done) == ([0, 1, 2], ((3, 6),), True)
