"""A fault without evidence has not landed, whatever was done to bring it about."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.real_env import RealEnv
from squall.chaos.errors import HarnessError
from squall.chaos.faults.kind import Fault
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runs.run_store import MemoryRunStore
from squall.chaos.runtimes.contract import GONE, Link, NodeState, ProbeResult
from squall.workloads.client import admin
from squall.workloads.client.connection import RequestFailed

VIEW = ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)})


LETTERS = {NodeState.RUNNING: "S", NodeState.PAUSED: "T", NodeState.DOWN: GONE}


class World:
    """A runtime that carries out every call or, if `inert`, only reports that it did."""

    nodes = (1, 2, 3)
    noise_ms = 0.0

    def __init__(self, *, inert: bool = False) -> None:
        self.inert = inert
        self.states = dict.fromkeys(self.nodes, NodeState.RUNNING)
        self.faults: dict[tuple[str, Link], Any] = {}
        self.done: list[str] = []

    def state(self, node: int) -> NodeState:
        return self.states[node]

    def links(self) -> tuple[Link, ...]:
        return tuple(Link(a, b) for a in self.nodes for b in self.nodes if a != b)

    async def kill(self, node: int) -> dict[str, Any]:
        self.done.append(f"kill {node}")
        self.states[node] = NodeState.DOWN
        return {"pid": 1, "gone": not self.inert}

    async def start_node(self, node: int) -> dict[str, Any]:
        self.done.append(f"start {node}")
        self.states[node] = NodeState.RUNNING
        return {"pid": 2, "ready_ns": 1}

    async def pause(self, node: int) -> dict[str, Any]:
        self.states[node] = NodeState.PAUSED
        return {"state": "S" if self.inert else "T", "probe": {"ok": self.inert}}

    async def resume(self, node: int) -> dict[str, Any]:
        self.done.append(f"resume {node}")
        self.states[node] = NodeState.RUNNING
        return {"state": "R", "found": "S" if self.inert else "T"}

    async def activity(self, node: int) -> dict[str, Any]:
        return {"node": node, "state": LETTERS[self.states[node]], "calls": 0}

    async def fault_link(self, name: str, link: Link, fault: Any) -> dict[str, Any]:
        if not self.inert:
            self.faults[name, link] = fault
        return {}

    async def heal_link(self, name: str, link: Link) -> dict[str, Any]:
        self.faults.pop((name, link), None)
        return {}

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        on = [fault for (_, where), fault in self.faults.items() if where == link]
        if any(hasattr(fault, "manner") for fault in on):
            return ProbeResult(False, timeout_s * 1000, "timed out")
        return ProbeResult(True, 200.0 if on else 0.5)


class Timed(World):
    """Probes take a while."""

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        probe = await super().probe(link)
        await trio.sleep(0.05 + probe.round_trip_ms / 1000 if probe.ok else timeout_s)
        return probe


class Asked:
    client: Any = None

    async def view(self) -> ClusterSnapshot:
        return VIEW

    def lookout(self) -> Any:
        return nullcontext(self.view)


class VirtualEnv(RealEnv):
    """The clock of these tests is trio's."""

    def __init__(self) -> None:
        super().__init__("harness")
        self.mono = trio.current_time


async def played(world: World, faults: list[Fault], cluster: Asked | None = None) -> list[dict[str, Any]]:
    papers = MemoryRunStore("a run")
    runtime: Any = world
    nemesis = Nemesis(runtime, faults, 1, env=VirtualEnv(), cluster=cluster or Asked(), record=papers.fault)
    await nemesis.play()
    last: dict[int, dict[str, Any]] = {}
    for line in papers.faults:
        entry = json.loads(line)
        last[entry["id"]] = entry
    return [last[fault.id] for fault in faults]


