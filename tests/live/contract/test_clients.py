"""Faults of the workload's clients on real brokers: other clients notice that one has crashed or hangs, and a fault
that is undone at once has no evidence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Runtime
from squall.chaos.runtimes.layout import addresses
from squall.workloads.appends import AppendsLoad
from squall.workloads.control import ClientHandle, LoadControls
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.live.contract.player import play, unproven
from tests.support.clusters.drive import drive
from tests.support.patience import LONG_S, scaled

LOAD = AppendsLoad(topics=1, partitions=1, replication_factor=1, min_isr=1, producers=1, readers=1, rate=200)
(TOPIC,) = LOAD.topic_names()
ON_S, QUIET_S = 0.8, 0.25
"""Duration of a fault, and how long before its end nothing of the affected client may arrive any more. Both are scaled.
"""
FAULTS = [("producer:0", "crash"), ("producer:0", "pause"), ("reader:0", "pause")]


class Watched(ClientHandle):
    """The handle of a client. With `undo` every fault of it is undone at once."""

    undo = False

    def hold(self, who: int) -> None:
        super().hold(who)
        if self.undo:
            self.let_go(who)

    def crash(self, who: int) -> int | None:
        gone = super().crash(who)
        if self.undo:
            self.replace(who)
        return gone


class Load:
    """A producer and a reader at work."""

    def __init__(self, runtime: Runtime, history: Path) -> None:
        self.runtime, self._history = runtime, history
        self.producer, self.reader = Watched("producer 0"), Watched("reader 0")
        self.hands = LoadControls(0, 0)
        self.hands.producers.append(self.producer)
        self.hands.readers.append(self.reader)
        self.counters, self.stop = LoadCounters(), trio.Event()

    async def run(self) -> None:
        """Run until it is stopped."""
        env = self.runtime.env("workload")
        env.fs.mkdirs(str(self._history.parent))
        recorder = Recorder(env, str(self._history), "run-1")
        zone = ClientZone("CLIENT", addresses(self.runtime.bootstrap("CLIENT")))
        await drive(env, [zone], LOAD, recorder, self.stop, self.counters, controls=self.hands)
        recorder.close()

    async def going(self) -> None:
        """Wait until a record was produced and read."""
        acked, polled = self.counters.acked, self.reader.done
        with trio.fail_after(LONG_S):
            while self.counters.acked <= acked or self.reader.done <= polled:
                await trio.sleep(0.02)

    async def played(self, target: str, how: str) -> dict[str, Any]:
        """Inject a fault of a client, and return its last line."""
        fault = make_fault(0, 0.0, scaled(ON_S, self.runtime.name), "client", target, {"how": how})
        (line,) = await play(self.runtime, fault, clients=self.hands)
        return line


async def watched(load: Load, target: str) -> tuple[bool, bool]:
    """Observe a client that has a fault now. Returns whether anything of it arrived until just before the fault's end,
    and whether nothing did in the last moments. A producer's records are observed by another client, as the partition's
    end.
    """
    client, env = OneClient(load.runtime), load.runtime.env("clock")
    on_s, quiet_s = (scaled(seconds, load.runtime.name) for seconds in (ON_S, QUIET_S))
    first = last = await client.end(TOPIC) if target.startswith("producer") else load.reader.done
    began = changed = env.mono()
    while env.mono() < began + on_s - 0.1:
        await trio.sleep(0.02)
        now = await client.end(TOPIC) if target.startswith("producer") else load.reader.done
        if now != last:
            last, changed = now, env.mono()
    return last > first, env.mono() - changed > quiet_s


def test_a_client_that_is_hit_is_missed_and_only_then_there_is_evidence(
    on_real_broker: OnCluster, tmp_path: Path
) -> None:
    async def body(runtime: Runtime) -> None:
        load = Load(runtime, tmp_path / "history.jsonl")

        async def check(target: str, how: str, undo: bool) -> None:
            await load.going()
            load.producer.undo = load.reader.undo = undo
            seen: list[tuple[bool, bool]] = []

            async def look() -> None:
                seen.append(await watched(load, target))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                line = await load.played(target, how)
            assert bool(line["evidence"]) is not undo, line
            assert bool(unproven(line)) is undo
            ((went_on, was_quiet),) = seen
            assert went_on if undo else was_quiet, (target, how)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            for target, how in FAULTS:
                for undo in (False, True):
                    await check(target, how, undo)
            await load.going()
            load.stop.set()
        assert len(load.producer.processes) >= 3, "each crash had a successor"

    on_real_broker(body)
