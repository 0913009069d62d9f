"""Defines the fault `bandwidth`: a link carries only a few bytes a second."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, SIDES, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.link_faults import MEASURED_BYTES, ON_S, PEERS, both_ends, hit_by, on_clients_side
from squall.chaos.faults.words import round_trips
from squall.chaos.runtimes.contract import Bandwidth

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Limit the bytes a second on the targets' links."""
    from squall.chaos.faults.acts.worse_links import ANSWER_BYTES, play_measured, slowdown_proof

    rate = int(p.fault.params["kb_per_s"])
    pad = min(MEASURED_BYTES, rate * 300)
    limit_s = context.probe_timeout_s + 2 * (pad + ANSWER_BYTES) / (rate * 1000)
    # The request takes at least this long whether a kilobyte has 1,000 or 1,024 bytes.
    measure, least_ms = partial(context.runtime.probe, pad_bytes=pad), pad / (rate * 1.024)
    more = {"pad_bytes": pad}
    proof = slowdown_proof(context, Bandwidth(rate), measure, limit_s, least_ms, extra_evidence=more)
    await play_measured(context, p, proof)


KIND = FaultKind(
    name="bandwidth",
    place=10,
    title="limits the kilobytes per second of each connection and direction",
    fault_class="N",
    duration_s=ON_S,
    params={"kb_per_s": NumericParameter(1, 1000, 64), "side": PEERS},
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
    draw=DrawRules(params=lambda rng: {"kb_per_s": rng.choice((8, 32, 128)), "side": rng.choice(SIDES)}, swarm="newer"),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.compared("longer_by_ms", "pad_bytes"),
    evidence="a large request takes longer than just before and just after, by as much as the limit implies",
    middle="the same measurement at a drawn moment",
    describe_evidence=round_trips,
    describe_effect=hit_by("bandwidth"),
)
