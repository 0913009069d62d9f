"""Hundreds of clients send costly requests to a cluster: its controller stays, and no broker is fenced."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from squall.broker.protocol.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from squall.broker.protocol.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.bystander import Bystander
from tests.support.brokers.raw_client import RawClient, frame_of

NODES = (1, 2, 3)
CROWD = 400
REQUESTS = 40
LOOK_S = 5.0


class Inside(BrokerProcess):
    """One of three brokers, with a listener for clients and one between brokers; `connect` uses the latter."""

    def __init__(self, folder: Path, node: int, inner_ports: dict[int, int], outer_port: int) -> None:
        folder.mkdir()
        self.inner_port, self.outer_port = inner_ports[node], outer_port
        peers = {f"{other}@127.0.0.1:{port}" for other, port in inner_ports.items() if other != node}
        settings = {
            "node.id": str(node),
            "listeners": f"CLIENT://127.0.0.1:{outer_port},INTERNAL://127.0.0.1:{self.inner_port}",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in inner_ports.items()),
            "squall.peers": ",".join(sorted(peers)),
            "squall.cluster.id": "ns9V5FF9OXkLm6_XlQ8stg",
        }
        super().__init__(folder, settings)

    def connect(self) -> RawClient:
        return RawClient(self.inner_port)

    def connect_as_client(self) -> RawClient:
        return RawClient(self.outer_port)

    def fenced(self) -> list[object]:
        return [event["broker"] for event in self.events() if event["e"] == "broker_fenced"]

    def controller(self) -> tuple[int, int]:
        """Return the controller's id and epoch, as this broker knows them."""
        part = DescribeQuorumRequestPartitionData(partition_index=0)
        topics = [DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[part])]
        with self.connect() as client:
            answer = client.ask(DescribeQuorumRequest(topics=topics), 2)
        told = answer.topics[0].partitions[0]
        return told.leader_id, told.leader_epoch


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, Inside]]:
    frees = [socket.socket() for _ in range(6)]
    for free in frees:
        free.bind(("127.0.0.1", 0))
    ports = [free.getsockname()[1] for free in frees]
    for free in frees:
        free.close()
    inner = dict(zip(NODES, ports[:3], strict=True))
    with ThreadPoolExecutor(3) as pool:
        begun = [
            pool.submit(Inside, tmp_path / str(n), n, inner, port) for n, port in zip(NODES, ports[3:], strict=True)
        ]
    made = {n: future.result() for n, future in zip(NODES, begun, strict=True)}
    try:
        yield made
    finally:
        for each in made.values():
            each.stop()


def test_the_controller_stays_and_nobody_is_fenced_while_hundreds_of_clients_ask_for_much(
    brokers: dict[int, Inside], bound_s: float
) -> None:
    """Each client once got 5 ms in each pass of the event loop: 200 of them moved the controller, and another broker
    waited two seconds and more.
    """
    before = brokers[1].controller()
    busy = brokers[before[0]]
    about = DescribeConfigsResource(resource_type=4, resource_name=str(before[0]), configuration_keys=None)
    request = DescribeConfigsRequest(resources=[about], include_synonyms=True, include_documentation=True)
    burst = frame_of(request, 4) * REQUESTS
    crowd = [busy.connect_as_client() for _ in range(CROWD)]
    try:
        with Bystander(busy) as bystander:
            for client in crowd:
                client.send(burst)
            began = time.monotonic()
            busy.wait_for(lambda: time.monotonic() - began > LOOK_S)
    finally:
        for client in crowd:
            client.close()
    assert bystander.slowest_s < bound_s
    assert bystander.answers > 20
    assert {broker.controller() for broker in brokers.values()} == {before}
    assert [broker.fenced() for broker in brokers.values()] == [[], [], []]
