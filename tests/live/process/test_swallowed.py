"""Faults that somebody ends early, or that hit what was silent already: none of them has landed."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from chaos.faults.targets import ClusterView
from chaos.faults.vocabulary import make_fault
from chaos.runtimes.process.runtime import ProcessRuntime
from tests.live.contract.player import Seen, play, unproven
from tests.live.process.test_nodes import pids

SEEN = Seen(ClusterView((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)}))


async def test_a_pause_that_somebody_ended_is_no_pause(runtime: ProcessRuntime) -> None:
    async def let_go() -> None:
        await trio.sleep(0.8)
        os.kill(pids(runtime)["broker 2"], signal.SIGCONT)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_go)
        (line,) = await play(runtime, make_fault(0, 0, 2.0, "pause", "node:2", {}), cluster=SEEN)
    assert line["evidence"] is None
    assert "let go by somebody else" in line["error"]
    assert unproven(line)
    (line,) = await play(runtime, make_fault(0, 0, 1.0, "pause", "node:2", {}), cluster=SEEN)
    assert line["evidence"]


@pytest.mark.parametrize("manner", ["refuse", "drop", "hold"])
async def test_a_cut_of_links_to_a_broker_that_was_dead_all_the_time_is_no_cut(
    runtime: ProcessRuntime, manner: str
) -> None:
    kill = make_fault(0, 0, 4.5, "kill", "node:2", {})
    cut = make_fault(1, 0.5, 4.3, "partition", "node:2", {"manner": manner, "side": "clients"})
    killed, isolated = await play(runtime, kill, cut, cluster=SEEN)
    assert killed["evidence"]
    assert isolated["evidence"] is None
    assert "no link answered before it was cut" in isolated["error"]
    assert unproven(isolated)


async def test_a_cut_that_somebody_healed_is_no_cut(runtime: ProcessRuntime) -> None:
    async def heal() -> None:
        await trio.sleep(1.0)
        for link in runtime.links():
            await runtime.heal_link("fault-0", link)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal)
        fault = make_fault(0, 0, 2.5, "partition", "node:2", {"manner": "drop", "side": "both"})
        (line,) = await play(runtime, fault, cluster=SEEN)
    assert line["evidence"] is None
    assert "a cut link answered" in line["error"]
