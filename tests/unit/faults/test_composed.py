"""Faults on one target at once, faults made of steps, and faults of the workload's clients."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from chaos.errors import HarnessError
from chaos.faults.kind import Fault, FaultError
from chaos.faults.kinds import KINDS
from chaos.faults.vocabulary import make_fault
from chaos.plans.plan import PlanError, make_plan
from chaos.runs.simulation import simulate
from chaos.runtimes.contract import Link, NodeState, Probe
from chaos.runtimes.sim.wires import Wire
from checkers.history.tables import PlayedFault
from checkers.nemesis_log import parse_faults
from checkers.verdict import UNKNOWN, VALID
from tests.unit.faults.test_nemesis import World, played
from workloads.control import Handle


class Answering(World):
    """Whose nodes answer unless they are paused."""

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> Probe:
        silent = self.states[link.target] is NodeState.PAUSED and not self.inert
        return Probe(not silent, timeout_s * 1000, "timed out" if silent else None)


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
    """Whose nodes take two seconds to come up, in which a signal would end them."""

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
    assert killed["error"] == "Unresolved: node 1 is paused already, by fault 0 (pause)"
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


def simulated(
    *faults: dict[str, Any], time_s: float = 12, **other: Any
) -> tuple[str, tuple[str, ...], list[PlayedFault]]:
    """Verdict, reasons, and the faults as they are told."""
    load = {"topics": 1, "partitions": 2, "producers": 2, "readers": 1, "rate": 40, **other}
    plan = make_plan(
        {"runtime": "sim", "seed": 5, "warmup_s": 1, "time_s": time_s, "workload": load, "faults": list(faults)}
    )
    result = simulate(plan)
    told, _ = parse_faults(result.papers()["nemesis.jsonl"].splitlines(keepends=True))
    return result.verdict, result.told, told


def test_a_crashed_producer_is_followed_by_another_process_and_nothing_is_lost() -> None:
    fault = {"at_s": 2, "duration_s": 1, "action": "client", "target": "producer:1"}
    verdict, reasons, (told,) = simulated(fault)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    assert told.evidence["client"] == "producer 1"
    assert told.evidence["process"] != told.evidence["followed_by"]


@pytest.mark.parametrize("target", ["producer:0", "reader"])
def test_a_client_that_stands_still_leaves_a_gap(target: str) -> None:
    fault = {"at_s": 2, "duration_s": 3, "action": "client", "target": target, "params": {"how": "pause"}}
    verdict, reasons, (told,) = simulated(fault)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    assert told.evidence["during"] == 0
    assert told.evidence["after"] > 0


@pytest.mark.parametrize("stream", ["there", "back"])
def test_requests_that_overtake_each_other_lose_and_double_nothing(stream: str) -> None:
    slow = {"side": "clients", "latency_ms": 20, "jitter_ms": 5}
    params = {"api": "Produce", "act": "reorder", "count": 0, "side": "clients", "stream": stream}
    latency = {"at_s": 1, "duration_s": 5, "action": "latency", "target": "all", "params": slow}
    reorder = {"at_s": 2, "duration_s": 3, "action": "protocol", "target": "all", "params": params}
    in_flight = {"rate": 300, "linger_ms": 0, "batch_bytes": 1024}
    verdict, reasons, (_, told) = simulated(latency, reorder, time_s=9, **in_flight)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    assert sum(told.evidence["hits"]) > 3


@pytest.mark.parametrize("how", ["crash", "pause"])
def test_a_client_that_only_was_told_to_leaves_the_run_unknown(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handle, "hold", lambda handle, who: None)
    monkeypatch.setattr(Handle, "crash", lambda handle, who: handle.processes[-1])
    fault = {"at_s": 2, "duration_s": 2, "action": "client", "target": "producer:1", "params": {"how": how}}
    verdict, reasons, (told,) = simulated(fault)
    assert verdict == UNKNOWN
    assert told.evidence is None
    assert "producer 1" in reasons[0]


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("partition", {"shape": "ring", "manner": "hold"}),
        ("bandwidth", {"side": "both"}),
        ("flapping", {"side": "clients"}),
        ("protocol", {"api": "Fetch", "act": "drop"}),
    ],
)
def test_a_fault_of_links_that_is_switched_off_makes_the_whole_run_unknown(
    action: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = {"at_s": 2, "duration_s": 3, "action": action, "target": "leader", "params": params}
    verdict, reasons, _ = simulated(fault, time_s=8)
    assert verdict == VALID, reasons
    monkeypatch.setattr(Wire, "add", lambda wire, name, fault: None)
    verdict, reasons, (told,) = simulated(fault, time_s=8)
    assert verdict == UNKNOWN
    assert told.evidence is None
    assert action in reasons[0]


async def test_a_rolling_restart_of_brokers_that_never_left_has_not_landed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    (line,) = await played(World(inert=True), [make_fault(0, 0.1, 9.0, "rolling", "all", {"how": "kill"})])
    assert line["evidence"] is None
    assert line["error"] == "no evidence that every node was gone"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            {"action": "client", "target": "producer:2"},
            "there is no producer:2: the workload has producer:0 to producer:1",
        ),
        (
            {"action": "client", "target": "reader:1", "params": {"how": "pause"}},
            "there is no reader:1: the workload has reader:0",
        ),
        ({"action": "client", "target": "producer:"}, "nothing stands behind the colon"),
    ],
)
def test_a_client_that_there_is_not_is_refused_when_the_plan_is_read(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        simulated({"at_s": 2, "duration_s": 1, **fault})


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_rolling_restart_waits_for_each_broker_to_be_in_sync(how: str) -> None:
    fault = {"at_s": 1, "duration_s": 60, "action": "rolling", "target": "all", "params": {"how": how}}
    verdict, reasons, (told,) = simulated(fault, time_s=40)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    steps = told.evidence["steps"]
    assert [step["node"] for step in steps] == [1, 2, 3]
    for earlier, later in zip(steps, steps[1:], strict=False):
        assert earlier["up"]["ready_ns"] < earlier["in_sync_ns"] <= later["down"]["asked_ns"]


def test_a_rolling_restart_that_takes_longer_than_it_may_has_not_landed() -> None:
    behind = {"at_s": 1, "duration_s": 8, "action": "pause", "target": "node:2"}
    restart = {"at_s": 6, "duration_s": 1, "action": "rolling", "target": "node:1"}
    verdict, reasons, _ = simulated(behind, restart)
    assert verdict == UNKNOWN
    assert "was not in sync again within the 1 s" in reasons[0]


def test_a_rolling_restart_does_not_keep_down_what_another_fault_took_down() -> None:
    restart = {"at_s": 1, "duration_s": 60, "action": "rolling", "target": "all", "params": {"how": "kill"}}
    disk = {"at_s": 1.1, "duration_s": 3, "action": "disk", "target": "node:3", "params": {"how": "EIO", "op": "write"}}
    _, reasons, told = simulated(restart, disk, time_s=40)
    by_action = {fault.action: fault for fault in told}
    hurt = by_action["disk"].evidence
    assert hurt is not None, reasons
    assert len(hurt["started"]) == 1, "by the one that took it down, when that ends"


def test_two_rolling_restarts_at_once_take_their_turns() -> None:
    rolling = {"duration_s": 60, "action": "rolling", "target": "all", "params": {"how": "kill"}}
    verdict, reasons, told = simulated({"at_s": 1, **rolling}, {"at_s": 1.2, **rolling}, time_s=60)
    assert verdict == VALID, reasons
    assert [len(each.evidence["steps"]) for each in told if each.evidence is not None] == [3, 3]


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
    assert rolled["error"] == "HarnessError: node 2 was down when it was its turn"
    assert world.done == ["kill 1", "kill 2", "start 1", "start 2"]


def test_a_fault_is_a_plain_value() -> None:
    assert make_fault(0, 0, 1, "client", "producer", {}) == Fault(
        0, 0.0, 1.0, KINDS["client"], "producer", {"how": "crash"}
    )
