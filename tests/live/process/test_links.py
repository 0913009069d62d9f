"""Link faults through the real Toxiproxy. Their effects in every world are tested in tests/live/contract."""

from __future__ import annotations

import pytest

from squall.chaos.runtimes.contract import Cut, CutMode, Link, LinkFault
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from tests.live.hurt_links import CUTS, answers
from tests.live.process.conftest import MakeRuntime
from tests.support.patience import LONG_S, scaled

pytestmark = pytest.mark.night("every fault of links on a real Toxiproxy; the gate has one of each kind")

HURT, OTHER_WAY = Link(1, 2), Link(2, 1)


@pytest.mark.parametrize(("cut", "error"), CUTS, ids=str)
async def test_nothing_passes_a_cut_link_while_it_is_cut_and_every_other_way_is_whole(
    runtime: ProcessRuntime, cut: LinkFault, error: str
) -> None:
    await runtime.fault_link("cut", HURT, cut)
    within_s = scaled(0.3) if error == "timed out" else LONG_S
    assert (await runtime.probe(HURT, timeout_s=within_s)).error == error
    assert await answers(runtime, OTHER_WAY)
    assert await answers(runtime, Link("CLIENT", 2))
    await runtime.heal_link("cut", HURT)
    assert await answers(runtime, HURT)


async def test_a_zone_is_cut_off_without_the_others_noticing(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(zones=("CLIENT", "ZONE_B"), nodes=2)
    await runtime.start()
    for node in runtime.nodes:
        await runtime.fault_link("away", Link("ZONE_B", node), Cut(CutMode.REFUSE))
    assert not (await runtime.probe(Link("ZONE_B", 1))).ok
    assert await answers(runtime, Link("CLIENT", 1))
    assert set(runtime.bootstrap("CLIENT").split(",")).isdisjoint(runtime.bootstrap("ZONE_B").split(","))
