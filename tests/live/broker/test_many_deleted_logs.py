"""A deleted topic of very many partitions: its directories go without anybody waiting for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.support.brokers.broker_process import BrokerProcess, ask
from tests.support.brokers.bystander import Bystander

PARTITIONS = 3_000
PATIENCE_S = 1.0
"""What a bystander may wait on a busy machine. All directories at once took the broker for up to 49 s."""


def test_the_directories_of_a_deleted_topic_are_removed_while_others_are_served(tmp_path: Path) -> None:
    settings = {"log.segment.delete.delay.ms": "6000", "log.retention.check.interval.ms": "1000"}
    broker, data = BrokerProcess(tmp_path, settings), tmp_path / "data"

    def folders(end: str) -> int:
        return sum(path.name.startswith("wide-") and path.name.endswith(end) for path in data.iterdir())

    try:
        wide = CreatableTopic(name="wide", num_partitions=PARTITIONS, replication_factor=1)
        with broker.connect() as client:
            client.settimeout(60)
            made: Any = ask(client, CreateTopicsRequest([wide], 30_000), CreateTopicsResponse, 7)
            assert made.topics[0].error_code == 0
            broker.wait_for(lambda: folders("") == PARTITIONS, 90)
            delete = DeleteTopicsRequest([], [DeleteTopicState("wide")], 30_000)
            gone: Any = ask(client, delete, DeleteTopicsResponse, 6)
            assert gone.responses[0].error_code == 0
        broker.wait_for(lambda: folders("-delete") == PARTITIONS, 90)
        with Bystander(broker) as bystander:
            broker.wait_for(lambda: folders("") == 0, 90)
        assert bystander.slowest_s < PATIENCE_S
    finally:
        broker.stop()
