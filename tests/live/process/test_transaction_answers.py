"""Apache Kafka's answers about transactional ids are still those that our broker's answers are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from squall.chaos.runtimes.kafka.runtime import KafkaRuntime
from squall.chaos.runtimes.layout import addresses
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from squall.workloads.client.client import Client
from tests.support.lacks import without
from tests.support.transaction_answers import (
    CONCURRENT,
    GOLDEN,
    LEVELS,
    SETTINGS,
    cells,
    coordinators_of,
    golden,
    lines,
    page,
)

pytestmark = [
    pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH)),
    pytest.mark.night("Apache Kafka is fetched for it"),
]


async def test_kafka_answers_as_the_table_says(tmp_path: Path, update: bool) -> None:
    """The levels of `transaction.version` are tried from the highest down, because the level is lowered only once."""
    runtime = KafkaRuntime(tmp_path / "run", kafka=apache_kafka(lambda line: None), settings=SETTINGS)
    try:
        await runtime.start()
        client = Client(runtime.env("harness"), addresses(runtime.bootstrap("CLIENT")))
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            asked = await coordinators_of(runtime, client)
            for version in (4, 5):
                for n in range(20):
                    ends = await asked.pipelined_ends(f"pipelined {version} {n}", version, version)
                    assert ends == [0, CONCURRENT]
            found = {}
            for level in LEVELS:
                await asked.set_level(level)
                found[level] = lines(await asked.answers(cells(level), f"{level} "))
            nursery.cancel_scope.cancel()
    finally:
        await runtime.stop()
    if update:
        GOLDEN.write_text(page(found))
    assert found == {level: golden(level) for level in LEVELS}
