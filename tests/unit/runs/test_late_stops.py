"""A broker that takes longer to stop than the fault was to last."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from chaos.runtimes.contract import NodeState
from tests.unit.faults.test_acts import World, played


class Slow(World):
    """Brokers take three seconds to stop."""

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> dict[str, Any]:
        await trio.sleep(3)
        return await super().stop_node(node, grace_s=grace_s)


async def test_a_stop_that_came_too_late_is_no_evidence_and_leaves_no_broker_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Slow()
    last = (await played(world, "stop"))[-1]
    assert "longer than its 2 s" in last["error"] and last["evidence"] is None
    assert world.states[2] is NodeState.RUNNING
