"""Defines the fault `latency`: bytes arrive late."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, DrawRules, FaultKind, FaultTrait, NumericParameter, Params
from squall.chaos.faults.link_faults import ON_S, PEERS, both_ends, on_clients_side
from squall.chaos.faults.words import round_trips
from squall.chaos.runtimes.contract import Latency

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

SIDE_SHARE = 0.2
"""Gives the share of these faults that a random plan (swarm) puts on clients' links, and not on links between brokers.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Delay the bytes on the targets' links."""
    from squall.chaos.faults.acts.worse_links import play_measured, slowdown_proof

    delay, jitter = int(p.fault.params["latency_ms"]), int(p.fault.params["jitter_ms"])
    # A round trip has the delay twice: the limit is three times the longest one.
    limit_s = context.probe_timeout_s + 6 * (delay + jitter) / 1000
    least_ms = 2 * max(0, delay - jitter)
    proof = slowdown_proof(context, Latency(delay, jitter), context.runtime.probe, limit_s, least_ms, mean_ms=2 * delay)
    await play_measured(context, p, proof)


def varied(rng: Random, params: Params, nodes: int) -> dict[str, Any]:
    """Return the drawn parameters. For the share `SIDE_SHARE` of faults, `side` is changed so that clients' links are
    slow.
    """
    return {**params, "side": rng.choice(("clients", "both"))} if rng.random() < SIDE_SHARE else dict(params)


def _ms(params: Params, name: str) -> str:
    return f"{params.get(name, 0):.12g}"


KIND = FaultKind(
    name="latency",
    place=9,
    title="delays the bytes in both directions",
    fault_class="N",
    duration_s=ON_S,
    params={"latency_ms": NumericParameter(1, 30_000, 50), "jitter_ms": NumericParameter(0, 30_000, 10), "side": PEERS},
    traits=frozenset(
        {
            FaultTrait.OF_LINKS,
            FaultTrait.SLOWS_LINKS,
            FaultTrait.MEASURES_LINKS,
            FaultTrait.OUT_OF_SYNC,
            FaultTrait.EITHER_END,
        }
    ),
    worlds=EVERYWHERE,
    needs_nodes=both_ends,
    draw=DrawRules(
        params=lambda rng: {"latency_ms": rng.choice((50, 100, 200)), "jitter_ms": rng.choice((5, 10, 20))},
        by_default=True,
        by_default_on_foreign=True,
        swarm="first",
        varied=varied,
    ),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.compared("longer_by_ms"),
    evidence="round trips over a link take 1.6 times `latency_ms` - `jitter_ms` longer than just before and just after",
    middle="the same measurement at a drawn moment",
    describe_evidence=round_trips,
    describe_params=lambda params: f" (+{_ms(params, 'latency_ms')} ± {_ms(params, 'jitter_ms')} ms)",
    describe_effect=lambda params, node, links: f"slow to reach (+{params.get('latency_ms', '?')} ms)",
)
