"""A disk becomes full during a run: whatever cannot be written, the cluster is stopped."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.progress import NullProgress
from squall.chaos.runs.run import Run
from squall.chaos.runs.run_store import MemoryRunStore
from squall.chaos.runtimes.contract import NodeState
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.chaos.runtimes.sim.world import SimWorld

pytestmark = pytest.mark.gate

PHASES = ("start the cluster", "create topics", "warm-up", "load", "final reads", "stop the cluster")


class Full(MemoryRunStore):
    """A RunStore whose disk is full from the beginning (or the end) of a phase on."""

    def __init__(self, phase: str, *, ended: bool) -> None:
        super().__init__("a run")
        self._phase, self._ended = phase, ended

    def info(self, info: dict[str, Any]) -> None:
        if any(each["name"] == self._phase and (each["ended"] or not self._ended) for each in info["phases"]):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().info(info)


class Stopped(SimRuntime):
    """Records the state of its nodes right after `stop`, because the end of a simulation ends all nodes anyway."""

    left: list[NodeState] | None = None

    async def stop(self) -> None:
        await super().stop()
        self.left = [self.state(node) for node in self.nodes]


@pytest.mark.parametrize("ended", [False, True], ids=["at-its-beginning", "at-its-end"])
@pytest.mark.parametrize("phase", PHASES)
def test_the_cluster_is_ended_although_nothing_can_be_written_down(phase: str, ended: bool) -> None:
    world = SimWorld(1)
    runtime = Stopped(world)
    load = {"topics": 1, "partitions": 1, "producers": 1, "readers": 1, "rate": 5}
    plan = make_plan({"seed": 1, "runtime": "sim", "time_s": 1, "warmup_s": 0.5, "workload": load, "faults": []})
    run = Run(plan, Full(phase, ended=ended), runtime, NullProgress(), "")
    with pytest.raises(BaseException) as stopped:
        world.kernel.simulate(1, run.go)
    assert "No space left on device" in repr(stopped.value)
    assert runtime.left == [NodeState.DOWN] * 3
