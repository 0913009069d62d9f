"""Elections, reassignments and controller resignations by request, on real brokers. Clients see another leader, other
replicas or another controller epoch. A request that did not arrive, or was reverted, is no evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runs.observer import ClusterObserver
from squall.chaos.runtimes.contract import Runtime
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.runtimes.layout import addresses
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.workloads.client import admin
from tests.live.contract.conftest import Test
from tests.live.contract.player import play
from tests.live.engine import engine_and_images
from tests.support.patience import LONG_S, scaled, slowed

MOVED_S, ELECTED_S, SWALLOWED_S = 3.0, 1.2, 0.5
"""Duration of each kind of fault: long enough to move empty partitions, long enough to see an election, and short."""


def on_machine(test: Test, runtime: Any) -> None:
    """Run a test's body on a cluster of real brokers."""

    async def run() -> None:
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


def three(where: str, folder: Path) -> Callable[[Test], None]:
    """Return a function that runs a test's body on three of our brokers."""
    settings = slowed(FAST_FAILOVER)
    if where == "process":
        return partial(on_machine, runtime=ProcessRuntime(folder / "run", settings=settings, proxied=False))
    return partial(on_machine, runtime=DockerRuntime(folder / "run", *engine_and_images(), settings=settings))


class Administered:
    """A cluster, and a client that sends it admin requests. `other` is another administrator."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        servers = addresses(runtime.bootstrap("CLIENT"))
        self.observer, self.other = (
            ClusterObserver(runtime.env(name), servers, runtime.nodes) for name in ("observer", "other")
        )

    async def view(self) -> ClusterSnapshot:
        """Return the cluster as clients see it."""
        return await self.observer.view()

    async def until(self, true: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        """Wait until `true` holds for the cluster as clients see it, and return that view."""
        with trio.fail_after(LONG_S):
            while not true(view := await self.view()):
                await trio.sleep(0.05)
        return view

    async def lands(self, how: str, target: str, duration_s: float) -> dict[str, Any]:
        """Inject a fault, assert that it has evidence, and return that."""
        line = await self._played(how, target, duration_s)
        assert line["evidence"], line
        assert line["error"] is None
        found: dict[str, Any] = line["evidence"]
        return found

    async def fails(self, how: str, target: str, duration_s: float = SWALLOWED_S) -> str:
        """Inject a fault, assert that it has no evidence, and return the reason."""
        line = await self._played(how, target, duration_s)
        assert line["evidence"] is None, line
        return str(line["error"] or pytest.fail(f"nobody says why {how} did not land"))

    async def unheard(self, how: str, target: str, request: str) -> str:
        """Inject a fault whose request is dropped and reported as done. Returns why it has no evidence."""

        before = await admin.describe_quorum(self.observer.client)

        async def swallow(client: Any, places: Any = (), **_: Any) -> Any:
            return before if request == "unseat_controller" else dict.fromkeys(places, "")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admin, request, swallow)
            return await self.fails(how, target)

    async def _played(self, how: str, target: str, duration_s: float) -> dict[str, Any]:
        lasts_s = scaled(duration_s, self.runtime.name)
        fault = make_fault(0, 0.0, lasts_s, "leadership", target, {"how": how})
        (line,) = await play(self.runtime, fault, cluster=self.observer)
        return line


def administered(where: str, folder: Path, story: Callable[[Administered], Any]) -> None:
    """Run a test's body on three of our brokers."""

    async def body(runtime: Runtime) -> None:
        at = Administered(runtime)
        async with trio.open_nursery() as nursery:
            for observer in (at.observer, at.other):
                await nursery.start(observer.client.run)
            await story(at)
            nursery.cancel_scope.cancel()

    three(where, folder)(body)


