"""A fault that is switched off behind the nemesis's back has no evidence, and the verdict is unknown. Simulated ones:
`tests/sim/world/test_swallowed_faults.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Evidence, Runtime
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.live.contract.player import play
from tests.support.patience import scaled

Faults = list[tuple[str, dict[str, Any]]]
OF_DISKS: Faults = [
    ("power_loss", {}),
    ("crash_at", {"op": "write", "nth": 3}),
    ("disk", {"how": "slow", "op": "fsync", "delay_ms": 30}),
    ("disk", {"how": "EIO", "op": "write"}),
]
OF_CLOCKS: Faults = [
    ("clock", {"offset_ms": 60_000}),
    ("clock", {"offset_ms": -5_000, "strobe_ms": 300}),
    ("clock", {"offset_ms": 86_400_000, "strobe_ms": 300}),
    ("clock", {"offset_ms": -86_400_000, "strobe_ms": 300}),
]


class SwitchedOff:
    """A runtime that undoes every fault at once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def fault_disk(self, name: str, node: int, fault: Any) -> Evidence:
        told = await self._runtime.fault_disk(name, node, fault)
        await self._runtime.heal_disk(name, node)
        return told

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        return await self._runtime.set_clock(node, 0.0)

    async def fake_time(self, node: int, offset_ms: float) -> Evidence:
        return await self._runtime.fake_time(node, 0.0)  # type: ignore[attr-defined,no-any-return]

    async def crash_at(self, node: int, op: Any, nth: int, *, within_s: float) -> Evidence:
        return await self._runtime.crash_at(node, op, nth, within_s=0.0)

    async def power_loss(self, nodes: Any) -> Evidence:
        return {"nodes": {}, "killed": [await self._runtime.kill(node) for node in nodes]}


async def played(
    runtime: Any, real: Runtime, action: str, params: dict[str, Any], *, duration_s: float = 1.6, topic: str = "t"
) -> dict[str, Any]:
    """Inject a fault while records are sent to a new topic, and return its last line."""
    client = OneClient(real)
    await client.create(topic, flush_messages="1")
    fault = make_fault(0, 0.0, scaled(duration_s, real.name), action, "node:1", params)

    async def load() -> None:
        while True:
            with trio.move_on_after(0.5):
                await client.refused(topic)
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        (told,) = await play(runtime, fault)
        nursery.cancel_scope.cancel()
    return told


@pytest.mark.parametrize(
    "faults", [pytest.param(OF_DISKS, id="disks", marks=pytest.mark.gate), pytest.param(OF_CLOCKS, id="clocks")]
)
@pytest.mark.parametrize("off", [False, True], ids=["left_on", "switched_off"])
def test_only_what_is_left_on_has_evidence(on_real_broker: OnCluster, off: bool, faults: Faults) -> None:
    async def body(runtime: Runtime) -> None:
        for number, (action, params) in enumerate(faults):
            view = SwitchedOff(runtime) if off else runtime
            told = await played(view, runtime, action, params, topic=f"t{number}")
            assert bool(told["evidence"]) is not off, told
            assert bool(told["error"]) is off

    on_real_broker(body)
