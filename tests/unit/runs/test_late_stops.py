"""A broker that takes longer to stop than the fault was to last."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.runtimes.contract import NodeState
from tests.unit.faults.test_acts import World, played


class Slow(World):
    """Brokers take three seconds to stop."""

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> dict[str, Any]:
        await trio.sleep(3)
        return await super().stop_node(node, grace_s=grace_s)


async def test_a_broker_that_stops_slowly_is_down_for_its_time_and_started_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Slow()
    last = (await played(world, "stop"))[-1]
    assert last["evidence"], last["error"]
    assert last["ended"] - last["on"] == pytest.approx(2e9, abs=1e8)
    assert world.states[2] is NodeState.RUNNING
