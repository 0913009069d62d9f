"""Every action on links, injected by the nemesis in real processes: its effect on a client, its evidence, and no
evidence if it is switched off behind the nemesis's back. Simulated ones: `tests/sim/world`.
"""

from __future__ import annotations

from typing import Any

import trio

from squall.chaos.faults.kind import FaultTrait
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Link, ProbeResult, Runtime
from tests.live.contract.conftest import OnCluster
from tests.live.contract.player import Seen, play, unproven
from tests.live.hurt_links import answers
from tests.support.clusters.pretender import Pretending
from tests.support.patience import scaled

SEEN = Seen(ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)}))
SEEN_MS = 20.0
FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("partition", {"side": "clients", "manner": "drop"}),
    ("partition", {"shape": "ring", "manner": "refuse"}),
    ("partition", {"shape": "bridge", "manner": "hold"}),
    ("flapping", {"side": "both"}),
    ("latency", {"latency_ms": 60, "side": "clients"}),
    ("bandwidth", {"kb_per_s": 16, "side": "both"}),
    ("slicer", {"average_bytes": 32, "delay_us": 1000, "side": "clients"}),
    ("limit_data", {"limit_bytes": 40_000, "side": "both"}),
    ("reset_peer", {"side": "both"}),
    ("reset_peer", {"after_ms": 800}),
    ("slow_close", {"delay_ms": 200, "side": "both"}),
    ("reset", {"side": "both"}),
]
BARRED = {"partition", "flapping", "limit_data", "reset_peer"}
"""Actions after which a client gets no answer. The others only delay it, and a reset is over at once."""


def test_every_action_on_links_is_played_here() -> None:
    """Except the action whose target is a client zone: test_zones.py has a cluster with two zones."""
    assert {action for action, _ in FAULTS} >= {
        name
        for name, kind in KINDS.items()
        if FaultTrait.OF_LINKS in kind.traits and FaultTrait.NEEDS_TRAFFIC not in kind.traits
    } - {"zone_isolation"}


def test_each_lands_with_proof_and_a_client_feels_it(on_real_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        for number, (action, params) in enumerate(FAULTS):
            felt: list[ProbeResult] = []
            link = Link("CLIENT" if params.get("side") else 2, 3 if not params.get("side") else 2)
            async with trio.open_nursery() as nursery:
                if params.get("side"):
                    nursery.start_soon(feel, runtime, link, felt)
                fault = make_fault(number, 0, scaled(2.0), action, "node:2", params)
                (line,) = await play(runtime, fault, cluster=SEEN)
            assert line["evidence"], (action, params, line)
            assert line["error"] is None
            assert unproven(line) is None
            assert await answers(runtime, link), f"{link} is whole after {action}"
            if action in BARRED and felt:
                assert not all(probe.ok for probe in felt), (action, felt)
            elif felt and action not in ("reset", "slow_close"):
                assert max(probe.round_trip_ms for probe in felt) > SEEN_MS, (action, felt)

    on_real_cluster(body)


async def feel(runtime: Runtime, link: Link, felt: list[ProbeResult]) -> None:
    """Probe the link repeatedly, and add the results to `felt`."""
    for _ in range(4):
        await trio.sleep(scaled(0.25))
        felt.append(await runtime.probe(link, timeout_s=scaled(0.6), pad_bytes=60_000 if len(felt) == 2 else 0))


def test_switched_off_under_the_nemesis_feet_each_is_without_proof(on_real_cluster: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        # What does nothing cannot disturb what follows: each begins when the one before it was measured first.
        faults = [
            make_fault(n, scaled(n * 0.6), scaled(2.0), action, "node:2", params)
            for n, (action, params) in enumerate(FAULTS)
        ]
        for line in await play(Pretending(runtime), *faults, cluster=SEEN):
            assert line["evidence"] is None, line
            assert line["error"]
            assert unproven(line)

    on_real_cluster(body)
