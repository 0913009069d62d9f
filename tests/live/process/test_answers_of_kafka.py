"""Apache Kafka gives the answers in the table that our broker is tested with
(`tests/unit/apis/test_answers_of_kafka.py`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bench.clusters import Kafka
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.chaos.toolchain.kafka import kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support.brokers.kafka_answers import ONE_NODE, compare
from tests.support.brokers.raw_client import RawClient
from tests.support.lacks import without
from tests.support.patience import scaled

pytestmark = [
    pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH)),
    pytest.mark.night("Apache Kafka is fetched for it"),
]


async def test_kafka_answers_each_row_of_the_table(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path, ONE_NODE, nodes=(1,))
    kafka.start()
    try:
        await_answer(kafka.ports[1])

        async def ask(request: Any, version: int) -> Any:
            with RawClient(kafka.ports[1]) as client:
                return client.ask(request, version)

        await compare(ask)
    finally:
        kafka.stop()


def await_answer(port: int) -> None:
    """Wait until the node serves."""
    deadline = time.monotonic() + scaled(60)
    while True:
        try:
            with RawClient(port) as client:
                client.ask(MetadataRequest(topics=[]), 12)
            return
        except (OSError, AssertionError):
            assert time.monotonic() < deadline, "Kafka does not serve"
            time.sleep(0.2)
