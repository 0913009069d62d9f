"""Moves of partitions by request, in every world: clients see another leader, and a move that somebody else takes back
meanwhile is evidence of nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from chaos.faults import make_fault
from chaos.layout import addresses
from chaos.nemesis import Nemesis
from chaos.observer import Observer
from chaos.papers import MemoryPapers
from chaos.plan import FAST_FAILOVER
from chaos.runtimes.contract import Runtime
from chaos.runtimes.docker.runtime import DockerRuntime
from chaos.runtimes.process.runtime import ProcessRuntime
from tests.live.contract.conftest import Test, in_simulation
from tests.live.engine import engine_and_images
from workloads.client import admin

PLACE = ("t", 0)


def on_machine(test: Test, runtime: Any) -> None:
    """Run a test's body on a cluster of real brokers."""

    async def run() -> None:
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


def three(where: str, folder: Path) -> Callable[[Test], None]:
    """Three of our brokers."""
    settings = dict(FAST_FAILOVER)
    if where == "sim":
        return lambda test: in_simulation(folder, test, settings=settings)
    if where == "process":
        return partial(on_machine, runtime=ProcessRuntime(folder / "run", settings=settings, proxied=False))
    return partial(on_machine, runtime=DockerRuntime(folder / "run", *engine_and_images(), settings=settings))


async def take_back(observer: Observer, replicas: tuple[int, ...]) -> None:
    """What another administrator does who wants the partition where it was."""
    while True:
        if (await observer.view()).replicas["t-0"] != replicas:
            await admin.alter_partition_reassignments(observer.client, {PLACE: list(replicas)}, timeout_ms=5000)
        await trio.sleep(0.02)


@pytest.mark.parametrize("where", ["process", "sim", "docker"])
def test_a_broker_is_emptied_and_filled_again_and_clients_see_it(tmp_path: Path, where: str) -> None:
    async def body(runtime: Runtime) -> None:
        papers, env = MemoryPapers("a run"), runtime.env("harness")
        observer = Observer(runtime.env("observer"), addresses(runtime.bootstrap("CLIENT")), runtime.nodes)
        async with trio.open_nursery() as nursery:
            await nursery.start(observer.client.run)
            await observer.create_topics([admin.NewTopic("t", 4, 2, {})], 60)
            for how, possible in (("drain", True), ("fill", True), ("fill", False)):
                fault = make_fault(0, 0.0, 6.0, "leadership", "node:2", {"how": how})
                await Nemesis(runtime, [fault], 1, env=env, cluster=observer, record=papers.fault).play()
                told = json.loads(papers.faults[-1])
                assert bool(told["evidence"]) is possible, told
                replicas = (await observer.view()).replicas
                if possible:
                    assert all((2 in replicas[name]) is (how == "fill") for name in told["evidence"]["after"])
                else:
                    assert all(2 in each for each in replicas.values()), "it holds all already"
            nursery.cancel_scope.cancel()

    three(where, tmp_path)(body)


@pytest.mark.parametrize("undone", [False, True], ids=["left_on", "undone"])
@pytest.mark.parametrize("where", ["process", "sim", "docker"])
def test_a_move_is_seen_by_clients_and_only_then_there_is_evidence(tmp_path: Path, where: str, undone: bool) -> None:
    async def body(runtime: Runtime) -> None:
        papers, env = MemoryPapers("a run"), runtime.env("harness")
        servers = addresses(runtime.bootstrap("CLIENT"))
        observer, other = (Observer(runtime.env(name), servers, runtime.nodes) for name in ("observer", "other"))
        async with trio.open_nursery() as nursery:
            await nursery.start(observer.client.run)
            await nursery.start(other.client.run)
            await observer.create_topics([admin.NewTopic("t", 1, 3, {})], 60)
            before = await observer.view()
            if undone:
                nursery.start_soon(take_back, other, before.replicas["t-0"])
            fault = make_fault(0, 0.0, 4.0, "leadership", "leader:t-0", {"how": "move"})
            await Nemesis(runtime, [fault], 1, env=env, cluster=observer, record=papers.fault).play()
            told = json.loads(papers.faults[-1])
            after = await observer.view()
            nursery.cancel_scope.cancel()
        assert bool(told["evidence"]) is not undone, told
        assert bool(told["error"]) is undone
        if not undone:
            assert told["evidence"]["answers"] == {"t-0": ""}
            assert after.leaders["t-0"] != before.leaders["t-0"], "the new preferred leader was elected"
            assert after.replicas["t-0"] == (*before.replicas["t-0"][1:], before.replicas["t-0"][0])

    three(where, tmp_path)(body)
