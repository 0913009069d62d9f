"""The data source `squall` gives the rows of Spark's own Kafka source, on Squall's brokers and on Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from squall.chaos.toolchain.kafka import kafka_is_here
from tests.architecture.source import ROOT
from tests.live.process.test_apache_kafka import how_to_get_it
from tests.support.lacks import without
from tests.support.load.clusters import one_broker
from tests.support.load.comparing import ISOLATIONS
from tests.support.load.filling import CODECS, FilledTopic, fill
from tests.support.load.kafka_source import kafka_source_here
from tests.support.patience import scaled

RECORDS, SIZE = 5_000, 300
BY_BROKER = {"message.timestamp.type": "LogAppendTime"}
pytestmark = [
    pytest.mark.skipif(
        not kafka_source_here(), reason=without("Maven, for Spark's Kafka source", "as root: apt-get install -y maven")
    ),
    pytest.mark.night("fetches Spark's Kafka source, and starts Spark"),
]
on_kafka = pytest.mark.skipif(
    not kafka_is_here(), reason=without("Apache Kafka and a whole Java", how_to_get_it())
)


@pytest.fixture(params=["squall", pytest.param("kafka", marks=on_kafka)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    with one_broker(request.param) as address:
        yield address


def test_every_row_is_that_of_sparks_own_source(bootstrap: str) -> None:
    filled = [fill(bootstrap, codec, RECORDS, SIZE, codec) for codec in CODECS]
    filled.append(fill(bootstrap, "stamped", RECORDS // 10, SIZE, "none", **BY_BROKER))
    command = [sys.executable, "-m", "tests.support.load.comparing", bootstrap, *CODECS, "stamped"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=scaled(600))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for isolation in ISOLATIONS:
        rows = sum(_seen(each, isolation) for each in filled)
        assert found[isolation] == {"ours": rows, "kafkas": rows, "different": 0, "places": []}


def _seen(filled: FilledTopic, isolation: str) -> int:
    return filled.committed if isolation == "read_committed" else filled.written
