"""Runs a workload against a scripted cluster, and records its history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from squall.broker.real_files import RealFs
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import History
from squall.workloads.counters import LoadCounters
from squall.workloads.final_reads import FinalReadResult, final_reads
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import Scenario
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.drive import drive
from tests.support.clusters.fake_cluster import FakeCluster


class DrivenCluster:
    """A scripted cluster, its workload, and the file that the history is written to."""

    def __init__(self, path: Path, scenario: Scenario, seed: int = 1) -> None:
        self.cluster = FakeCluster()
        self.env: Any = FakeEnv(self.cluster, seed, RealFs())
        self.path, self.scenario = path, scenario
        self.zones = [ClientZone("", self.cluster.bootstrap)]
        self.counters = LoadCounters()
        self.finals: list[FinalReadResult] = []

    async def play(
        self,
        seconds: float,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        *,
        finals: bool = True,
        timeout_s: float = 20,
    ) -> None:
        """Run the workload for so many seconds, with `meanwhile` as a concurrent task, and do the final reads after it.
        """
        recorder, stop = Recorder(self.env, str(self.path), "run-1"), trio.Event()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.cluster.run)
            async with trio.open_nursery() as running:
                running.start_soon(drive, self.env, self.zones, self.scenario, recorder, stop, self.counters)
                if meanwhile is not None:
                    running.start_soon(meanwhile)
                await trio.sleep(seconds)
                stop.set()
            if finals:
                bootstrap, places = self.cluster.bootstrap, self.scenario.places()
                self.finals = await final_reads(self.env, bootstrap, places, recorder, timeout_s=timeout_s)
            nursery.cancel_scope.cancel()
        recorder.close()

    def history(self) -> History:
        with self.path.open("rb") as lines:
            history = parse(lines)
        assert history.problem is None, history.problem
        return history
