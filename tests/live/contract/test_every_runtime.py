"""The contract of runtimes: an action of a plan has the same effect in processes, in containers and in the simulator.
"""

from __future__ import annotations

import pytest
import trio

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Cut, CutMode, Latency, Link, NodeState, Runtime
from squall.chaos.runtimes.layout import addresses
from tests.live.contract.conftest import OnCluster
from tests.live.hurt_links import CUTS, SLOW, WORSE, answers, is_quick_again
from tests.support.patience import LONG_S, scaled

HURT, OTHER_WAY = Link(1, 2), Link(2, 1)


def test_every_link_leads_to_a_broker_once_the_cluster_is_up(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        assert len(runtime.links()) == 6 + 3
        for link in runtime.links():
            assert await answers(runtime, link), link

    on_cluster(body)


def test_the_listener_between_nodes_is_reached_straight_whatever_is_cut(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for link in runtime.links():
            await runtime.fault_link("cut", link, Cut(CutMode.REFUSE))
        env = runtime.env("inside")
        for host, port in addresses(runtime.bootstrap("INTERNAL")):
            (await env.connect(host, port)).close()
        with pytest.raises(OSError):
            await env.connect(*addresses(runtime.bootstrap("CLIENT"))[0])
        with pytest.raises(PreconditionError, match="no zone 'MOON'"):
            runtime.bootstrap("MOON")

    on_cluster(body)


@pytest.mark.gate
def test_nothing_passes_a_cut_link_and_every_other_way_is_whole(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for cut, error in CUTS:
            await runtime.fault_link("cut", HURT, cut)
            within_s = scaled(0.3, runtime.name) if error == "timed out" else LONG_S
            told = (await runtime.probe(HURT, timeout_s=within_s)).error
            assert told is not None, cut
            assert told.startswith(error.partition(":")[0]), cut
            assert await answers(runtime, OTHER_WAY), cut
            assert await answers(runtime, Link("CLIENT", 2)), cut
            await runtime.heal_link("cut", HURT)
            assert await answers(runtime, HURT), cut

    on_cluster(body)


def test_a_slow_link_is_measurably_slow_and_one_that_is_only_worse_still_answers(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for fault, least_ms in SLOW:
            await runtime.fault_link("slow", HURT, fault)
            slow = await runtime.probe(HURT, timeout_s=LONG_S)
            assert slow.ok, fault
            assert slow.round_trip_ms >= least_ms, fault
            await runtime.heal_link("slow", HURT)
            assert await is_quick_again(runtime, HURT, least_ms), fault
        for worse in WORSE:
            await runtime.fault_link("worse", HURT, worse)
            assert await answers(runtime, HURT), worse
            await runtime.heal_link("worse", HURT)

    on_cluster(body)


def test_what_was_held_arrives_late(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await runtime.fault_link("held", HURT, Cut(CutMode.HOLD))
        probes, waited_s = [], []

        async def wait(task_status: trio.TaskStatus[None]) -> None:
            began_s = trio.current_time()
            task_status.started()
            probes.append(await runtime.probe(HURT, timeout_s=LONG_S))
            waited_s.append(trio.current_time() - began_s)

        async with trio.open_nursery() as nursery:
            await nursery.start(wait)
            assert (await runtime.probe(HURT, timeout_s=scaled(0.3, runtime.name))).error == "timed out"
            assert probes == []
            await runtime.heal_link("held", HURT)
        assert probes[0].ok
        # Connecting counts as well: a round trip is timed from the request on.
        assert waited_s[0] >= scaled(0.3, runtime.name)

    on_cluster(body)


def test_ending_one_of_two_cuts_leaves_the_other(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for manner in CutMode:
            await runtime.fault_link("first", HURT, Cut(manner))
            await runtime.fault_link("second", HURT, Cut(manner))
            await runtime.heal_link("first", HURT)
            assert not (await runtime.probe(HURT, timeout_s=scaled(0.3, runtime.name))).ok, manner
            await runtime.heal_link("second", HURT)
            assert await answers(runtime, HURT), manner

    on_cluster(body)


def test_a_name_is_used_once_a_link_and_ending_what_is_not_there_is_no_error(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await runtime.fault_link("f", HURT, Latency(1))
        with pytest.raises(HarnessError, match="already has a fault named f"):
            await runtime.fault_link("f", HURT, Latency(1))
        await runtime.fault_link("f", OTHER_WAY, Latency(1))
        await runtime.heal_link("never", HURT)
        with pytest.raises(HarnessError, match="there is no link 1->9"):
            await runtime.fault_link("f", Link(1, 9), Latency(1))

    on_cluster(body)


@pytest.mark.gate
def test_a_killed_broker_is_gone_and_comes_back_as_a_new_incarnation(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        before = runtime.bootstrap("CLIENT")
        killed = await runtime.kill(1)
        assert killed["gone"] is True
        assert runtime.state(1) is NodeState.DOWN
        assert not (await runtime.probe(Link("CLIENT", 1))).ok
        started = await runtime.start_node(1)
        assert started["incarnation"] == 2
        assert started["pid"] != killed["pid"]
        assert await answers(runtime, Link("CLIENT", 1))
        assert runtime.bootstrap("CLIENT") == before

    on_cluster(body)


def test_a_paused_broker_answers_nothing_until_resumed(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        paused = await runtime.pause(2)
        assert paused["state"] == "T"
        assert paused["probe"] == paused["probe"] | {"ok": False}  # type: ignore[operator]
        assert (await runtime.probe(Link("CLIENT", 2), timeout_s=scaled(0.2, runtime.name))).error == "timed out"
        await runtime.resume(2)
        assert await answers(runtime, Link("CLIENT", 2))

    on_cluster(body)


def test_a_stopped_broker_says_that_it_left_in_good_order(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        stopped = await runtime.stop_node(3)
        assert stopped["controlled"] is True
        assert stopped["code"] == 0

    on_cluster(body)


def test_acts_on_a_node_in_the_wrong_state_are_errors_not_guesses(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await runtime.kill(1)
        for act in (runtime.kill, runtime.pause, runtime.resume, runtime.stop_node):
            with pytest.raises(HarnessError, match="broker 1 is down"):
                await act(1)
        with pytest.raises(HarnessError, match="broker 2 is running"):
            await runtime.start_node(2)
        with pytest.raises(HarnessError, match="no node 9"):
            await runtime.kill(9)

    on_cluster(body)


@pytest.mark.gate
def test_heal_mends_whatever_was_done(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for link in runtime.links():
            await runtime.fault_link("cut", link, Cut(CutMode.REFUSE))
            await runtime.fault_link("slow", link, Latency(1000))
        await runtime.kill(1)
        await runtime.pause(2)
        await runtime.set_clock(3, 60_000)
        healed = await runtime.heal()
        assert healed == {"resumed": [2], "started": [1], "links": 9, "failed": []}
        assert {runtime.state(node) for node in runtime.nodes} == {NodeState.RUNNING}
        assert await is_quick_again(runtime, HURT, 1000)
        await runtime.fault_link("cut", HURT, Cut(CutMode.REFUSE))  # names are free again

    on_cluster(body)


def test_stopping_twice_is_stopping_once(on_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        await runtime.stop()
        await runtime.stop()
        assert {runtime.state(node) for node in runtime.nodes} == {NodeState.DOWN}

    on_cluster(body)
