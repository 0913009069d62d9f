"""The metrics of a broker's OS process over real sockets, with the longest time without a yield, and broken requests.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.brokers.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("metrics"), {"squall.metrics.port": "0"})
    try:
        yield made
    finally:
        made.stop()


def port_of(broker: BrokerProcess) -> int:
    return next(int(str(each["port"])) for each in broker.events() if each["e"] == "metrics_ready")


def scrape(broker: BrokerProcess) -> dict[str, float]:
    """Return the samples without labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port_of(broker)}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        families = text_string_to_metric_families(answer.read().decode())
        return {s.name: s.value for each in families for s in each.samples if not s.labels}


def test_a_scrape_is_read_by_prometheus_own_parser_and_has_the_longest_turn(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    broker.wait_for(lambda: scrape(broker)["kafka_server_replicamanager_leadercount"] == 3)
    found = scrape(broker)
    assert found["kafka_server_kafkaserver_brokerstate"] == 3
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert found["squall_longest_turn_seconds"] > 0


def test_it_listens_on_loopback_alone(broker: BrokerProcess) -> None:
    wanted = f"{port_of(broker):04X}"
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert [each.split(":")[0] for each in listening if each.endswith(f":{wanted}")][:1] == ["0100007F"]


@pytest.mark.parametrize("broken", [b"\0" * 100_000, b"GET /metrics\r\n\r\n", b"POST / HTTP/1.1\r\nHost: h\r\n\r\n"])
def test_a_broken_request_ends_its_connection_and_nothing_else(broker: BrokerProcess, broken: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker)), timeout=60) as link:
        try:
            link.sendall(broken)
            while link.recv(4096):
                pass
        except ConnectionError:
            pass  # a reset: it was closed with bytes unread
    assert scrape(broker)["kafka_server_kafkaserver_brokerstate"] == 3
