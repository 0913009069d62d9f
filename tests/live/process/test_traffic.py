"""Cuts of replication traffic alone and of controller traffic alone, on real brokers; and a cut without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.faults.framed import framed_links
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runtimes.layout import links, zone_names
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from tests.live.contract.player import Seen, play
from tests.support.clusters.pretender import Pretending
from tests.support.patience import scaled, slowed

NODES = (1, 2)
VIEW = ClusterSnapshot(NODES, 1, {"t-0": 1}, {"t-0": NODES}, {"t-0": NODES})


@pytest.mark.parametrize("manner", [pytest.param("drop", marks=pytest.mark.gate), "refuse"])
async def test_a_cut_of_one_traffic_is_proven_and_leaves_the_rest_of_the_link(tmp_path: Path, manner: str) -> None:
    faults = [
        make_fault(number, scaled(2.5 * number), scaled(2), "partition", target, {"manner": manner, "side": side})
        for number, (side, target) in enumerate([("replication", "link:1->2"), ("controller", "node:2")])
    ]
    framed = framed_links(faults, NODES, links(NODES, zone_names(1)))
    runtime = ProcessRuntime(tmp_path / "run", nodes=2, framed=framed, settings=slowed(FAST_FAILOVER))
    await runtime.start()
    try:
        one, both = await play(runtime, *faults, cluster=Seen(VIEW))
        (swallowed,) = await play(Pretending(runtime), faults[0], cluster=Seen(VIEW))
    finally:
        await runtime.stop()
    assert one["evidence"], one
    assert one["evidence"]["links"] == one["target"]["resolved"] == ["1->2"]
    assert both["evidence"], both
    assert both["evidence"]["links"] == ["1->2", "2->1"]
    assert sum(both["evidence"]["hits"]) > len(both["evidence"]["during"]), "brokers asked, not only the probes"
    assert swallowed["evidence"] is None
    assert swallowed["error"] == "a request that was cut got its answer"
