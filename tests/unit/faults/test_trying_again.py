"""Faults that others get in the way of: what is tried again, and what is no evidence however often it is tried."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.errors import HarnessError
from squall.chaos.faults.context import FaultExecution
from squall.chaos.faults.kind import Fault
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.timeouts import WHOLE_WITHIN_S
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runs.run_store import MemoryRunStore
from squall.chaos.runtimes.contract import Link, NodeState, ProbeResult
from squall.workloads.client import admin
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from tests.unit.faults.test_acts import ELECTED, MOVED, VIEW, Asked, VirtualEnv
from tests.unit.faults.test_acts import World as Acting
from tests.unit.faults.test_acts import played as acted
from tests.unit.faults.test_nemesis import World, played

SLOW, FAST = ProbeResult(True, 200.0), ProbeResult(True, 0.5)
REFUSED, SILENT = ProbeResult(False, 0.5, "refused"), ProbeResult(False, 700.0, "timed out")
CUT_SHORT = ProbeResult(False, 10.0, "ended: connection with broker-1 was reset")
CLOSED, CLOSED_LATE = ProbeResult(True, 0.5, "closed"), ProbeResult(True, 500.0, "closed")
RESET, STILL_OPEN = ProbeResult(True, 20.0, "ended: connection reset by peer"), ProbeResult(False, 700.0, "still open")


class Scripted(World):
    """A runtime whose links return one probe before a fault, and then one after the other; the last one is repeated."""

    def __init__(self, before: ProbeResult, *during: ProbeResult) -> None:
        super().__init__()
        self.before, self.during = before, during
        self.looks: dict[Link, int] = {}

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        if not any(where == link for _, where in self.faults):
            return self.before
        at = self.looks[link] = self.looks.get(link, 0) + 1
        return self.during[min(at, len(self.during)) - 1]

    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Any = None
    ) -> ProbeResult:
        return await self.probe(link)


LANDS: list[tuple[str, dict[str, Any], ProbeResult, list[ProbeResult]]] = [
    ("latency", {"latency_ms": 100, "jitter_ms": 10}, FAST, [CUT_SHORT, SILENT, SLOW]),
    ("bandwidth", {"kb_per_s": 500}, FAST, [REFUSED, SLOW]),
    ("slicer", {}, FAST, [SILENT, SLOW]),
    ("limit_data", {"limit_bytes": 2000}, FAST, [REFUSED, SILENT, CUT_SHORT]),
    ("reset_peer", {"after_ms": 100}, STILL_OPEN, [REFUSED, RESET]),
    ("slow_close", {"delay_ms": 500}, CLOSED, [RESET, REFUSED, CLOSED_LATE]),
]
WHOLE = {"latency": FAST, "bandwidth": FAST, "slicer": FAST, "limit_data": FAST, "reset_peer": STILL_OPEN,
            "slow_close": CLOSED}  # fmt: skip
"""The probe that each fault's link returns if the fault has no effect."""


