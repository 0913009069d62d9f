"""The table of foreign suites: where each is published, which cluster it needs, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.foreign_suites import fetching
from tests.foreign_suites.playing import Player, go_player, pytest_player


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that another project wrote for its own client. None of its files is changed."""

    name: str
    package: str
    """Its package's name in the registry."""
    version: str
    source: str
    """The address of its publication."""
    fetch: Callable[[Suite, Path], None]
    """Fills the suite's folder in the cache, once for each version."""
    player: Player
    nodes: tuple[int, ...] = (1,)
    """Broker ids of the cluster: some tests have them in their code."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that the suite's own set-up uses."""
    port: int | None = None
    """The broker's port in the suite's code. None: the suite gets addresses by `environment`."""
    environment: Callable[[str, str], Mapping[str, str]] = lambda bootstrap, version: {}
    """Returns the suite's environment variables, from bootstrap.servers and the version of Kafka."""
    minutes: float = 30.0
    """Time limit of the suite. Tests that have not ended by then have no result."""


ALONE: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "true",
}
"""Settings from the sample file of Apache Kafka for a single broker."""


def _kgo(bootstrap: str, version: str) -> Mapping[str, str]:
    del version
    # 500,000 records for each of dozens of ETL tests is for machines with many cores; its authors offer the number.
    return {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": "3", "KGO_TEST_RECORDS": "20000", "KGO_LOG_LEVEL": "none"}


SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "kgo",
            "github.com/twmb/franz-go",
            "v1.22.3",
            "Go's module proxy",
            lambda suite, folder: fetching.go_suite(suite.package, suite.version, "pkg/kgo", folder),
            go_player("pkg/kgo"),
            nodes=(1, 2, 3),
            environment=_kgo,
            minutes=60.0,
        ),
        Suite(
            "kafka-go",
            "github.com/segmentio/kafka-go",
            "v0.4.51",
            "Go's module proxy",
            lambda suite, folder: fetching.go_suite(suite.package, suite.version, ".", folder),
            go_player("."),
            # Squall's broker refuses to start where the first of the two is larger, as in the suite's own set-up.
            settings={**ALONE, "message.max.bytes": "200000000", "socket.request.max.bytes": "210000000"},
            port=9092,
            environment=lambda bootstrap, version: {"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"},
        ),
        Suite(
            "kafka-python",
            "kafka-python",
            "3.0.12",
            "PyPI, the source distribution",
            lambda suite, folder: fetching.kafka_python(suite.package, suite.version, folder),
            pytest_player("test/integration"),
            nodes=(0,),
            settings={
                **ALONE,
                "num.partitions": "4",
                "group.min.session.timeout.ms": "1000",
                "group.initial.rebalance.delay.ms": "0",
            },
            environment=lambda bootstrap, version: {
                "KAFKA_URI": f"kafka://{bootstrap}",
                "KAFKA_VERSION": version,
                "KAFKA_ROOT": ".",
            },
        ),
    )
}
