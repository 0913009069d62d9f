"""Stops without a controller, resignations of one that another has followed, disks that are not written to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from squall.chaos.faults.kind import Fault
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runs.run_store import MemoryRunStore
from squall.chaos.runtimes.contract import Link, NodeState, ProbeResult
from squall.workloads.client import admin
from squall.workloads.client.connection import RequestFailed
from tests.unit.faults.test_acts import VIEW, Asked, Quorum, VirtualEnv, World, played


async def second_of(runtime: Any, faults: list[Fault]) -> dict[str, Any]:
    """The last line of the second of two faults."""
    papers = MemoryRunStore("a run")
    await Nemesis(runtime, faults, 1, env=VirtualEnv(), cluster=Asked(), record=papers.fault).play()
    last: dict[str, Any] = {line["id"]: line for line in map(json.loads, papers.faults)}[1]
    return last


async def test_a_controller_that_another_one_has_followed_is_not_asked_but_the_other_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    quorum = Quorum(monkeypatch, (2, 5))
    asked = Asked(replace(VIEW, controller=3), VIEW)
    last = (await played(World(), "leadership", {"how": "resign"}, target="controller", asked=asked))[-1]
    assert last["error"] is None
    assert last["target"]["resolved"] == [last["evidence"]["before"]["controller"]] == [1]
    assert quorum.unseated == 1


async def test_an_epoch_that_began_before_the_question_is_no_resignation(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """It was another controller that was asked, or one of a later epoch: it is asked once more."""
    quorum = Quorum(monkeypatch, *4 * [(1, 6)], (3, 7))
    first = quorum.unseat

    async def late(client: Any) -> admin.QuorumDescription:
        told = await first(client)
        return told._replace(epoch=5) if quorum.unseated == 1 else told

    monkeypatch.setattr(admin, "unseat_controller", late)
    last = (await played(World(), "leadership", {"how": "resign"}, target="controller"))[-1]
    assert last["error"] is None
    assert last["evidence"]["before"] == {"controller": 1, "epoch": 6}
    assert last["evidence"]["asked"] == 1
    assert quorum.unseated == 2


async def test_a_controller_that_is_being_killed_is_asked_to_resign_once_there_is_one_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    quorum = Quorum(monkeypatch, (1, 5))
    describe = quorum.describe

    async def refused(client: Any) -> admin.QuorumDescription:
        if trio.current_time() < 5.0:
            raise RequestFailed("CONNECTION_LOST", sent=False)
        return await describe(client)

    monkeypatch.setattr(admin, "describe_quorum", refused)
    faults = [
        make_fault(0, 0.0, 4.5, "kill", "node:1", {}),
        make_fault(1, 0.1, 2.0, "leadership", "controller", {"how": "resign"}),
    ]
    last = await second_of(World(), faults)
    assert last["error"] is None
    assert last["ended"] - last["on"] == pytest.approx(2e9, rel=0.01), "as long as planned, from when it landed"


@pytest.mark.parametrize(
    ("told", "lands"),
    [
        ({"controlled": True}, True),
        ({"controlled": False, "alone": True}, True),
        ({"controlled": False, "alone": False}, False),
        ({"controlled": False}, False),
    ],
)
@pytest.mark.parametrize(("action", "params"), [("stop", {}), ("rolling", {"how": "stop"})])
async def test_a_broker_that_was_stopped_was_let_go_or_had_nobody_to_let_it_go(
    autojump_clock: trio.testing.MockClock, action: str, params: dict[str, Any], told: dict[str, Any], lands: bool
) -> None:
    class Stopped(World):
        async def stop_node(self, node: int, *, grace_s: float = 30.0) -> dict[str, Any]:
            return {**await super().stop_node(node), **told}

    last = (await played(Stopped(), action, params))[-1]
    assert bool(last["evidence"]) is lands
    assert lands or last["error"] == "no evidence that every node was controlled"
    missing = KINDS[action].verify(last["evidence"] or last["seen"], params, last["target"]["resolved"])
    assert (not missing) is lands


async def test_a_disk_that_nobody_wrote_to_stays_bad_for_once_more_as_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Idle(World):
        """Nothing is written in its first three seconds."""

        async def heal_disk(self, name: str, node: int) -> dict[str, Any]:
            return {"hits": int(trio.current_time() > 3.0)}

    slow = {"how": "slow", "op": "write", "delay_ms": 20}
    assert (await played(Idle(), "disk", slow))[-1]["evidence"]
    last = (await played(World(hits=0), "disk", slow))[-1]
    assert last["error"] == "nothing was written that it could have hit"
    assert last["ended"] - last["began"] == pytest.approx(4e9, rel=0.01)


async def test_connections_of_a_broker_that_is_down_are_reset_once_it_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Dead(World):
        """A node that is down does not answer."""

        async def ending(self, link: Link, *, timeout_s: float = 1.0, opened: Any = None) -> ProbeResult:
            if self.states[link.target] is not NodeState.RUNNING:
                return ProbeResult(False, 0.5, "refused")
            return await super().ending(link, timeout_s=timeout_s, opened=opened)

    killed = make_fault(0, 0.0, 5.0, "kill", "node:2", {})
    last = await second_of(Dead(), [killed, make_fault(1, 0.1, 1.0, "reset", "node:2", {"side": "clients"})])
    assert last["error"] is None
    assert last["began"] - last["asked"] > 4e9


async def test_a_rolling_restart_begins_once_all_its_brokers_run(autojump_clock: trio.testing.MockClock) -> None:
    damaged = make_fault(0, 0.0, 5.0, "damage", "node:3", {})
    last = await second_of(World(), [damaged, make_fault(1, 0.1, 9.0, "rolling", "all", {"how": "kill"})])
    assert last["error"] is None
    assert len(last["evidence"]["steps"]) == 3
