"""Single requests are answered as Apache Kafka 4.3.1 answers them, by a whole node in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.broker.net.peers import PeerClient
from tests.support.brokers.kafka_answers import ONE_NODE, compare
from tests.support.brokers.memory_cluster import CLIENT_PORT, MemoryCluster, NodeEnv
from tests.support.disks.memory_fs import MemoryFs


@pytest.mark.gate
async def test_our_node_answers_each_row_of_the_table(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, 1, **{name.replace(".", "_"): value for name, value in ONE_NODE.items()})
        await cluster.start()
        env: Any = NodeEnv(cluster.network, "client", 1, MemoryFs())
        peers = PeerClient(env, lambda node_id: (f"n{node_id}", CLIENT_PORT + node_id), "raw")
        await nursery.start(peers.run)

        async def ask(request: Any, version: int) -> Any:
            return await peers.request(1, request.API_KEY, version, request, 60_000)

        await compare(ask)
        nursery.cancel_scope.cancel()
