"""Defines the fault `limit_data`: a connection ends after it has carried a given number of bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, SIDES, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.link_faults import ON_S, PEERS, both_ends, hit_by, on_clients_side
from squall.chaos.faults.words import how_they_ended
from squall.chaos.runtimes.contract import LimitData

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """End each connection on the targets' links after it has carried a given number of bytes."""
    from squall.chaos.faults.acts.worse_links import connection_end_proof, play_measured

    limit = int(p.fault.params["limit_bytes"])
    limit_s = context.probe_timeout_s + limit / 2_000_000
    proof = connection_end_proof(
        LimitData(limit),
        partial(context.runtime.probe, timeout_s=limit_s, pad_bytes=limit),
        lambda probe: probe.ok,
        lambda probe: not probe.ok and (probe.error or "").startswith("ended"),
        f"more than {limit} bytes passed over a link, or no connection could be made",
        {"limit_bytes": limit},
    )
    await play_measured(context, p, proof)


KIND = FaultKind(
    name="limit_data",
    place=12,
    title="ends each connection after a number of bytes, usually in the middle of a frame",
    fault_class="N",
    duration_s=ON_S,
    params={"limit_bytes": NumericParameter(1, 10_000_000, 65_536), "side": PEERS},
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.MEASURES_LINKS, FaultTrait.OUT_OF_SYNC, FaultTrait.EITHER_END}),
    worlds=EVERYWHERE,
    needs_nodes=both_ends,
    draw=DrawRules(
        params=lambda rng: {"limit_bytes": rng.choice((2000, 20_000, 200_000)), "side": rng.choice(SIDES)},
        swarm="newer",
    ),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.compared("limit_bytes"),
    evidence="a connection ends when more bytes are sent over it; just before and just after, all bytes pass",
    middle="the same measurement at a drawn moment",
    describe_evidence=how_they_ended,
    describe_effect=hit_by("limit_data"),
)
