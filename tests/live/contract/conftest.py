"""Fixtures that run each test of the contract in every world: OS processes, containers, and the simulator.

The contract is what plans may expect of any runtime. How the nemesis uses it is tested here on real brokers, and for
the simulator in `tests/sim/world`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runtimes.contract import Runtime
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.chaos.runtimes.sim.world import SimWorld
from tests.live.engine import STUB_INSIDE, STUB_MOUNT, engine_and_images
from tests.live.process.conftest import STUB
from tests.support.patience import slowed

Test = Callable[[Runtime], Awaitable[None]]
OnCluster = Callable[..., None]


def _in_processes(folder: Path, test: Test, **options: object) -> None:
    async def run() -> None:
        runtime = ProcessRuntime(folder / "run", program=STUB, **options)  # type: ignore[arg-type]
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


def in_simulation(folder: Path, test: Test, **options: object) -> None:
    """Run a test's body on simulated brokers, by default three."""
    world = SimWorld(7)
    runtime = SimRuntime(world, **options)  # type: ignore[arg-type]

    async def run() -> None:
        await runtime.start()
        await test(runtime)
        await runtime.stop()

    world.kernel.simulate(7, run)


def _in_containers(folder: Path, test: Test, **options: object) -> None:
    engine, images = engine_and_images()

    async def run() -> None:
        stub = {"program": STUB_INSIDE, "mounts": (STUB_MOUNT,)}
        runtime = DockerRuntime(folder / "run", engine, images, **stub, **options)  # type: ignore[arg-type]
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


IN_CONTAINERS = pytest.mark.night("in containers")


@pytest.fixture(
    params=[
        pytest.param(_in_processes, id="process"),
        pytest.param(in_simulation, id="sim"),
        pytest.param(_in_containers, id="docker", marks=IN_CONTAINERS),
    ]
)
def on_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> OnCluster:
    """Return a function that runs a test's body on a started cluster of three, in each world."""
    return partial(request.param, tmp_path)


@pytest.fixture(
    params=[
        pytest.param(_in_processes, id="process"),
        pytest.param(_in_containers, id="docker", marks=IN_CONTAINERS),
    ]
)
def on_real_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> OnCluster:
    """Return a function that runs a test's body on a started cluster of three real brokers."""
    return partial(request.param, tmp_path)


SETTINGS = {**FAST_FAILOVER, "broker.session.timeout.ms": "900", "broker.heartbeat.interval.ms": "150"}
"""Settings of a single broker with a short session. Only the broker's own restart waits for the session's end."""


def our_broker(folder: Path, test: Test, **options: object) -> None:
    """Run a test's body on one of our brokers in an OS process."""

    async def run() -> None:
        runtime = ProcessRuntime(
            folder / "run",
            nodes=1,
            settings=slowed(SETTINGS),
            proxied=False,
            faulted=True,
            seed=7,
            **options,  # type: ignore[arg-type]
        )
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


def our_contained_broker(folder: Path, test: Test, **options: object) -> None:
    """Run a test's body on one of our brokers in a container."""
    engine, images = engine_and_images()

    async def run() -> None:
        settings = slowed(SETTINGS)
        runtime = DockerRuntime(
            folder / "run", engine, images, nodes=1, settings=settings, faulted=True, seed=7, **options
        )  # type: ignore[arg-type]
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


def our_simulated_broker(folder: Path, test: Test, **options: object) -> None:
    """Run a test's body on one of our brokers in the simulator."""
    in_simulation(folder, test, nodes=1, settings=SETTINGS, **options)


@pytest.fixture(
    params=[
        pytest.param(our_broker, id="process"),
        pytest.param(our_simulated_broker, id="sim"),
        pytest.param(our_contained_broker, id="docker", marks=IN_CONTAINERS),
    ]
)
def on_broker(request: pytest.FixtureRequest, tmp_path: Path) -> OnCluster:
    """Return a function that runs a test's body on one of our brokers with a disk for faults, in each world."""
    return partial(request.param, tmp_path)


@pytest.fixture(
    params=[
        pytest.param(our_broker, id="process"),
        pytest.param(our_contained_broker, id="docker", marks=IN_CONTAINERS),
    ]
)
def on_real_broker(request: pytest.FixtureRequest, tmp_path: Path) -> OnCluster:
    """Return a function that runs a test's body on one of our brokers with a disk for faults, in a process and in a
    container.
    """
    return partial(request.param, tmp_path)
