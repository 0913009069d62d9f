"""Defines the fault `slicer`: bytes arrive in small pieces, so that frames arrive in parts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, SIDES, DrawRules, FaultKind, FaultTrait, NumericParameter, Params
from squall.chaos.faults.link_faults import MEASURED_BYTES, ON_S, PEERS, both_ends, hit_by, on_clients_side
from squall.chaos.faults.words import round_trips
from squall.chaos.runtimes.contract import Slicer

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

SHORTEST_MS = 50.0
"""Is the least delay that counts as evidence, in ms: a busy machine can cause a smaller delay."""
_MEASURED_MS = 80.0


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Deliver the bytes on the targets' links in pieces, one after the other."""
    from squall.chaos.faults.acts.worse_links import ANSWER_BYTES, play_measured, slowdown_proof

    params = p.fault.params
    average, variation = int(params["average_bytes"]), int(params["variation_bytes"])
    delay_us = int(params["delay_us"])
    largest = average + variation
    pad = min(MEASURED_BYTES, (int(_MEASURED_MS * 1000) // delay_us + 2) * largest)
    # There are at least so many pauses, because no piece is larger than `largest`, and the last piece has none.
    least_ms = (pad // largest - 1) * delay_us / 1000
    limit_s = context.probe_timeout_s + 4 * (pad + ANSWER_BYTES) / (average - variation) * (delay_us + 1000) / 1e6
    measure = partial(context.runtime.probe, pad_bytes=pad)
    sliced = Slicer(average, variation, delay_us)
    proof = slowdown_proof(context, sliced, measure, limit_s, least_ms, extra_evidence={"pad_bytes": pad})
    await play_measured(context, p, proof)


def check(params: Params) -> str:
    """Refuse sizes and delays of pieces that slow a request too little to be measured, or so much that it hardly gets
    through. Also refuse a variation of the size that is not below its average.
    """
    average, variation = int(params["average_bytes"]), int(params["variation_bytes"])
    delay_ms = params["delay_us"] / 1000
    if variation >= average and variation:
        return f"variation_bytes = {variation}: less than average_bytes = {average} is allowed"
    shortest_ms = (MEASURED_BYTES // (average + variation) - 1) * delay_ms
    if shortest_ms < SHORTEST_MS:
        return (
            f"{MEASURED_BYTES} bytes in such pieces take {max(0, shortest_ms):g} ms longer, too little to be "
            f"measured: smaller pieces or a longer delay_us"
        )
    longest_s = 1000 / (average - variation) * delay_ms / 1000
    if longest_s > 5:
        return f"1000 bytes in such pieces take {longest_s:g} s: larger pieces or a shorter delay_us"
    return ""


KIND = FaultKind(
    name="slicer",
    place=11,
    title="delivers bytes in small pieces with a pause between them: torn frames",
    fault_class="N",
    duration_s=ON_S,
    params={
        "average_bytes": NumericParameter(1, 30_000, 64),
        "variation_bytes": NumericParameter(0, 15_000, 0),
        "delay_us": NumericParameter(100, 100_000, 1000),
        "side": PEERS,
    },
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
    check=check,
    draw=DrawRules(
        params=lambda rng: {
            "average_bytes": rng.choice((64, 256)),
            "delay_us": rng.choice((500, 1000)),
            "side": rng.choice(SIDES),
        },
        swarm="newer",
    ),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.compared("longer_by_ms"),
    evidence="a large request takes longer than just before and just after, by the pauses between its pieces",
    middle="the same measurement at a drawn moment",
    describe_evidence=round_trips,
    describe_effect=hit_by("slicer"),
)