FAULTS = [
    make_fault(0, 0.1, 1.0, "kill", "leader:t-0", {}),
    make_fault(0, 0.1, 1.0, "pause", "controller", {}),
    make_fault(0, 0.1, 1.0, "partition", "node:3", {"shape": "isolate", "manner": "drop"}),
    make_fault(0, 0.1, 1.0, "latency", "node:3", {"latency_ms": 100, "jitter_ms": 10}),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.action)
async def test_a_fault_that_lands_leaves_evidence(fault: Fault, autojump_clock: trio.testing.MockClock) -> None:
    (entry,) = await played(World(), [fault])
    assert entry["evidence"]
    assert entry["error"] is None
    assert entry["asked"] <= entry["began"] <= entry["ended"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.action)
async def test_a_fault_switched_off_under_the_nemesis_feet_has_no_evidence(
    fault: Fault, autojump_clock: trio.testing.MockClock
) -> None:
    (entry,) = await played(World(inert=True), [fault])
    assert entry["evidence"] is None
    assert entry["error"]


async def test_a_node_that_is_down_already_is_not_hit_twice(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    faults = [make_fault(0, 0.1, 3.0, "kill", "node:2", {}), make_fault(1, 0.2, 1.0, "pause", "node:2", {})]
    first, second = await played(world, faults)
    assert first["evidence"]
    assert second["evidence"] is None
    assert "down already" in second["error"]


async def test_what_another_fault_has_silenced_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    cut = {"shape": "isolate", "manner": "drop"}
    faults = [make_fault(0, 0.1, 6.0, "partition", "node:3", cut), make_fault(1, 0.5, 1.0, "partition", "node:3", cut)]
    first, second = await played(World(), faults)
    assert first["evidence"]
    assert second["evidence"]
    assert second["began"] > first["ended"]
    assert second["ended"] - second["began"] == pytest.approx(1e9, abs=1e8)


async def test_a_link_is_not_cut_again_before_it_was_seen_to_be_whole(autojump_clock: trio.testing.MockClock) -> None:
    class Late(World):
        healed_at = 0.0

        async def heal_link(self, name: str, link: Link) -> dict[str, Any]:
            self.healed_at = trio.current_time()
            return await super().heal_link(name, link)

        async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
            if trio.current_time() < self.healed_at + 0.02:
                return ProbeResult(False, timeout_s * 1000, "timed out")
            return await super().probe(link, timeout_s=timeout_s)

    cut = {"shape": "isolate", "manner": "drop"}
    faults = [
        make_fault(0, 0.1, 6.0, "partition", "node:3", cut),
        make_fault(1, 0.53, 15.0, "partition", "node:3", cut),
    ]
    first, second = await played(Late(), faults)
    assert first["evidence"], first["error"]
    assert second["evidence"]


async def test_healed_links_need_not_all_answer_at_once(autojump_clock: trio.testing.MockClock) -> None:
    class Turns(World):
        """Once it is healed, one link answers at a time: the machine is busy, or another fault comes."""

        healed, asked = False, 0

        async def heal_link(self, name: str, link: Link) -> dict[str, Any]:
            self.healed = True
            return await super().heal_link(name, link)

        async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
            self.asked += self.healed
            if self.asked % 3:
                return ProbeResult(False, timeout_s * 1000, "timed out")
            return await super().probe(link, timeout_s=timeout_s)

    cut = make_fault(0, 0.1, 2.0, "partition", "node:3", {"shape": "isolate", "manner": "drop"})
    (line,) = await played(Turns(), [cut])
    assert line["error"] is None
    assert len(line["evidence"]["links"]) == len(line["evidence"]["after"]) > 1


async def test_a_cut_is_seen_to_have_healed_once_its_broker_is_back_however_long_another_fault_has_it_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Down(World):
        async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
            down = self.states[link.target] is NodeState.DOWN
            return ProbeResult(False, 0.5, "refused") if down else await super().probe(link, timeout_s=timeout_s)

    cut = make_fault(0, 0.1, 5.0, "partition", "node:3", {"shape": "isolate", "manner": "drop"})
    first, second = await played(Down(), [cut, make_fault(1, 4.5, 18.0, "kill", "node:3", {})])
    assert first["error"] is second["error"] is None
    assert first["ended"] < second["ended"] - 15e9, "the probes that follow do not lengthen it"


async def test_two_faults_that_wait_for_the_same_links_begin_one_after_the_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cut = {"shape": "isolate", "manner": "drop"}
    times = [(0.1, 6.0), (0.5, 1.0), (0.53, 1.0)]
    faults = [make_fault(n, at_s, long_s, "partition", "node:3", cut) for n, (at_s, long_s) in enumerate(times)]
    lines = await played(Timed(), faults)
    assert [line["error"] for line in lines] == [None] * 3
    (_, _), (_, one), (two, _) = sorted((line["began"], line["ended"]) for line in lines)
    assert one <= two


async def test_a_cut_is_not_blamed_on_a_fault_that_has_gone_meanwhile(autojump_clock: trio.testing.MockClock) -> None:
    slow, cut = {"latency_ms": 100, "jitter_ms": 10}, {"shape": "isolate", "manner": "drop"}
    faults = [
        make_fault(0, 0.1, 1.2, "latency", "node:3", slow),
        make_fault(1, 0.95, 1.0, "partition", "node:3", cut),
    ]
    first, second = await played(Timed(), faults)
    assert second["began"] < first["ended"]
    assert second["evidence"], second["error"]


async def test_a_cut_shows_itself_once_a_fault_has_gone_that_came_as_it_began(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Slowly(Timed):
        async def pause(self, node: int) -> dict[str, Any]:
            return {"state": "T", "probe": {"ok": False}}

    cut = {"shape": "isolate", "manner": "drop"}
    cut_and_pause = [
        make_fault(0, 0.1, 4.0, "partition", "node:3", cut),
        make_fault(1, 0.4, 1.0, "pause", "all", {}),
    ]
    first, second = await played(Slowly(), cut_and_pause)
    assert second["began"] < first["began"] + 0.7e9
    assert first["evidence"], first["error"]


async def test_what_could_not_be_compared_is_measured_again_once_other_faults_have_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = {"latency_ms": 100, "jitter_ms": 10}
    before, after = (0.1, 1.55), (4.2, 2.0)
    others = [make_fault(n, *times, "latency", "node:3", slow) for n, times in enumerate((before, after))]
    ours = make_fault(2, 1.3, 3.4, "latency", "node:3", slow)
    # In this world two faults of a link take no longer than one: they hide each other.
    *_, line = await played(Timed(), [*others, ours])
    assert line["evidence"], line["error"]


async def test_a_link_that_is_slow_already_has_more_time_to_show_the_next_fault(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Narrow(World):
        async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
            takes_s = 1.3 * sum(where == link for _, where in self.faults)
            await trio.sleep(min(takes_s, timeout_s))
            return ProbeResult(takes_s <= timeout_s, 1000 * min(takes_s, timeout_s))

    narrow = [
        make_fault(0, 0.1, 12.0, "bandwidth", "node:3", {"kb_per_s": 8}),
        make_fault(1, 3.0, 5.0, "bandwidth", "node:3", {"kb_per_s": 32}),
    ]
    first, second = await played(Narrow(), narrow)
    assert first["evidence"]
    assert second["evidence"], second["error"]


async def test_how_long_a_controlled_shutdown_takes_is_not_taken_off_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Slow(World):
        async def stop_node(self, node: int) -> dict[str, Any]:
            await trio.sleep(0.5)
            self.states[node] = NodeState.DOWN
            return {"controlled": True}

    (told,) = await played(Slow(), [make_fault(1, 1.0, 0.2, "stop", "node:2", {})])
    assert told["evidence"], told["error"]
    assert told["ended"] - told["on"] == pytest.approx(2e8, abs=1e7)


async def test_a_leader_is_waited_for_as_long_as_another_fault_is_on(autojump_clock: trio.testing.MockClock) -> None:
    class Leaderless(Asked):
        async def view(self) -> ClusterSnapshot:
            return replace(VIEW, leaders={"t-0": -1 if trio.current_time() < ends_at else 2})

    faults = [make_fault(0, 0.1, 6.0, "pause", "node:3", {}), make_fault(1, 0.2, 1.0, "kill", "leader", {})]
    ends_at = trio.current_time() + 5.0
    _, second = await played(World(), faults, Leaderless())
    assert second["evidence"]
    ends_at = trio.current_time() + 5.0
    (alone,) = await played(World(), faults[1:], Leaderless())
    assert "t-0 has no leader" in alone["error"]


async def test_a_refused_election_is_asked_for_as_long_as_another_fault_is_on(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Led(Asked):
        async def view(self) -> ClusterSnapshot:
            return replace(VIEW, leaders={"t-0": 1})

    async def elect(client: Any, places: Any, *, unclean: bool = False, timeout_ms: int = 0) -> dict[Any, str]:
        if trio.current_time() < accepts_at:
            raise RequestFailed("TIMED_OUT", sent=True)
        return dict.fromkeys(places, "ELECTION_NOT_NEEDED")

    monkeypatch.setattr(admin, "elect_leaders", elect)
    asked = make_fault(1, 0.2, 1.0, "leadership", "leader", {"how": "preferred"})
    accepts_at = trio.current_time() + 6.0
    _, second = await played(World(), [make_fault(0, 0.1, 7.0, "pause", "node:3", {}), asked], Led())
    assert second["evidence"], second["error"]
    assert second["ended"] / 1e9 == pytest.approx(accepts_at + 1, abs=0.6), "it lasts from when it was accepted"
    accepts_at = trio.current_time() + 6.0
    (alone,) = await played(World(), [asked], Led())
    assert "TIMED_OUT" in alone["error"]


async def test_what_was_paused_goes_on_and_what_was_cut_is_healed_when_the_run_is_interrupted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    faults = [
        make_fault(0, 0.1, 9.0, "pause", "node:1", {}),
        make_fault(1, 0.1, 9.0, "partition", "node:2", {"shape": "isolate", "manner": "hold"}),
    ]
    with trio.move_on_after(2):
        await played(world, faults)
    assert world.done == ["resume 1"]
    assert not world.faults


async def test_trouble_of_the_runtime_is_recorded_and_ends_no_other_fault(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Broken(World):
        async def kill(self, node: int) -> dict[str, Any]:
            raise HarnessError("the process cannot be signalled")

    faults = [make_fault(0, 0.1, 1.0, "kill", "node:2", {}), make_fault(1, 0.2, 1.0, "pause", "node:3", {})]
    first, second = await played(Broken(), faults)
    assert "cannot be signalled" in first["error"]
    assert second["evidence"]


async def test_faults_that_have_not_begun_are_told_with_the_time_until_they_are_due(
    autojump_clock: trio.testing.MockClock,
) -> None:
    faults = [make_fault(0, 5.0, 1.0, "kill", "node:1", {}), make_fault(1, 2.0, 1.0, "pause", "node:2", {})]
    runtime: Any = World()
    nemesis = Nemesis(runtime, faults, 1, env=VirtualEnv(), cluster=Asked(), record=lambda line: None)
    assert nemesis.coming() == [], "nobody knows when playing will begin"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nemesis.play)
        await trio.sleep(1)
        assert [(each.fault.action, round(each.in_s)) for each in nemesis.coming()] == [("pause", 1), ("kill", 4)]
        await trio.sleep(3)
        assert [(each.fault.action, round(each.in_s)) for each in nemesis.coming()] == [("kill", 1)]
    assert nemesis.coming() == []
