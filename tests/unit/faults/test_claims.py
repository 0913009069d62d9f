"""Several faults that keep one node down: it stays down until the last of them ends, and each reports its own evidence.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.errors import HarnessError
from squall.chaos.faults.kind import Fault
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Link, NodeState, ProbeResult
from tests.unit.faults.test_acts import World as FailingWorld
from tests.unit.faults.test_nemesis import World, played

CLIENTS = Link("CLIENT", 1)


class Told(World):
    """Records the time of each call; its nodes answer while they run. `stop_s` is how long a stop takes."""

    def __init__(self, *, stop_s: float = 0.0) -> None:
        super().__init__()
        self.stop_s = stop_s
        self.times: list[tuple[float, str]] = []

    def links(self) -> tuple[Link, ...]:
        return (CLIENTS, *super().links())

    async def kill(self, node: int) -> dict[str, Any]:
        assert self.states[node] is NodeState.RUNNING
        self._tell("kill")
        return await super().kill(node)

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> dict[str, Any]:
        assert self.states[node] is NodeState.RUNNING
        self._tell("stop")
        await trio.sleep(self.stop_s)
        self.states[node] = NodeState.DOWN
        return {"pid": 1, "controlled": True}

    async def start_node(self, node: int) -> dict[str, Any]:
        if self.states[node] is not NodeState.DOWN:
            raise HarnessError(f"broker {node} is running")
        self._tell("start")
        return await super().start_node(node)

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        up = self.states[link.target] is NodeState.RUNNING
        return ProbeResult(up, 0.5, None if up else "refused")

    def _tell(self, what: str) -> None:
        self.times.append((round(trio.current_time(), 1), what))


class Failing(FailingWorld):
    """Has failing disks, and nodes that answer while they run."""

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        return ProbeResult(self.states[link.target] is NodeState.RUNNING, 0.5)


def fault(number: int, at_s: float, duration_s: float, action: str = "kill", target: str = "node:1") -> Fault:
    return make_fault(number, at_s, duration_s, action, target, {})


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize(("first_s", "second_s"), [(2.0, 3.0), (6.0, 2.0)], ids=["longer", "within"])
async def test_a_node_is_down_until_the_last_of_two_faults_ends(
    action: str, first_s: float, second_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    world = Told()
    first, second = await played(world, [fault(0, 0.0, first_s), fault(1, 1.0, second_s, action)])
    assert (first["error"], second["error"]) == (None, None)
    assert world.times == [(0.0, "kill"), (max(first_s, 1.0 + second_s), "start")]
    (found,) = second["evidence"]["down"]
    assert found == {"node": 1, "found": "down", "by": {"0": "kill"}, "asked": 6, "answered": 0}  # three links, twice
    earlier, later = (first, second) if first_s < 1.0 + second_s else (second, first)
    assert earlier["evidence"]["up"] == [{"node": 1, "held_by": [later["id"]], "state": "down"}]
    assert later["evidence"]["up"][0]["ready_ns"]
    assert earlier["ended"] < later["ended"]


async def test_three_at_the_same_moment_are_one_kill_and_one_start(autojump_clock: trio.testing.MockClock) -> None:
    world = Told()
    lines = await played(world, [fault(0, 0.0, 1.0), fault(1, 0.0, 3.0), fault(2, 0.0, 2.0)])
    assert all(line["evidence"] for line in lines)
    assert world.times == [(0.0, "kill"), (3.0, "start")]
    assert sum("found" in line["evidence"]["down"][0] for line in lines) == 2


async def test_what_is_just_being_stopped_is_waited_for_and_joined(autojump_clock: trio.testing.MockClock) -> None:
    world = Told(stop_s=2.0)
    stopped, killed = await played(world, [fault(0, 0.0, 4.0, "stop"), fault(1, 1.0, 4.0)])
    assert stopped["evidence"]["down"][0]["controlled"]
    assert killed["began"] == pytest.approx(stopped["began"] + 2e9)
    assert killed["evidence"]["down"][0]["by"] == {"0": "stop"}
    assert world.times == [(0.0, "stop"), (6.0, "start")]


async def test_of_several_nodes_those_that_run_are_killed_and_those_that_are_down_stay_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Told()
    one, every = await played(world, [fault(0, 0.0, 2.0), fault(1, 1.0, 3.0, target="all")])
    assert one["evidence"]
    assert [each.get("gone", each.get("found")) for each in every["evidence"]["down"]] == ["down", True, True]
    assert world.states == dict.fromkeys((1, 2, 3), NodeState.RUNNING)


@pytest.mark.parametrize("when_s", [0.5, 1.5], ids=["before", "meanwhile"])
async def test_a_node_that_somebody_started_meanwhile_was_not_held_down(
    when_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    world = Told()

    async def undo() -> None:
        await trio.sleep(when_s)
        await world.start_node(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(undo)
        first, second = await played(world, [fault(0, 0.0, 2.0), fault(1, 1.0, 3.0)])
    assert first["evidence"] is None
    if when_s == 0.5:
        assert first["seen"]["up"] == [{"node": 1, "held_by": [1], "state": "started meanwhile"}]
        assert second["evidence"]["down"][0]["gone"]
    else:
        assert second["evidence"] is None
        assert "node 1, which was down already, was running" in second["error"]
    assert world.states[1] is NodeState.RUNNING


async def test_a_node_that_answers_while_it_is_said_to_be_down_proves_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Told()

    async def answer(link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        return ProbeResult(True, 0.5)

    world.probe = answer  # type: ignore[method-assign]
    _, second = await played(world, [fault(0, 0.0, 2.0), fault(1, 1.0, 3.0)])
    assert second["evidence"] is None
    assert second["seen"]["down"][0]["answered"] == 6


async def test_a_node_that_nobody_took_down_cannot_be_held_down(autojump_clock: trio.testing.MockClock) -> None:
    world = Told()
    world.states[1] = NodeState.DOWN
    (line,) = await played(world, [fault(0, 0.0, 2.0)])
    assert line["error"] == "node 1 is down already"
    assert world.times == []


async def test_a_node_whose_disk_ended_it_is_held_down_by_a_kill_as_well(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world: Any = Failing()
    failed = make_fault(0, 0.0, 2.0, "disk", "node:1", {"how": "EIO"})
    hurt, killed = await played(world, [failed, fault(1, 1.0, 3.0)])
    assert hurt["evidence"]["started"] == [{"node": 1, "held_by": [1], "state": "down"}]
    assert killed["evidence"]["down"][0]["by"] == {"0": "disk"}
    assert world.done == ["start 1"]
