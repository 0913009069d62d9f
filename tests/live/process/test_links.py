"""Link faults through the real Toxiproxy: each lands, is measured, ends, and hurts only what it was meant for."""

from __future__ import annotations

import pytest
import trio

from chaos.errors import HarnessError
from chaos.runtimes.contract import Cut, Latency, Link, LinkFault, Manner
from chaos.runtimes.process.runtime import ProcessRuntime
from tests.live.hurt_links import CUTS, SLOW, WORSE
from tests.live.process.conftest import MakeRuntime

HURT, OTHER_WAY = Link(1, 2), Link(2, 1)


@pytest.mark.parametrize(("cut", "error"), CUTS, ids=str)
async def test_nothing_passes_a_cut_link_while_it_is_cut_and_every_other_way_is_whole(
    runtime: ProcessRuntime, cut: LinkFault, error: str
) -> None:
    await runtime.fault_link("cut", HURT, cut)
    assert (await runtime.probe(HURT, timeout_s=0.3)).error == error
    assert (await runtime.probe(OTHER_WAY)).ok
    assert (await runtime.probe(Link("CLIENT", 2))).ok
    await runtime.heal_link("cut", HURT)
    assert (await runtime.probe(HURT)).ok


@pytest.mark.parametrize(("fault", "least_ms"), SLOW, ids=str)
async def test_a_slow_link_is_measurably_slow(runtime: ProcessRuntime, fault: LinkFault, least_ms: float) -> None:
    await runtime.fault_link("slow", HURT, fault)
    slow = await runtime.probe(HURT, timeout_s=5)
    assert slow.ok
    assert slow.round_trip_ms >= least_ms
    await runtime.heal_link("slow", HURT)
    assert (await runtime.probe(HURT)).round_trip_ms < slow.round_trip_ms


@pytest.mark.parametrize("fault", WORSE, ids=str)
async def test_a_link_that_is_only_worse_still_answers(runtime: ProcessRuntime, fault: LinkFault) -> None:
    await runtime.fault_link("worse", HURT, fault)
    assert (await runtime.probe(HURT, timeout_s=5)).ok


async def test_what_was_held_arrives_late_on_the_same_connection(runtime: ProcessRuntime) -> None:
    await runtime.fault_link("held", HURT, Cut(Manner.HOLD))
    answers = []

    async def wait() -> None:
        answers.append(await runtime.probe(HURT, timeout_s=20))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        assert (await runtime.probe(HURT, timeout_s=0.3)).error == "timed out"
        assert answers == []
        await runtime.heal_link("held", HURT)
    assert answers[0].ok
    assert answers[0].round_trip_ms >= 300


@pytest.mark.parametrize("manner", Manner)
async def test_ending_one_of_two_cuts_leaves_the_other(runtime: ProcessRuntime, manner: Manner) -> None:
    await runtime.fault_link("first", HURT, Cut(manner))
    await runtime.fault_link("second", HURT, Cut(manner))
    await runtime.heal_link("first", HURT)
    assert not (await runtime.probe(HURT, timeout_s=0.3)).ok
    await runtime.heal_link("second", HURT)
    assert (await runtime.probe(HURT)).ok


async def test_a_name_is_used_once_a_link_and_ending_what_is_not_there_is_no_error(runtime: ProcessRuntime) -> None:
    await runtime.fault_link("f", HURT, Latency(1))
    with pytest.raises(HarnessError, match="already has a fault named f"):
        await runtime.fault_link("f", HURT, Latency(1))
    await runtime.fault_link("f", OTHER_WAY, Latency(1))
    await runtime.heal_link("never", HURT)
    with pytest.raises(HarnessError, match="there is no link 1->9"):
        await runtime.fault_link("f", Link(1, 9), Latency(1))


async def test_heal_takes_off_every_fault_of_every_link(runtime: ProcessRuntime) -> None:
    for link in runtime.links():
        await runtime.fault_link("cut", link, Cut(Manner.REFUSE))
        await runtime.fault_link("slow", link, Latency(1000))
    assert (await runtime.heal())["failed"] == []
    await runtime.fault_link("cut", HURT, Cut(Manner.REFUSE))


async def test_a_zone_is_cut_off_without_the_others_noticing(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(zones=("CLIENT", "ZONE_B"), nodes=2)
    await runtime.start()
    for node in runtime.nodes:
        await runtime.fault_link("away", Link("ZONE_B", node), Cut(Manner.REFUSE))
    assert not (await runtime.probe(Link("ZONE_B", 1))).ok
    assert (await runtime.probe(Link("CLIENT", 1))).ok
    assert set(runtime.bootstrap("CLIENT").split(",")).isdisjoint(runtime.bootstrap("ZONE_B").split(","))
