"""A started cluster in a simulation, with a client to send requests to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.chaos.runtimes.sim.world import SimWorld

Body = Callable[[SimRuntime], Awaitable[Any]]


@pytest.fixture
def simulated() -> Callable[..., Any]:
    """Return a function that runs a test's body on a started cluster of three, and returns its result."""

    def run(body: Body, *, seed: int = 7, nodes: int = 3) -> Any:
        world = SimWorld(seed)
        runtime = SimRuntime(world, nodes=nodes, settings=FAST_FAILOVER)

        async def whole() -> Any:
            await runtime.start()
            found = await body(runtime)
            await runtime.stop()
            return found

        return world.kernel.simulate(seed, whole)

    return run
