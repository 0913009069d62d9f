"""A workload driven by itself, without a run around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from squall.broker.env import Env
from squall.workloads.control import Controls
from squall.workloads.counters import Counters
from squall.workloads.libraries import Zone
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import Acknowledged, Operation, Scenario, Surroundings


async def drive(
    env: Any,
    zones: Sequence[Zone],
    scenario: Scenario,
    recorder: Recorder,
    stop: trio.Event,
    counters: Counters,
    *,
    envs: Callable[[str], Env] | None = None,
    acknowledged: Acknowledged | None = None,
    controls: Controls | None = None,
    operations: Sequence[Operation] | None = None,
) -> None:
    """Run a scenario, with controls that nothing uses if none are given."""
    traffic = scenario.traffic()
    hands = controls or Controls(traffic.producers, traffic.readers, traffic.zombies, traffic.members, traffic.named)
    await scenario.run(Surroundings(env, zones, recorder, counters, stop, hands, envs, acknowledged, operations))
