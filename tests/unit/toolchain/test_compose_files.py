"""Compose files: what is started by them is pinned, listens on loopback only, and is never privileged."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.lacks import skip_without

COMPOSE = Path(__file__).parents[3] / "compose"
FILES = sorted(COMPOSE.glob("*.yaml"))
METRICS = COMPOSE / "metrics.yaml"
OURS = re.compile(r"squall-[a-z]+:latest")
PINNED = re.compile(r"[a-z0-9/-]+:v?\d+\.\d+\.\d+")


def services(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text())["services"]
    return found


def test_there_are_such_files() -> None:
    assert {file.name for file in FILES} == {"cluster.yaml", "metrics.yaml"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_images_are_our_own_or_pinned(file: Path) -> None:
    for name, service in services(file).items():
        assert OURS.fullmatch(service["image"]) or PINNED.fullmatch(service["image"]), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_service_has_more_rights_than_it_needs(file: Path) -> None:
    for name, service in services(file).items():
        assert not service.keys() & {"privileged", "cap_add", "devices", "pid", "userns_mode"}, name
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not any("docker.sock" in str(volume) for volume in service.get("volumes", ())), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_ports_are_those_of_loopback(file: Path) -> None:
    for name, service in services(file).items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_mounted_files_exist_and_stay_as_they_are(file: Path) -> None:
    for service in services(file).values():
        for volume in service.get("volumes", ()):
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                assert (file.parent / source).exists(), volume
                assert rest.endswith(":ro"), volume


@pytest.mark.night("needs docker compose, which the gate does without")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_compose_itself_takes_the_file(file: Path) -> None:
    for program in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(program[0]) is None:
            continue
        if subprocess.run([*program, "version"], capture_output=True).returncode == 0:
            done = subprocess.run([*program, "-f", str(file), "config", "-q"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return
    skip_without("docker compose", "install Docker's compose plugin, or docker-compose")


def test_on_this_machines_network_both_listen_on_loopback() -> None:
    found = services(METRICS)
    assert {service["network_mode"] for service in found.values()} == {"host"}
    assert "--web.listen-address=127.0.0.1:9090" in found["prometheus"]["command"]
    assert found["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_the_board_asks_the_prometheus_that_scrapes_the_run() -> None:
    (source,) = yaml.safe_load((COMPOSE / "metrics/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    board = json.loads((COMPOSE / "metrics/boards/squall.json").read_text())
    assert source["url"] == "http://127.0.0.1:9090"
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    (provider,) = yaml.safe_load((COMPOSE / "metrics/provisioning/dashboards/squall.yml").read_text())["providers"]
    assert f"./metrics/boards:{provider['options']['path']}:ro" in services(METRICS)["grafana"]["volumes"]
    (job,) = yaml.safe_load((COMPOSE / "metrics/prometheus.yml").read_text())["scrape_configs"]
    (target,) = [target for each in job["static_configs"] for target in each["targets"]]
    port = target.removeprefix("127.0.0.1:")
    for told in (METRICS, COMPOSE.parent / "docs/metrics.md"):
        assert f"./squall run --metrics {port}" in told.read_text()
