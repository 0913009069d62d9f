"""The worlds that the contract's tests are run in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from chaos.runtimes.contract import Runtime
from chaos.runtimes.process.runtime import ProcessRuntime
from chaos.runtimes.sim.runtime import SimRuntime
from chaos.runtimes.sim.world import World
from tests.live.process.conftest import STUB

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


def _in_simulation(folder: Path, test: Test, **options: object) -> None:
    world = World(7)
    runtime = SimRuntime(world, **options)  # type: ignore[arg-type]

    async def run() -> None:
        await runtime.start()
        await test(runtime)
        await runtime.stop()

    world.kernel.simulate(7, run)


@pytest.fixture(params=[_in_processes, _in_simulation], ids=["process", "sim"])
def on_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> OnCluster:
    """Runs a test's body on a started cluster of three, in each world."""
    return partial(request.param, tmp_path)
