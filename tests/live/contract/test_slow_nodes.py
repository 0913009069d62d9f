"""A limited CPU share, in every world that supports it: clients wait, and the measured share is the configured one."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import NodeState, Runtime, RuntimeCapability
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.live.contract.test_switched_off import SwitchedOff, played

SHARE = 0.1
ROUNDS = 40


def test_a_slow_node_makes_its_clients_wait_and_was_held_for_its_share(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        assert RuntimeCapability.SLOW in runtime.acts
        client, env = OneClient(runtime), runtime.env("clock")
        await client.create("t")

        async def took_s() -> float:
            began = env.mono()
            await client.must_produce("t", ROUNDS)
            return env.mono() - began

        await took_s()
        quick_s = await took_s()
        await runtime.slow_cpu("one", 1, 0.5)
        await runtime.slow_cpu("two", 1, SHARE)
        with pytest.raises(HarnessError, match="two"):
            await runtime.slow_cpu("two", 1, SHARE)
        assert await took_s() > quick_s
        await trio.sleep(1.0)
        assert (await runtime.heal_cpu("one", 1))["stops"] == 0, "the other one is still on"
        told: Any = await runtime.heal_cpu("two", 1)
        assert told["stops"] >= 5
        assert told["ran_share"] <= 0.3
        assert told["cpu_share"] is None or told["cpu_share"] <= told["ran_share"] + 0.1
        assert (await runtime.heal_cpu("two", 1))["stops"] == 0

    on_real_broker(body)


def test_a_slow_node_can_be_paused_killed_and_healed_like_any_other(on_real_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        assert RuntimeCapability.SLOW in runtime.acts
        await runtime.slow_cpu("f", 1, 0.3)
        await runtime.pause(1)
        await trio.sleep(0.3)
        assert runtime.state(1) is NodeState.PAUSED
        await runtime.resume(1)
        await runtime.pause(1)
        await runtime.kill(1)
        await runtime.start_node(1)
        told: Any = await runtime.heal_cpu("f", 1)
        assert told["stops"] >= 3
        await runtime.slow_cpu("f", 1, 0.3)
        assert (await runtime.heal())["failed"] == []
        assert (await runtime.heal_cpu("f", 1))["stops"] == 0

    on_real_broker(body)


class Restored(SwitchedOff):
    """A runtime that lifts the CPU limit at once."""

    async def slow_cpu(self, name: str, node: int, share: float) -> Any:
        told = await self._runtime.slow_cpu(name, node, share)
        await self._runtime.heal_cpu(name, node)
        return told


@pytest.mark.parametrize("off", [False, True], ids=["left_on", "switched_off"])
def test_only_what_is_left_on_has_evidence(on_real_broker: OnCluster, off: bool) -> None:
    async def body(runtime: Runtime) -> None:
        assert RuntimeCapability.SLOW in runtime.acts
        told = await played(Restored(runtime) if off else runtime, runtime, "slow", {"share": 0.2})
        assert bool(told["evidence"]) is not off, told
        assert bool(told["error"]) is off

    on_real_broker(body)
