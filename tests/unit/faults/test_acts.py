"""Faults beyond killing and cutting: what proves each, what undoes it, and what it asks of the runtime."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.real_env import RealEnv
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runs.run_store import MemoryRunStore
from squall.chaos.runtimes.contract import (
    GONE,
    ClockReport,
    FailWrites,
    FrameAct,
    Frames,
    Link,
    Loss,
    NodeState,
    ProbeResult,
    SlowDisk,
    StreamDirection,
)
from squall.workloads.client import admin

VIEW = ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)})
MOVED = ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (2, 3, 1)})
ELECTED = ClusterSnapshot((1, 2, 3), 1, {"t-0": 1}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)})
LEADERLESS = ClusterSnapshot((1, 2, 3), 1, {"t-0": -1}, {"t-0": (3,)}, {"t-0": (1, 2, 3)})
DRIFTED = ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (2, 3)}, {"t-0": (1, 2, 3)})


class World:
    """A runtime that carries out every call. `hits` is how often its faults affect something."""

    nodes = controllers = (1, 2, 3)
    noise_ms = 0.0

    def __init__(self, hits: int = 3) -> None:
        self.hits = hits
        self.states = dict.fromkeys(self.nodes, NodeState.RUNNING)
        self.faults: list[Any] = []
        self.healed = 0
        self.clocks: dict[int, float] = {}
        self.words: dict[int, list[ClockReport]] = {}
        self.done: list[str] = []
        self.upgraded: set[int] = set()

    def env(self, name: str) -> VirtualEnv:
        return VirtualEnv()

    def bootstrap(self, zone: str) -> str:
        assert zone == "INTERNAL"
        return "127.0.0.1:1"

    def state(self, node: int) -> NodeState:
        return self.states[node]

    def links(self) -> tuple[Link, ...]:
        peers = [Link(a, b) for a in self.nodes for b in self.nodes if a != b]
        return (*peers, *(Link("CLIENT", node) for node in self.nodes))

    async def start_node(self, node: int) -> dict[str, Any]:
        self.states[node] = NodeState.RUNNING
        self.done.append(f"start {node}")
        return {"ready_ns": 1}

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> dict[str, Any]:
        self.states[node] = NodeState.DOWN
        return {"controlled": True}

    async def software(self, node: int) -> dict[str, Any]:
        return {"runs": "B" if node in self.upgraded else "A", "by": "the world"}

    async def upgrade_node(self, node: int) -> dict[str, Any]:
        assert self.states[node] is NodeState.DOWN
        if self.hits:
            self.upgraded.add(node)
        return {"from": "A", "to": "B"}

    async def power_loss(self, nodes: tuple[int, ...]) -> dict[str, Any]:
        for node in nodes:
            self.states[node] = NodeState.DOWN
        return {
            "nodes": {
                str(node): {"bytes_pending": 9 * self.hits, "bytes_lost": 7} if self.hits else {} for node in nodes
            }
        }

    async def crash_at(self, node: int, op: str, nth: int, *, within_s: float) -> dict[str, Any]:
        if not self.hits:
            await trio.sleep(within_s)
            return {"gone": False}
        self.states[node] = NodeState.DOWN
        return {"gone": True, "op": op, "nth": nth}

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> dict[str, Any]:
        self.clocks[node] = offset_ms
        shown_ms = offset_ms if self.hits else 0.0
        self.words.setdefault(node, []).append(ClockReport(int(trio.current_time() * 1e9), shown_ms, offset_ms, rate))
        return {"offset_ms": offset_ms}

    async def slow_cpu(self, name: str, node: int, share: float) -> dict[str, Any]:
        return {"share": share}

    async def heal_cpu(self, name: str, node: int) -> dict[str, Any]:
        return {"stops": self.hits, "ran_share": 0.2 if self.hits else 1.0}

    def clock_reports(self, node: int) -> list[ClockReport]:
        return self.words.get(node, [])

    async def fault_link(self, name: str, link: Link, fault: Any) -> dict[str, Any]:
        self.faults.append((str(link), fault))
        return {}

    async def heal_link(self, name: str, link: Link) -> dict[str, Any]:
        self.healed += 1
        return {"hits": self.hits}

    async def ending(self, link: Link, *, timeout_s: float = 1.0, opened: Any = None) -> ProbeResult:
        opened()
        await trio.sleep(0.1 if self.hits else timeout_s)
        return ProbeResult(bool(self.hits), 100.0, "closed" if self.hits else "still open")

    async def reset_links(self, links: list[Link]) -> dict[str, Any]:
        self.done.append(f"reset {len(links)}")
        return {"reset": self.hits}

    async def fault_disk(self, name: str, node: int, fault: Any) -> dict[str, Any]:
        self.faults.append((node, fault))
        if isinstance(fault, FailWrites) and self.hits:
            self.states[node] = NodeState.DOWN
        return {}

    async def heal_disk(self, name: str, node: int) -> dict[str, Any]:
        self.healed += 1
        return {"hits": self.hits}

    async def rot(
        self, node: int, *, path_glob: str = "*.log", bits: int = 1, where: str = "checked"
    ) -> dict[str, Any]:
        return {"path": "a.log", "before": "x", "after": "y"} if self.hits else {"path": None}

    async def kill(self, node: int) -> dict[str, Any]:
        self.states[node] = NodeState.DOWN
        return {"gone": True}

    async def activity(self, node: int) -> dict[str, Any]:
        return {"node": node, "state": GONE if self.states[node] is NodeState.DOWN else "S", "calls": 0}

    async def damage(self, node: int, how: str, *, size: int = 1000) -> dict[str, Any]:
        assert self.states[node] is NodeState.DOWN
        return {"path": "a.log", "before": "x", "after": None} if self.hits else {"path": None}


class Asked:
    client: Any = None

    def __init__(self, *views: ClusterSnapshot) -> None:
        self.views = list(views) or [VIEW]

    async def view(self) -> ClusterSnapshot:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def lookout(self) -> Any:
        return nullcontext(self.view)


class VirtualEnv(RealEnv):
    def __init__(self) -> None:
        super().__init__("harness")
        self.mono = trio.current_time


async def played(
    world: World,
    action: str,
    params: dict[str, Any] | None = None,
    *,
    target: str = "node:2",
    asked: Asked | None = None,
) -> list[dict[str, Any]]:
    """Inject one fault of two seconds, and return its lines of nemesis.jsonl."""
    papers, runtime = MemoryRunStore("a run"), world
    fault = make_fault(0, 0.1, 2.0, action, target, params or {})
    any_runtime: Any = runtime
    nemesis = Nemesis(any_runtime, [fault], 1, env=VirtualEnv(), cluster=asked or Asked(), record=papers.fault)
    await nemesis.play()
    return [json.loads(line) for line in papers.faults]


PLAYABLE = [
    ("power_loss", {}),
    ("slow", {"share": 0.2}),
    ("crash_at", {"op": "fsync", "nth": 3}),
    ("clock", {"offset_ms": -5000}),
    ("clock", {"offset_ms": 100, "strobe_ms": 300}),
    ("packet_loss", {"probability": 0.1}),
    ("protocol", {"api": "Fetch", "act": "delay", "nth": 2}),
    ("protocol", {"api": "Produce", "act": "reorder"}),
    ("reset", {"every_ms": 500}),
    ("upgrade", {}),
    ("disk", {"how": "EIO"}),
    ("disk", {"how": "slow", "delay_ms": 50}),
    ("bit_rot", {}),
    ("damage", {"how": "file"}),
]


@pytest.mark.parametrize(("action", "params"), PLAYABLE, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_fault_that_strikes_has_its_evidence_and_leaves_every_node_running(
    action: str, params: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    last = (await played(world, action, params))[-1]
    assert last["error"] is None
    assert last["evidence"]
    assert last["ended"] - last["began"] == pytest.approx(2e9, rel=0.3) or action == "upgrade"
    assert set(world.states.values()) == {NodeState.RUNNING}


NEEDS_PROOF = ("slow", "crash_at", "power_loss", "clock", "packet_loss", "protocol", "reset", "disk", "bit_rot",
               "damage", "upgrade")  # fmt: skip


@pytest.mark.parametrize("action", NEEDS_PROOF)
async def test_a_fault_that_never_strikes_has_no_evidence(action: str, autojump_clock: trio.testing.MockClock) -> None:
    last = (await played(World(hits=0), action))[-1]
    assert last["evidence"] is None
    assert last["error"]


class QuietAtFirst(World):
    """A runtime whose links carry nothing for three seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.since = trio.current_time()

    async def heal_link(self, name: str, link: Link) -> dict[str, Any]:
        self.healed += 1
        return {"hits": self.hits if trio.current_time() - self.since > 3.0 else 0}


