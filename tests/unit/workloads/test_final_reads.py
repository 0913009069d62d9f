"""Final reads against a scripted cluster."""

from __future__ import annotations

from pathlib import Path

from trio.testing import MockClock

from squall.broker.protocol.records import encode_batch
from squall.broker.real_env import RealEnv
from squall.workloads.client.settings import ClientSettings
from squall.workloads.final_reads import final_reads
from squall.workloads.recorder import Recorder
from tests.support.clusters.fake_cluster import FakeCluster

PLACE = ("t", 0)


async def test_a_damaged_batch_counts_as_the_one_record_that_the_history_has_of_it(
    clock: MockClock, tmp_path: Path
) -> None:
    """It was not counted: so run.json and the history disagreed, and the verdict was unknown (seed 70651)."""
    cluster = FakeCluster(1)
    cluster.topic("t", [1])
    for _ in range(3):
        cluster.partitions[PLACE].store(encode_batch([(0, 0, None, b"value", [])]))
    cluster.partitions[PLACE].batches[1].data[-1] ^= 1
    async with cluster.client(ClientSettings()) as client:
        recorder = Recorder(RealEnv("harness"), str(tmp_path / "history"), "run")
        recorder.partition(*PLACE)
        addresses = [cluster.address(node) for node in cluster.node_ids]
        (final,) = await final_reads(client.env, addresses, [PLACE], recorder, 1, (0,))
    assert (final.records, final.complete) == (3, True)
