"""The image squall/broker: a single broker that serves, is reported as healthy, keeps its records in a volume, and is
not root.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
import trio

from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.chaos.runtimes.real.processes.ports import free_ports
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.images import ImageNames, standalone_image
from tests.support.brokers.raw_client import RawClient
from tests.support.lacks import skip_without


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Standalone:
    """One container of the image."""

    def __init__(self, image: str) -> None:
        self.port, self.metrics_port = free_ports(2, (), random.Random())
        self.id = docker(
            "run", "-d", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "-p", f"127.0.0.1:{self.port}:9092", "-p", f"127.0.0.1:{self.metrics_port}:9404", image,
            f"advertised.listeners=CLIENT://127.0.0.1:{self.port},INTERNAL://127.0.0.1:9091",
        )  # fmt: skip

    async def until_healthy(self) -> None:
        with trio.fail_after(120):
            while docker("inspect", "-f", "{{.State.Health.Status}}", self.id) != "healthy":
                await trio.sleep(0.5)

    def metrics(self) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as answer:
            return bytes(answer.read())

    def topics(self) -> set[str]:
        with RawClient(self.port) as client:
            answer = client.ask(MetadataRequest(topics=None), 12)
            assert [each.port for each in answer.brokers] == [self.port]
            return {str(topic.name) for topic in answer.topics}


@pytest.fixture
def standalone(found: tuple[DockerEngine, ImageNames]) -> Iterator[Standalone]:
    if shutil.which("docker") is None:
        skip_without("the docker program", "install Docker's command line")
    made = Standalone(standalone_image(*found, lambda line: None))
    try:
        yield made
    finally:
        docker("rm", "-f", "-v", made.id)


async def test_one_broker_serves_is_healthy_and_keeps_its_topics(standalone: Standalone) -> None:
    await standalone.until_healthy()
    assert docker("exec", standalone.id, "id", "-u") == "1000"
    with RawClient(standalone.port) as client:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
    assert "t" in standalone.topics()
    assert b"kafka_server_kafkaserver_brokerstate 3\n" in standalone.metrics()
    docker("stop", "-t", "30", standalone.id)
    assert docker("inspect", "-f", "{{.State.ExitCode}}", standalone.id) == "0", "a controlled shutdown"
    docker("start", standalone.id)
    await standalone.until_healthy()
    assert "t" in standalone.topics()
