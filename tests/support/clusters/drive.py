"""Runs a workload alone, without faults and without the phases of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from squall.broker.env import Env
from squall.workloads.control import LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import Acknowledged, Operation, Scenario, ScenarioEnvironment


async def drive(
    env: Any,
    zones: Sequence[ClientZone],
    scenario: Scenario,
    recorder: Recorder,
    stop: trio.Event,
    counters: LoadCounters,
    *,
    envs: Callable[[str], Env] | None = None,
    acknowledged: Acknowledged | None = None,
    controls: LoadControls | None = None,
    operations: Sequence[Operation] | None = None,
) -> None:
    """Run a scenario until `stop` is set. Controls that are not given are replaced by ones that nothing uses."""
    traffic = scenario.traffic()
    hands = controls or traffic.controls()
    await scenario.run(ScenarioEnvironment(env, zones, recorder, counters, stop, hands, envs, acknowledged, operations))