@pytest.mark.parametrize(("action", "params", "before", "during"), LANDS, ids=[each[0] for each in LANDS])
async def test_what_another_fault_cuts_short_is_measured_again(
    action: str,
    params: dict[str, Any],
    before: ProbeResult,
    during: list[ProbeResult],
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Scripted(before, *during)
    (line,) = await played(world, [make_fault(0, 0.1, 3.0, action, "node:1", params)])
    assert line["error"] is None
    in_the_middle = at_the_end = 1
    assert set(world.looks.values()) == {len(during) + in_the_middle + at_the_end}


@pytest.mark.parametrize(("action", "params", "before", "during"), LANDS, ids=[each[0] for each in LANDS])
async def test_a_link_that_shows_to_be_whole_proves_nothing_even_where_it_fits_later(
    action: str,
    params: dict[str, Any],
    before: ProbeResult,
    during: list[ProbeResult],
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Scripted(before, during[0], WHOLE[action], during[-1])
    (line,) = await played(world, [make_fault(0, 0.1, 3.0, action, "node:1", params)])
    assert line["evidence"] is None
    assert "nothing could be compared" not in line["error"]


@pytest.mark.parametrize("action", ["latency", "slow_close"])
async def test_a_link_that_says_nothing_while_the_fault_lasts_proves_nothing(
    action: str, autojump_clock: trio.testing.MockClock
) -> None:
    world = Scripted(ProbeResult(True, 0.5, "closed"), REFUSED)
    (line,) = await played(world, [make_fault(0, 0.1, 3.0, action, "node:1", {})])
    assert line["evidence"] is None
    assert line["ended"] - line["began"] == pytest.approx(3e9)


# ------------------------------------------------------------------------------------------------------------ resets


class Opening(Acting):
    """Has links that open from a certain time on."""

    def __init__(self, at_s: float) -> None:
        super().__init__()
        self.at_s = at_s

    async def ending(self, link: Link, *, timeout_s: float = 1.0, opened: Any = None) -> ProbeResult:
        if trio.current_time() < self.at_s:
            return ProbeResult(False, 0.5, "refused")
        return await super().ending(link, timeout_s=timeout_s, opened=opened)


async def test_connections_of_a_broker_that_is_just_starting_are_reset_when_it_is_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = Opening(2.0)
    last = (await acted(world, "reset"))[-1]
    assert last["error"] is None
    assert last["began"] - last["asked"] == pytest.approx(1.9e9, abs=0.2e9)
    assert world.done == ["reset 5"]


async def test_links_that_stay_closed_have_no_connections_to_reset(autojump_clock: trio.testing.MockClock) -> None:
    last = (await acted(Opening(60.0), "reset"))[-1]
    assert (last["evidence"], last["error"]) == (None, "no link answered")


async def test_a_broker_alone_has_no_links_between_brokers_to_reset(autojump_clock: trio.testing.MockClock) -> None:
    world = Acting()
    world.nodes = (1,)  # type: ignore[assignment]
    last = (await acted(world, "reset", {"side": "peers"}, target="node:1"))[-1]
    assert last["error"] == "node:1 has no such links"


# ------------------------------------------------------------------------------------------------- leaders and targets


class Answers:
    """Answers one request after the other as the controller; the last answer for good."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *said: str | Exception, takes_s: float = 0.0) -> None:
        self.said, self.takes_s, self.asked = list(said), takes_s, 0
        monkeypatch.setattr(admin, "elect_leaders", self.answer)
        monkeypatch.setattr(admin, "alter_partition_reassignments", self.answer)

    async def answer(self, client: Any, places: Any, **_: Any) -> dict[Any, str]:
        self.asked += 1
        await trio.sleep(self.takes_s)
        said = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(said, Exception):
            raise said
        return dict.fromkeys(places, said)


class Changing(Asked):
    """A cluster that is another one from a certain time on."""

    def __init__(self, before: ClusterSnapshot, at_s: float, after: ClusterSnapshot) -> None:
        super().__init__()
        self.before, self.at_s, self.after = before, at_s, after

    async def view(self) -> ClusterSnapshot:
        return self.before if trio.current_time() < self.at_s else self.after


@pytest.mark.parametrize("refusal", ["PREFERRED_LEADER_NOT_AVAILABLE", RequestFailed("TIMED_OUT", sent=True)], ids=str)
async def test_an_election_that_is_refused_is_asked_for_again(
    refusal: Any, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    answers = Answers(monkeypatch, refusal, refusal, "")
    last = (await acted(Acting(), "leadership", asked=Changing(VIEW, 1.3, ELECTED)))[-1]
    assert last["error"] is None
    assert last["evidence"]["answers"] == {"t-0": ""}
    assert answers.asked == 3


async def test_an_election_that_cannot_be_asked_for_has_not_landed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    answers = Answers(monkeypatch, RequestFailed("TIMED_OUT", sent=True))
    last = (await acted(Acting(), "leadership"))[-1]
    assert last["evidence"] is None
    assert "preferred: TIMED_OUT" in last["error"]
    assert answers.asked > 1
    assert last["ended"] - last["began"] < (WHOLE_WITHIN_S + 0.5) * 1e9, "no other fault is on that it could wait for"


async def test_what_no_controller_understands_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    answers = Answers(monkeypatch, UnsupportedApi("ELECT_LEADERS: not served"))
    last = (await acted(Acting(), "leadership"))[-1]
    assert last["evidence"] is None
    assert "preferred: ELECT_LEADERS: not served" in last["error"]
    assert answers.asked == 1


@pytest.mark.parametrize(("moved_s", "lands"), [(0.4, True), (0.2, False)])
async def test_a_leader_that_was_there_when_none_had_to_be_elected_may_be_moved_afterwards(
    moved_s: float, lands: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    Answers(monkeypatch, "ELECTION_NOT_NEEDED", takes_s=0.2)
    elsewhere = ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (2,)}, {"t-0": (2,)})
    last = (await acted(Acting(), "leadership", asked=Changing(ELECTED, moved_s, elsewhere)))[-1]
    assert last["error"] == (None if lands else "the leaders are not those that were asked for")


async def test_a_move_whose_answer_was_lost_is_asked_for_once_more_as_it_was(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    wanted: list[Any] = []

    async def move(client: Any, moves: Any, **_: Any) -> dict[Any, str]:
        wanted.append(moves)
        if len(wanted) == 1:
            raise RequestFailed("CONNECTION_LOST", sent=True)
        return dict.fromkeys(moves, "")

    async def elect(client: Any, places: Any, **_: Any) -> dict[Any, str]:
        raise RequestFailed("TIMED_OUT", sent=True)

    monkeypatch.setattr(admin, "alter_partition_reassignments", move)
    monkeypatch.setattr(admin, "elect_leaders", elect)
    last = (await acted(Acting(), "leadership", {"how": "move"}, asked=Asked(VIEW, VIEW, MOVED)))[-1]
    assert last["error"] is None
    assert last["evidence"]["before"]["t-0"]["replicas"] == [1, 2, 3]
    assert wanted == [{("t", 0): [2, 3, 1]}] * 2


async def test_a_partition_of_an_only_broker_cannot_be_moved(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    answers = Answers(monkeypatch, "")
    alone = ClusterSnapshot((2,), 2, {"t-0": 2}, {"t-0": (2,)}, {"t-0": (2,)})
    last = (await acted(Acting(), "leadership", {"how": "move"}, asked=Asked(alone)))[-1]
    assert last["error"] == "t-0 has its only replica on the only broker: it cannot be moved"
    assert answers.asked == 0
    moved = (await acted(Acting(), "leadership", {"how": "move"}, asked=Asked(VIEW, VIEW, MOVED)))[-1]
    assert moved["error"] is None


NOBODY = ClusterSnapshot((1, 2, 3), 1, {}, {}, {})


async def _played(runtime: Any, asked: Any, *faults: Fault) -> list[FaultExecution]:
    nemesis = Nemesis(runtime, faults, 1, env=VirtualEnv(), cluster=asked, record=MemoryRunStore("a run").fault)
    await nemesis.play()
    return nemesis.played


@pytest.mark.parametrize(("seconds", "lands"), [(1, True), (6, False)])
async def test_who_answers_to_a_targets_name_is_waited_for_but_not_for_long(
    seconds: int, lands: bool, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    (p,) = await _played(world, Asked(*[NOBODY] * 10 * seconds, VIEW), make_fault(0, 0.1, 1.0, "kill", "leader", {}))
    assert p.landed == lands
    assert world.done == (["kill 2", "start 2"] if lands else [])
    assert lands or p.error == "no partition exists"


# ------------------------------------------------------------------------------------------------------------- pauses


class Slow(World):
    """Has five nodes that take a third of a second to show that they are paused."""

    nodes = (1, 2, 3, 4, 5)  # type: ignore[assignment]

    async def pause(self, node: int) -> dict[str, Any]:
        assert self.states[node] is NodeState.RUNNING
        told = await super().pause(node)
        await trio.sleep(0.3)
        return told

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        await trio.sleep(timeout_s)
        return SILENT if self.states[link.target] is NodeState.PAUSED else FAST


async def test_nodes_are_paused_at_once_however_many_they_are(autojump_clock: trio.testing.MockClock) -> None:
    world = Slow()
    asked = Asked(ClusterSnapshot(world.nodes, 1, {"t-0": 2}, {"t-0": (2,)}, {"t-0": (2,)}))
    both = [make_fault(at, 0.1, length_s, "pause", "all", {}) for at, length_s in enumerate((1.1, 1.5))]
    assert [p.error for p in await _played(world, asked, *both)] == [None, None]
    assert set(world.states.values()) == {NodeState.RUNNING}


async def test_nodes_that_are_being_paused_are_let_go_though_another_one_cannot_be(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Stubborn(Slow):
        async def pause(self, node: int) -> dict[str, Any]:
            if node == 3:
                raise HarnessError("node 3 did not stop")
            await trio.sleep(0.2)  # in which it is paused already, and its state is not known yet
            return await super().pause(node)

    world = Stubborn()
    (p,) = await _played(world, Asked(), make_fault(0, 0.1, 1.0, "pause", "all", {}))
    assert p.error == "node 3 did not stop"
    assert not p.landed
    assert world.done == ["resume 1", "resume 2"]
