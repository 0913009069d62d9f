"""Faults on one target at once, and faults made of steps."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.errors import HarnessError
from squall.chaos.faults.kind import Fault, FaultError
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Link, NodeState, ProbeResult
from tests.unit.faults.test_nemesis import World, played


class Answering(World):
    """Has nodes that answer unless they are paused."""

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        silent = self.states[link.target] is NodeState.PAUSED and not self.inert
        return ProbeResult(not silent, timeout_s * 1000, "timed out" if silent else None)


async def test_a_node_paused_by_two_faults_goes_on_when_the_last_one_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Answering()
    first, second = make_fault(0, 0.1, 2.0, "pause", "node:1", {}), make_fault(1, 1.0, 3.0, "pause", "node:1", {})
    both = await played(world, [first, second])
    assert [line["error"] for line in both] == [None, None]
    assert both[0]["evidence"]["resumed"] == [{"node": 1, "held_by": [1]}]
    assert world.done == ["resume 1"], "once, by the second"


class SlowToStart(World):
    """Has nodes that take two seconds to come up, in which a signal would end them."""

    async def start_node(self, node: int) -> dict[str, Any]:
        self.states[node] = NodeState.RUNNING
        await trio.sleep(2)
        if self.states[node] is not NodeState.RUNNING:
            raise HarnessError(f"broker {node} ended before it was ready")
        return await super().start_node(node)


async def test_a_node_that_is_just_starting_is_killed_when_it_is_up(autojump_clock: trio.testing.MockClock) -> None:
    world = SlowToStart()
    faults = [make_fault(0, 0.0, 2.0, "kill", "node:1", {}), make_fault(1, 3.0, 2.0, "kill", "node:1", {})]
    first, second = await played(world, faults)
    assert (first["error"], second["error"]) == (None, None)
    assert second["began"] >= first["ended"]
    assert world.done == ["kill 1", "start 1", "kill 1", "start 1"]


async def test_what_is_paused_cannot_be_killed_and_says_by_whom_it_is_held(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Answering()
    _, killed = await played(
        world, [make_fault(0, 0.1, 2.0, "pause", "node:1", {}), make_fault(1, 1.0, 2.0, "kill", "node:1", {})]
    )
    assert killed["error"] == "node 1 is paused already, by fault 0 (pause)"
    assert world.done == ["resume 1"]


async def test_a_paused_node_that_was_gone_before_it_was_let_go_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Answering()

    async def die() -> None:
        await trio.sleep(1)
        world.states[1] = NodeState.DOWN

    async with trio.open_nursery() as nursery:
        nursery.start_soon(die)
        (line,) = await played(world, [make_fault(0, 0.1, 2.0, "pause", "node:1", {})])
    assert line["error"] == "node 1 was down before it was let go"


@pytest.mark.parametrize(
    ("action", "target", "params", "said"),
    [
        ("client", "random", {}, "one of producer, reader"),
        ("kill", "producer:0", {}, "one of leader"),
        ("client", "reader:0", {"how": "crash"}, "of producers only"),
        ("client", "producer:x", {}, "as in producer:0"),
    ],
)
def test_clients_and_brokers_are_not_taken_for_each_other(
    action: str, target: str, params: dict[str, Any], said: str
) -> None:
    with pytest.raises(FaultError, match=said):
        make_fault(0, 0, 1, action, target, params)


async def test_a_rolling_restart_of_brokers_that_never_left_has_not_landed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    (line,) = await played(World(inert=True), [make_fault(0, 0.1, 9.0, "rolling", "all", {"how": "kill"})])
    assert line["evidence"] is None
    assert line["error"] == "no evidence that every node was gone"


async def test_a_rolling_restart_does_not_start_what_another_fault_has_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = SlowToStart()
    kill, rolling = (
        make_fault(0, 0.5, 30.0, "kill", "node:2", {}),
        make_fault(1, 0.1, 9.0, "rolling", "all", {"how": "kill"}),
    )
    killed, rolled = await played(world, [kill, rolling])
    assert killed["error"] is None
    assert rolled["error"] == "node 2 was down when it was its turn"
    assert world.done == ["kill 1", "kill 2", "start 1", "start 2"]


def test_a_fault_is_a_plain_value() -> None:
    assert make_fault(0, 0, 1, "client", "producer", {}) == Fault(
        0, 0.0, 1.0, KINDS["client"], "producer", {"how": "crash"}
    )
