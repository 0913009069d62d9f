"""Defines the fault `slow_close`: one end of a connection learns late that the other end has closed it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, SIDES, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.link_faults import ON_S, PEERS, both_ends, hit_by, on_clients_side
from squall.chaos.faults.words import how_they_ended
from squall.chaos.runtimes.contract import SlowClose

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Delay the close of the targets' connections: after a broker closes a connection, the client's end stays open for
    a while.
    """
    from squall.chaos.faults.acts.worse_links import SURE, play_measured, slowdown_proof

    delay_ms = int(p.fault.params["delay_ms"])
    limit_s = context.probe_timeout_s + 3 * delay_ms / 1000
    # Another fault may cause a reset, but not a late reset.
    await play_measured(
        context,
        p,
        slowdown_proof(
            context,
            SlowClose(delay_ms),
            partial(context.runtime.ending, spoil=True),
            limit_s,
            delay_ms,
            is_usable=lambda probe: probe.ok and (probe.error == "closed" or probe.round_trip_ms >= SURE * delay_ms),
        ),
    )


KIND = FaultKind(
    name="slow_close",
    place=14,
    title="delays the close of connections",
    fault_class="N",
    duration_s=ON_S,
    params={"delay_ms": NumericParameter(50, 60_000, 500), "side": PEERS},
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.MEASURES_LINKS, FaultTrait.OUT_OF_SYNC, FaultTrait.EITHER_END}),
    worlds=EVERYWHERE,
    needs_nodes=both_ends,
    draw=DrawRules(params=lambda rng: {"delay_ms": rng.choice((100, 500)), "side": rng.choice(SIDES)}, swarm="newer"),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.compared("longer_by_ms"),
    evidence="after a broker closes a connection, the other end stays open for longer than just before and just after",
    middle="the same measurement at a drawn moment",
    describe_evidence=how_they_ended,
    describe_effect=hit_by("slow_close"),
)
