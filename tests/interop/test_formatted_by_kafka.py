"""A data directory that Kafka 4.3 has formatted: our broker uses it, or ends with one sentence that names what it
lacks.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from squall.chaos.runtimes.real.processes.ports import free_ports
from squall.chaos.runtimes.real.processes.registry import claimed_ports
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

CLUSTER_ID, PORT = "4L6g3nShT-eMCtK--X86sw", 19092
ALONE = {"node.id": "1", "listeners": f"PLAINTEXT://127.0.0.1:{PORT}"}
THEIRS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"PLAINTEXT://127.0.0.1:{PORT},CONTROLLER://127.0.0.1:19093",
}
WITHIN_S = 30.0


def properties(path: Path, settings: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def formatted(folder: Path, settings: dict[str, str], *options: str) -> Path:
    config = properties(folder / "theirs.properties", {**THEIRS, "log.dirs": str(folder / "data"), **settings})
    arguments = ["format", "-t", CLUSTER_ID, "-c", str(config), *options]
    command = apache_kafka(lambda line: None).command("kafka.tools.StorageTool", arguments)
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with Kafka's default features and with voters named in the configuration."""
    folder = tmp_path_factory.mktemp("static")
    return formatted(folder, {"controller.quorum.voters": "1@127.0.0.1:19093"})


def command_on(folder: Path, **more: str) -> list[str]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = properties(folder / "ours.properties", {**ALONE, "log.dirs": str(folder / "data"), **given})
    return [sys.executable, "-m", "squall.broker", "--config", str(config)]


def ended_on(folder: Path, **more: str) -> str:
    """Return the one line that our broker prints when it refuses a directory and exits."""
    ended = subprocess.run(command_on(folder, **more), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    return line


def test_the_directory_of_another_cluster_is_named(static: Path) -> None:
    assert f"says cluster.id={CLUSTER_ID}" in ended_on(static)


def test_voters_that_the_log_itself_names_are_named(tmp_path: Path) -> None:
    bootstrap = {"controller.quorum.bootstrap.servers": "127.0.0.1:19093"}
    said = ended_on(formatted(tmp_path, bootstrap, "--standalone"), squall_cluster_id=CLUSTER_ID)
    assert "has kraft.version at level 1" in said
    assert "voters that controller.quorum.voters names" in said


def await_ready(broker: subprocess.Popen[bytes], trace: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not (trace.exists() and '"node_ready"' in trace.read_text()):
        assert broker.poll() is None, "it ended"
        assert time.monotonic() < deadline, "it is not ready"
        time.sleep(0.05)


def test_ours_begins_a_cluster_with_what_kafka_has_formatted(static: Path) -> None:
    trace = static / "trace.jsonl"
    [port] = free_ports(1, claimed_ports(), random.SystemRandom())
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    command = command_on(static, squall_cluster_id=CLUSTER_ID, squall_trace_path=str(trace), listeners=listener)
    with subprocess.Popen(command) as broker:
        try:
            await_ready(broker, trace)
        finally:
            broker.kill()
    log = static / "data" / "__cluster_metadata-0" / f"{0:020}.log"
    arguments = ["--cluster-metadata-decoder", "--files", str(log)]
    dump = apache_kafka(lambda line: None).command("org.apache.kafka.tools.DumpLogSegments", arguments)
    said = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=120).stdout
    rows = [json.loads(line.partition(" payload: ")[2]) for line in said.splitlines() if " payload: {" in line]
    levels = {row["data"]["name"]: row["data"]["featureLevel"] for row in rows if row["type"] == "FEATURE_LEVEL_RECORD"}
    assert levels["metadata.version"] == 30
    assert levels["group.version"] == levels["share.version"] == levels["streams.version"] == 1
    [registered] = [row for row in rows if row["type"] == "REGISTER_BROKER_RECORD"]
    assert registered["version"] == 4, "the first with cordoned directories"
