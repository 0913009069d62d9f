"""A directory that Kafka 4.3 has formatted ends our broker with one sentence that names what it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.toolchain.kafka import apache_kafka, at_hand
from chaos.toolchain.lookout import FETCH
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not at_hand(), reason=without("Apache Kafka and a whole Java", FETCH))

CLUSTER_ID, PORT = "4L6g3nShT-eMCtK--X86sw", 19092
ALONE = {"node.id": "1", "listeners": f"PLAINTEXT://127.0.0.1:{PORT}"}


def properties(path: Path, **more: str) -> Path:
    settings = {**ALONE, **{name.replace("_", "."): value for name, value in more.items()}}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def started_on(folder: Path, **more: str) -> tuple[int, list[str]]:
    """How our broker ended on a directory, and what it said."""
    config = properties(folder / "ours.properties", log_dirs=str(folder / "data"), **more)
    command = [sys.executable, "-m", "broker", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stderr.splitlines()


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formatted")
    theirs = properties(
        folder / "theirs.properties",
        log_dirs=str(folder / "data"),
        process_roles="broker,controller",
        controller_quorum_voters="1@127.0.0.1:19093",
        controller_listener_names="CONTROLLER",
        listeners=f"PLAINTEXT://127.0.0.1:{PORT},CONTROLLER://127.0.0.1:19093",
    )
    arguments = ["format", "-t", CLUSTER_ID, "-c", str(theirs)]
    command = apache_kafka(lambda line: None).command("kafka.tools.StorageTool", arguments)
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    return folder


def test_a_metadata_version_of_a_newer_kafka_is_named(formatted: Path) -> None:
    code, said = started_on(formatted, squall_cluster_id=CLUSTER_ID)
    assert code == 1
    [line] = said
    assert "bootstrap.checkpoint has metadata.version at level 30 (Kafka 4.3-IV0)" in line
    assert "supports levels 7 to 29" in line


def test_the_directory_of_another_cluster_is_named(formatted: Path) -> None:
    code, said = started_on(formatted)
    assert code == 1
    [line] = said
    assert f"says cluster.id={CLUSTER_ID}" in line