async def test_a_fault_that_has_met_nothing_stays_once_more_as_long_and_has_not_ended_before_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world, papers = QuietAtFirst(), MemoryRunStore("a run")
    faults = [
        make_fault(0, 0.1, 2.0, "protocol", "node:2", {"api": "Produce", "act": "delay"}),
        replace(make_fault(1, 0.2, 1.0, "kill", "node:3", {}), when="after fault 0 ended", within_s=60.0),
    ]
    any_runtime: Any = world
    nemesis = Nemesis(any_runtime, faults, 1, env=VirtualEnv(), cluster=Asked(), record=papers.fault)
    await nemesis.play()
    late, after = nemesis.played
    assert late.error is None
    assert late.began is not None
    assert late.ended == pytest.approx(late.began + 4e9, abs=1e6)
    assert (after.began or 0) >= (late.ended or 0)


async def test_every_broker_comes_up_as_the_second_version_one_after_the_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    last = (await played(world, "upgrade", target="all"))[-1]
    assert [step["node"] for step in last["evidence"]["steps"]] == [1, 2, 3]
    assert {(step["was"]["runs"], step["is"]["runs"]) for step in last["evidence"]["steps"]} == {("A", "B")}


async def test_a_power_loss_stays_open_until_its_nodes_have_again_what_the_others_have(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lines = await played(World(), "power_loss", asked=Asked(VIEW, DRIFTED, DRIFTED, VIEW))
    assert lines[-2]["evidence"]["caught_up_ns"] == -1
    assert lines[-1]["evidence"]["caught_up_ns"] > lines[-1]["ended"]


async def test_a_clock_is_true_again_at_the_end(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    await played(world, "clock", {"offset_ms": 9000}, target="all")
    assert world.clocks == {1: 0, 2: 0, 3: 0}


async def test_a_protocol_fault_hits_the_requests_that_its_target_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    params = {"api": "Produce", "act": "error", "error": "NOT_LEADER_OR_FOLLOWER", "nth": 4, "side": "clients"}
    await played(world, "protocol", params)
    frames = Frames(0, FrameAct.ERROR, nth=4, count=1, delay_ms=500, error=6, stream=StreamDirection.THERE)
    assert world.faults == [("CLIENT->2", frames)]
    assert world.healed == 1


async def test_lost_packets_are_those_of_either_direction_between_the_target_and_its_peers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    await played(world, "packet_loss", {"probability": 0.3, "rto_ms": 50})
    assert sorted(link for link, _ in world.faults) == ["1->2", "2->1", "2->3", "3->2"]
    assert {fault for _, fault in world.faults} == {Loss(0.3, 50)}


async def test_connections_are_reset_every_so_often_until_the_end(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    await played(world, "reset", {"every_ms": 900, "side": "clients"})
    assert world.done == ["reset 1"] * 3


async def test_a_slow_disk_is_made_slow_and_a_failing_one_fails_from_the_nth_call(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    await played(world, "disk", {"how": "slow", "op": "fsync", "delay_ms": 70})
    await played(world, "disk", {"how": "ENOSPC", "nth": 5})
    assert world.faults == [(2, SlowDisk(70, "fsync")), (2, FailWrites("ENOSPC", 5, "write"))]
    assert world.done == ["start 2"]


@pytest.mark.parametrize("how", ["preferred", "unclean", "move"])
async def test_leadership_is_asked_for_as_an_administrator_would(
    how: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    asked: list[str] = []

    async def elect(client: Any, places: Any, *, unclean: bool = False, timeout_ms: int = 0) -> dict[Any, str]:
        asked.append(f"elect {places} unclean={unclean}")
        return dict.fromkeys(places, "")

    async def move(client: Any, moves: Any, *, timeout_ms: int = 0) -> dict[Any, str]:
        asked.append(f"move {moves}")
        return dict.fromkeys(moves, "")

    monkeypatch.setattr(admin, "elect_leaders", elect)
    monkeypatch.setattr(admin, "alter_partition_reassignments", move)
    views = {"preferred": (VIEW, VIEW, ELECTED), "unclean": (LEADERLESS, LEADERLESS, VIEW), "move": (VIEW, VIEW, MOVED)}
    asked_of = Asked(*views[how])
    last = (await played(World(), "leadership", {"how": how}, asked=asked_of))[-1]
    assert last["evidence"]["answers"] == {"t-0": ""}
    elected = f"elect [('t', 0)] unclean={how == 'unclean'}"
    assert asked == (["move {('t', 0): [2, 3, 1]}", elected] if how == "move" else [elected])
    undone = (await played(World(), "leadership", {"how": how}, asked=Asked(views[how][0])))[-1]
    assert undone["evidence"] is None
    assert f"the {'replicas' if how == 'move' else 'leaders'} are not those that were asked for" in undone["error"]


async def test_a_move_has_landed_though_the_election_behind_it_gets_no_answer(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def elect(client: Any, places: Any, *, unclean: bool = False, timeout_ms: int = 0) -> dict[Any, str]:
        await trio.sleep(60)
        return {}

    async def move(client: Any, moves: Any, *, timeout_ms: int = 0) -> dict[Any, str]:
        return dict.fromkeys(moves, "")

    monkeypatch.setattr(admin, "elect_leaders", elect)
    monkeypatch.setattr(admin, "alter_partition_reassignments", move)
    last = (await played(World(), "leadership", {"how": "move"}, asked=Asked(VIEW, VIEW, MOVED)))[-1]
    assert last["evidence"], last["error"]


async def test_a_crash_point_that_nobody_has_come_to_stays_once_more_as_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Idle(World):
        async def crash_at(self, node: int, op: str, nth: int, *, within_s: float) -> dict[str, Any]:
            await trio.sleep(min(within_s, 3.5))
            self.states[node] = NodeState.DOWN if within_s > 3.5 else NodeState.RUNNING
            return {"gone": within_s > 3.5, "op": op, "nth": nth}

    assert (await played(Idle(), "crash_at", {"op": "write", "nth": 1}))[-1]["evidence"]


class Quorum:
    """Replaces `admin` for questions about the quorum: once a controller was asked to resign, each answer has a new
    epoch.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *after: tuple[int, int]) -> None:
        self.said = [(1, 4), *after]
        self.unseated = 0
        monkeypatch.setattr(admin, "describe_quorum", self.describe)
        monkeypatch.setattr(admin, "unseat_controller", self.unseat)

    async def describe(self, client: Any) -> admin.QuorumDescription:
        leader, epoch = self.said.pop(0) if self.unseated and len(self.said) > 1 else self.said[0]
        return admin.QuorumDescription(leader, epoch, 9, {}, {})

    async def unseat(self, client: Any) -> admin.QuorumDescription:
        self.unseated += 1
        leader, epoch = self.said.pop(0)
        return admin.QuorumDescription(leader, epoch, 9, {}, {})


async def test_a_resignation_shows_who_led_the_quorum_before_and_after(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    quorum = Quorum(monkeypatch, (-1, 5), (3, 6))
    last = (await played(World(), "leadership", {"how": "resign"}, target="controller"))[-1]
    assert last["error"] is None
    assert last["evidence"] == {
        "before": {"controller": 1, "epoch": 4},
        "asked": 1,
        "after": {"controller": 3, "epoch": 6},
    }
    assert last["ended"] - last["began"] == pytest.approx(2e9, rel=0.01)
    assert quorum.unseated == 1


async def test_a_resignation_that_nobody_follows_has_not_landed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    Quorum(monkeypatch, (-1, 5))
    last = (await played(World(), "leadership", {"how": "resign"}, target="controller"))[-1]
    assert last["evidence"] is None
    assert last["seen"] == {"before": {"controller": 1, "epoch": 4}}
    assert last["error"] == "resign: no controller followed"


async def test_only_the_controller_can_resign(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    quorum = Quorum(monkeypatch)
    last = (await played(World(), "leadership", {"how": "resign"}, target="node:2"))[-1]
    assert last["error"] == "node 1 is the active controller"
    assert quorum.unseated == 0


async def test_a_refused_election_has_not_landed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async def refuse(client: Any, places: Any, *, unclean: bool = False, timeout_ms: int = 0) -> dict[Any, str]:
        return dict.fromkeys(places, "PREFERRED_LEADER_NOT_AVAILABLE")

    monkeypatch.setattr(admin, "elect_leaders", refuse)
    last = (await played(World(), "leadership"))[-1]
    assert last["evidence"] is None
    assert last["seen"]["answers"] == {"t-0": "PREFERRED_LEADER_NOT_AVAILABLE"}
