"""Runs against a cluster that somebody else started from a compose file: faults, a verdict, and the cluster left as
before.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from squall.chaos.commands.clean import command as clean
from squall.chaos.errors import PreconditionError
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import Plan, make_plan, write_plan
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.real import run_and_judge, runtime_maker
from squall.chaos.runtimes.external.runtime import discover
from squall.chaos.runtimes.real.inquiry import visible_brokers
from squall.chaos.runtimes.real.processes.ports import LOOPBACK, free_ports
from squall.chaos.toolchain.compose_file import FILES, NODE, brokers_of
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.images import ImageNames, name_latest
from tests.live.docker.compose_program import compose

NAMES = {1: "alpha", 2: "beta", 3: "gamma"}
SERVICE = """
  {name}:
    image: squall-broker:latest
    command: ["python", "-P", "-m", "squall.broker", "--config", "/broker.properties"]
    labels: {{{label}: "{node}"}}
    init: true
    volumes: ["{folder}/{name}.properties:/broker.properties:ro"]
    ports: ["127.0.0.1:{port}:9092"]
"""
SETTINGS = """
node.id={node}
process.roles=broker,controller
controller.quorum.voters=1@alpha:9091,2@beta:9091,3@gamma:9091
listeners=INTERNAL://0.0.0.0:9091,CLIENT://0.0.0.0:9092
advertised.listeners=INTERNAL://{name}:9091,CLIENT://127.0.0.1:{port}
inter.broker.listener.name=INTERNAL
squall.peers={peers}
squall.cluster.id=QW5vdGhlckNsdXN0ZXJfXw
log.dirs=/data
default.replication.factor=3
min.insync.replicas=2
""" + "".join(f"{name}={value}\n" for name, value in FAST_FAILOVER.items())


class ForeignComposeCluster:
    """A foreign cluster of three brokers on free ports. Its service names have no numbers; `label` is the container
    label with the broker's id.
    """

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.file = folder, folder / "theirs.yaml"
        self.ports = dict(zip(NAMES, free_ports(3, set(), random.Random()), strict=True))
        text = 'version: "2.4"\nservices:'
        for node, name in NAMES.items():
            peers = ",".join(f"{peer}@{other}:9091" for peer, other in NAMES.items() if peer != node)
            placed = {"node": node, "name": name, "port": self.ports[node], "folder": folder}
            text += SERVICE.format(label=label, **placed)
            (folder / f"{name}.properties").write_text(SETTINGS.format(peers=peers, **placed))
        self.file.write_text(text)

    @property
    def bootstrap(self) -> str:
        """Return the address of one broker only."""
        return f"{LOOPBACK}:{self.ports[1]}"

    def compose(self, *words: str) -> None:
        """Run Compose in the file's folder with its bare name, because Compose 1 writes that name into labels."""
        command = [*compose(), "-p", f"squall-theirs-{os.getpid()}", "-f", self.file.name, *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    async def until_up(self) -> None:
        """Wait until every broker's Metadata names all brokers."""
        with trio.fail_after(60):
            for port in self.ports.values():
                while await sees(port) != set(NAMES):
                    await trio.sleep(0.1)

    def started(self, engine: DockerEngine) -> dict[int, str]:
        """Return the start time of each broker's container."""
        containers = brokers_of(self.file, engine.containers(FILES), list(NAMES))
        return {node: engine.state(container)["StartedAt"] for node, container in containers.items()}

    def plan(self, *faults: dict[str, Any]) -> Plan:
        """Return the plan of a short run against the cluster."""
        return make_plan(
            {
                "seed": 5,
                "runtime": "external",
                "target": "other",
                "bootstrap": self.bootstrap,
                "compose": str(self.file),
                "time_s": 24.0,
                "cluster": {"nodes": 3, "ids": [1, 2, 3], "settings": {}},
                "workload": {"rate": 100, "topics": 1, "partitions": 2},
                "faults": list(faults),
            }
        )


async def sees(port: int) -> frozenset[int]:
    with trio.move_on_after(1):
        try:
            return await visible_brokers(LOOPBACK, port)
        except OSError:
            pass
    return frozenset()


@pytest.fixture
def theirs(found: tuple[DockerEngine, ImageNames], tmp_path: Path) -> Iterator[ForeignComposeCluster]:
    """Yield the running cluster, with the broker ids as labels."""
    name_latest(*found)
    cluster = ForeignComposeCluster(tmp_path, NODE)
    try:
        cluster.compose("up", "-d")
        trio.run(cluster.until_up)
        yield cluster
    finally:
        cluster.compose("down", "-v", "-t", "2")


def fault(at_s: float, duration_s: float, action: str, target: str, **params: Any) -> dict[str, Any]:
    return {"at_s": at_s, "duration_s": duration_s, "action": action, "target": target, "params": params}


def test_containers_links_and_leaders_are_hurt_proven_and_put_back(
    theirs: ForeignComposeCluster, engine: DockerEngine, tmp_path: Path
) -> None:
    before = theirs.started(engine)
    plan = theirs.plan(
        fault(1, 2, "kill", "node:1"),
        fault(2, 1, "latency", "node:3", latency_ms=100, side="clients"),
        fault(8, 2, "pause", "node:3"),
        fault(12, 1, "leadership", "node:2", how="move"),
        fault(13, 1, "partition", "node:1", side="clients"),
        fault(15, 5, "stop", "node:2"),
    )
    directory = run_and_judge(plan, tmp_path / "runs")
    assert isinstance(directory, RunDirectory)
    info = directory.read_info()
    told = {line["id"]: line for line in map(json.loads, directory.nemesis.read_text().splitlines())}
    assert {each["action"]: each["error"] for each in told.values() if not each["evidence"]} == {}
    assert info["trouble"] is None
    assert json.loads(directory.verdict.read_text())["verdict"] == "valid"
    after = theirs.started(engine)
    assert {node for node in NAMES if before[node] != after[node]} == {1, 2}, "3 was paused, and let go on"
    there = trio.run(discover, theirs.bootstrap)
    assert set(there) == {1, 2, 3}
    assert not {name for name in there.topics if not name.startswith("_")}, "its topics are gone"


async def test_a_broker_that_ends_by_itself_is_told_and_started_again(
    theirs: ForeignComposeCluster, engine: DockerEngine, tmp_path: Path
) -> None:
    runtime = (await trio.to_thread.run_sync(runtime_maker, theirs.plan(), print))[0](tmp_path / "run")
    (tmp_path / "run").mkdir()
    await runtime.start()
    try:
        engine.kill(brokers_of(theirs.file, engine.containers(FILES), list(NAMES))[2])
        with trio.fail_after(10):
            while (healed := await runtime.heal())["started"] != [2]:
                await trio.sleep(0.1)
        assert healed["failed"] == []
        assert [(gone.node, gone.code) for gone in runtime.exits()] == [(2, 137)]
    finally:
        await runtime.stop()
    await theirs.until_up()


HURTS = """
import sys, time
from pathlib import Path
import trio
from squall.chaos.plans.plan import read_plan
from squall.chaos.runs.real import runtime_maker

async def main():
    runtime = runtime_maker(read_plan(Path(sys.argv[1])), print)[0](Path(sys.argv[2]))
    await runtime.start()
    await runtime.pause(1)
    await runtime.kill(2)
    print("hurt", flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


def test_what_a_killed_harness_left_down_or_paused_runs_again_by_clean(
    theirs: ForeignComposeCluster, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(write_plan(theirs.plan()))
    command = [sys.executable, "-c", HURTS, str(tmp_path / "plan.toml"), str(tmp_path / "run")]
    (tmp_path / "run").mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        assert any(line.strip() == "hurt" for line in harness.stdout)
        harness.kill()
    said = CliRunner().invoke(clean, [], standalone_mode=False).output
    assert "which it left paused again" in said
    assert "which it left exited again" in said
    trio.run(theirs.until_up)


def test_a_file_nobody_started_or_without_brokers_is_told(
    found: tuple[DockerEngine, ImageNames], engine: DockerEngine, tmp_path: Path
) -> None:
    name_latest(*found)
    unnamed = ForeignComposeCluster(tmp_path, "not.ours")
    with pytest.raises(PreconditionError, match=r"no container was made from .*theirs.yaml: start it first"):
        brokers_of(unnamed.file, engine.containers(FILES), (1, 2, 3))
    with pytest.raises(PreconditionError, match="there is no such file"):
        brokers_of(tmp_path / "missing.yaml", engine.containers(FILES), (1, 2, 3))
    try:
        unnamed.compose("up", "--no-start")
        with pytest.raises(
            PreconditionError, match=r"broker 1 is not one container .*found: none; there are .*alpha.*squall.node: 1"
        ):
            brokers_of(unnamed.file, engine.containers(FILES), (1, 2, 3))
    finally:
        unnamed.compose("down", "-v")