@pytest.mark.parametrize("where", ["process", "docker"])
def test_a_broker_is_emptied_and_filled_again_and_clients_see_it(tmp_path: Path, where: str) -> None:
    async def story(at: Administered) -> None:
        await at.observer.create_topics([admin.NewTopic("t", 4, 2, {})], 60)
        for how in ("drain", "fill"):
            before = await at.view()
            why = await at.unheard(how, "node:2", "alter_partition_reassignments")
            assert why == "the replicas are not those that were asked for"
            assert (await at.view()).replicas == before.replicas
            told = await at.lands(how, "node:2", MOVED_S)
            replicas = (await at.view()).replicas
            assert all((2 in replicas[name]) is (how == "fill") for name in told["after"])
        assert "no partition can be moved" in await at.fails("fill", "node:2")
        assert all(2 in each for each in (await at.view()).replicas.values()), "it holds all already"

    administered(where, tmp_path, story)


@pytest.mark.parametrize("where", ["process", "docker"])
def test_leaders_are_moved_and_elected_as_clients_see_and_only_then_there_is_evidence(
    tmp_path: Path, where: str
) -> None:
    async def story(at: Administered) -> None:
        await at.observer.create_topics([admin.NewTopic("t", 1, 3, {})], 60)
        await _moved(at)
        await at.observer.create_topics([admin.NewTopic("u", 1, 2, {})], 60)
        await _preferred(at)
        await _resigned(at)
        await _unclean(at)

    administered(where, tmp_path, story)


async def _moved(at: Administered) -> None:
    before = await at.view()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_take_back, at.other, before.replicas["t-0"])
        await at.fails("move", "leader:t-0", 1.5)
        nursery.cancel_scope.cancel()
    before = await at.until(lambda view: view.replicas == before.replicas)
    told = await at.lands("move", "leader:t-0", 1.5)
    assert told["answers"] == {"t-0": ""}
    first, *others = before.replicas["t-0"]
    after = await at.view()
    assert after.replicas["t-0"] == (*others, first)
    assert after.leaders["t-0"] == others[0] != before.leaders["t-0"], "the new preferred leader was elected"


async def _take_back(other: ClusterObserver, replicas: tuple[int, ...]) -> None:
    """Move the partition back to these replicas again and again, as another administrator might."""
    while True:
        if (await other.view()).replicas["t-0"] != replicas:
            await admin.alter_partition_reassignments(other.client, {("t", 0): list(replicas)}, timeout_ms=5000)
        await trio.sleep(0.02)


async def _preferred(at: Administered) -> None:
    view = await at.view()
    leader, *others = sorted(view.replicas["t-0"], key=lambda node: node != view.leaders["t-0"])
    await admin.alter_partition_reassignments(at.other.client, {("t", 0): [*others, leader]}, timeout_ms=5000)
    await at.until(lambda view: view.replicas["t-0"][0] == others[0])
    why = await at.unheard("preferred", "leader:t-0", "elect_leaders")
    assert why == "the leaders are not those that were asked for"
    assert (await at.view()).leaders["t-0"] == leader
    await at.lands("preferred", "leader:t-0", ELECTED_S)
    assert (await at.view()).leaders["t-0"] == others[0]


async def _resigned(at: Administered) -> None:
    before = await admin.describe_quorum(at.observer.client)
    why = await at.unheard("resign", "controller", "unseat_controller")
    assert "no controller followed" in why
    assert (await admin.describe_quorum(at.observer.client)).epoch == before.epoch
    await at.lands("resign", "controller", MOVED_S)
    assert (await admin.describe_quorum(at.observer.client)).epoch > before.epoch


async def _unclean(at: Administered) -> None:
    """Cause an unclean election: kill the leader while it is the only in-sync replica, and elect a follower."""
    runtime, view = at.runtime, await at.view()
    leader = view.leaders["u-0"]
    (follower,) = set(view.replicas["u-0"]) - {leader}
    await runtime.stop_node(follower)
    await at.until(lambda view: view.isr["u-0"] == (leader,))
    await runtime.stop_node(leader)
    await runtime.start_node(follower)
    await at.until(lambda view: view.leaders["u-0"] < 0)
    why = await at.unheard("unclean", f"node:{follower}", "elect_leaders")
    assert why == "the leaders are not those that were asked for"
    assert (await at.view()).leaders["u-0"] < 0
    await at.lands("unclean", f"node:{follower}", ELECTED_S)
    assert (await at.view()).leaders["u-0"] == follower
