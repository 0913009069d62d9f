"""Client zones on real brokers: only the clients of a zone are affected by a fault of the zone's links."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runtimes.contract import Link, Runtime
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.runtimes.layout import addresses, zone_names
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.checkers.history.values import producer_of
from squall.workloads.appends import AppendsLoad
from squall.workloads.control import LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from tests.live.contract.conftest import OnCluster, Test
from tests.live.contract.player import Seen, play
from tests.live.engine import engine_and_images
from tests.support.clusters.drive import drive
from tests.support.clusters.pretender import Pretending
from tests.support.patience import LONG_S, scaled, scaled_ms, slowed

ZONES = zone_names(2)
WORLD = {"nodes": 2, "zones": ZONES, "settings": FAST_FAILOVER}
REAL = {**WORLD, "settings": slowed(FAST_FAILOVER)}
LOAD = AppendsLoad(
    topics=1, partitions=2, replication_factor=2, min_isr=1, producers=2, readers=2, rate=100, request_timeout_ms=1000
)
SEEN = Seen(ClusterSnapshot((1, 2), 1, {}, {}, {}))
CUT_S, LASTS_S, SEVERAL = 3.0, 1.0, 10


class Load:
    """A producer and a reader in each of two zones. `acked` counts acknowledged records by the producer's number."""

    def __init__(self, runtime: Runtime, history: str) -> None:
        self.runtime, self.acked = runtime, Counter[int]()
        self.controls, self.stop = LoadControls(LOAD.producers, LOAD.readers), trio.Event()
        self._env = runtime.env("load")
        self._recorder = Recorder(self._env, history, "a run")

    async def run(self) -> None:
        zones = [ClientZone(name, addresses(self.runtime.bootstrap(name))) for name in ZONES]
        told = partial(drive, envs=self.runtime.env, acknowledged=self._acknowledged, controls=self.controls)
        load = LOAD if self.runtime.name == "sim" else LOAD.model_copy(update={"request_timeout_ms": scaled_ms(1000)})
        await told(self._env, zones, load, self._recorder, self.stop, LoadCounters())
        self._recorder.close()

    def _acknowledged(self, topic: str, partition: int, offset: int, value: int) -> None:
        process = producer_of(value)
        self.acked[next(at for at, each in enumerate(self.controls.producers) if process in each.processes)] += 1

    async def both(self) -> None:
        """Wait until a further record of each zone's producer is acknowledged."""
        before = Counter(self.acked)
        with trio.fail_after(LONG_S):
            while any(self.acked[number] == before[number] for number in range(LOAD.producers)):
                await trio.sleep(0.02)


async def played(runtime: Any, action: str, duration_s: float = LASTS_S, **params: Any) -> dict[str, Any]:
    """Inject a fault, and return its last line."""
    fault = make_fault(0, 0, scaled(duration_s, runtime.name), action, "zone:2", params)
    (line,) = await play(runtime, fault, cluster=SEEN)
    return line


def _in_processes(folder: Path, test: Test) -> None:
    trio.run(_on, ProcessRuntime(folder / "run", **REAL), test)  # type: ignore[arg-type]


def _in_containers(folder: Path, test: Test) -> None:
    trio.run(_on, DockerRuntime(folder / "run", *engine_and_images(), **REAL), test)  # type: ignore[arg-type]


async def _on(runtime: Runtime, test: Test) -> None:
    await runtime.start()
    try:
        await test(runtime)
    finally:
        await runtime.stop()


@pytest.fixture(params=[_in_processes, _in_containers], ids=["process", "docker"])
def on_zones(request: pytest.FixtureRequest, tmp_path: Path) -> OnCluster:
    """Return a function that runs a test's body on two of our brokers with two client zones, in processes and in
    containers.
    """
    return partial(request.param, tmp_path)


def test_a_zone_is_cut_off_and_the_other_one_goes_on(on_zones: OnCluster, tmp_path: Path) -> None:
    async def body(runtime: Runtime) -> None:
        load = Load(runtime, str(tmp_path / "history.jsonl"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.both()
            nursery.start_soon(_look_while_cut, runtime, load)
            line = await played(runtime, "partition", CUT_S)
            assert line["evidence"], line
            assert line["target"] == {"asked": "zone:2", "resolved": ["CLIENT2"]}
            assert line["evidence"]["links"] == ["CLIENT2->1", "CLIENT2->2"]
            await load.both()
            slow = await played(runtime, "latency", latency_ms=80)
            assert slow["evidence"]["links"] == ["CLIENT2->1", "CLIENT2->2"], slow
            alone = await played(runtime, "zone_isolation", keeps="controller")
            assert (alone["evidence"]["links"], alone["evidence"]["kept"]) == (["CLIENT2->2"], 1), alone
            reached = await played(Pretending(runtime), "zone_isolation", keeps="controller")
            assert reached["evidence"] is None, reached
            undone = await played(Pretending(runtime), "partition")
            assert undone["evidence"] is None
            assert undone["error"] == "a cut link answered, or a healed one did not"
            load.stop.set()

    on_zones(body)


async def _look_while_cut(runtime: Runtime, load: Load) -> None:
    """Assert, while the links of zone 2 pass nothing, that only zone 1's clients get answers."""
    with trio.fail_after(LONG_S):
        while await _passes(runtime):
            await trio.sleep(0.01)
        await _several(load)  # what had been answered before has been taken in by then
        before = Counter(load.acked)
        await _several(load)
    after = Counter(load.acked)
    assert not await _passes(runtime), "the second zone is cut off all the time"
    assert after[1] == before[1]


async def _passes(runtime: Runtime) -> bool:
    """Return whether any link of zone 2 passes data."""
    within_s = scaled(0.3, runtime.name)
    return any([(await runtime.probe(Link(ZONES[1], node), timeout_s=within_s)).ok for node in runtime.nodes])


async def _several(load: Load) -> None:
    """Wait until several further records of zone 1's producer are acknowledged."""
    until = load.acked[0] + SEVERAL
    while load.acked[0] < until:
        await trio.sleep(0.01)
