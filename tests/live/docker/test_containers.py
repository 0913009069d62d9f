"""A run's containers are created as intended, and the failure of one is reported."""

from __future__ import annotations

import os
from ipaddress import IPv4Network
from typing import Any

import pytest
import trio

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Cut, CutMode, Link, NodeState
from squall.chaos.runtimes.docker import addresses
from squall.chaos.runtimes.docker import backend as module
from squall.chaos.runtimes.docker.backend import BROKER_MEMORY
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.toolchain.engine import DockerEngine
from tests.live.docker.conftest import MakeRuntime, of_run
from tests.support.lacks import without

EVERYTHING = ["broker-1", "broker-2", "broker-3", "network", "toxiproxy"]


def inspected(engine: DockerEngine, run: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = engine._api.inspect_container(f"squall-{run}-{name}")
    return found


@pytest.mark.gate
async def test_containers_have_limits_and_no_privilege_and_reach_nothing_else(
    runtime: DockerRuntime, engine: DockerEngine
) -> None:
    assert of_run(engine, runtime.run) == EVERYTHING
    broker = inspected(engine, runtime.run, "broker-1")
    host = broker["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == BROKER_MEMORY
    assert (host["CpuQuota"], host["CpuPeriod"]) == (100_000, 100_000)
    assert (host["Privileged"], host["CapAdd"], host["CapDrop"]) == (False, None, ["ALL"])
    assert host["ReadonlyRootfs"] is True
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert broker["Config"]["User"].partition(":")[0] != "0"
    (network,) = broker["NetworkSettings"]["Networks"].values()
    assert network["IPAddress"].endswith(".11")
    assert engine._api.inspect_network(network["NetworkID"])["Internal"] is True


async def test_a_stopped_cluster_leaves_its_files_and_nothing_in_the_engine(
    runtime: DockerRuntime, engine: DockerEngine
) -> None:
    await runtime.stop()
    assert of_run(engine, runtime.run) == []
    for node in runtime.nodes:
        assert "node_stopped" in runtime.trace_path(node).read_text()
        assert runtime.log_path(node).exists()
        assert runtime.data_path(node).is_dir()


async def test_a_broker_that_ends_by_itself_is_told_of(runtime: DockerRuntime, engine: DockerEngine) -> None:
    await trio.to_thread.run_sync(engine.kill, f"squall-{runtime.run}-broker-2")
    with trio.fail_after(10):
        while runtime.state(2) is not NodeState.DOWN:
            await trio.sleep(0.01)
    (gone,) = runtime.exits()
    assert (gone.node, gone.incarnation, gone.code) == (2, 1, -9)


async def test_without_toxiproxy_no_link_can_be_hurt_and_nothing_is_healed(
    runtime: DockerRuntime, engine: DockerEngine
) -> None:
    await trio.to_thread.run_sync(engine.kill, f"squall-{runtime.run}-toxiproxy")
    with trio.fail_after(10):
        while (await runtime.probe(Link(1, 2))).ok:
            await trio.sleep(0.01)
    with pytest.raises(HarnessError, match="Toxiproxy"):
        await runtime.fault_link("cut", Link(1, 2), Cut(CutMode.DROP))
    with pytest.raises(HarnessError, match="Toxiproxy"):
        await runtime.heal()
    await runtime.stop()
    assert of_run(engine, runtime.run) == []


async def test_a_broker_that_does_not_start_is_told_with_its_last_words(
    make_runtime: MakeRuntime, engine: DockerEngine
) -> None:
    runtime = make_runtime(settings={"stub.fail": "1"})
    with pytest.raises(HarnessError, match=r"broker [123] ended with 1:\nstub: told to fail"):
        await runtime.start()
    assert of_run(engine, runtime.run) == []


async def test_a_program_that_is_not_in_the_image_is_told(make_runtime: MakeRuntime, engine: DockerEngine) -> None:
    runtime = make_runtime(program=("no-such-program",))
    with pytest.raises(HarnessError, match="no-such-program: not found"):
        await runtime.start()
    assert of_run(engine, runtime.run) == []


async def test_a_range_that_was_taken_meanwhile_is_passed_over(
    make_runtime: MakeRuntime, runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = IPv4Network(runtime.bootstrap("CLIENT").partition(":")[0] + "/24", strict=False)
    free = next(addresses.free_ranges([taken, *addresses.routed()], module.random.Random(1)))
    monkeypatch.setattr(module, "free_ranges", lambda taken_, rng: iter([taken, free]))
    second = make_runtime(nodes=1)
    await second.start()
    assert second.bootstrap("CLIENT").startswith(str(free.network_address)[:-1])


async def test_where_every_range_is_taken_the_run_is_refused(
    make_runtime: MakeRuntime, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_ranges", lambda taken, rng: iter(()))
    runtime = make_runtime()
    with pytest.raises(PreconditionError, match="no free network range.*docker network prune"):
        await runtime.start()
    assert of_run(engine, runtime.run) == []


async def test_two_clusters_do_not_share_a_folder(make_runtime: MakeRuntime, runtime: DockerRuntime) -> None:
    second = make_runtime(folder="run0")
    with pytest.raises(PreconditionError, match="another cluster is running on"):
        await second.start()


@pytest.mark.skipif(os.getuid() != 0, reason=without("root, who can be somebody else", "call it as root"))
async def test_where_the_harness_is_root_brokers_are_not(runtime: DockerRuntime) -> None:
    assert runtime.trace_path(1).stat().st_uid == module.NOBODY
