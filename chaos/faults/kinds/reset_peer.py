"""Defines the fault `reset_peer`: each connection is reset some time after its first use, again and again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import EVERYWHERE, SIDES, DrawRules, FaultKind, FaultTrait, NumericParameter
from squall.chaos.faults.link_faults import ON_S, PEERS, both_ends, hit_by, on_clients_side
from squall.chaos.faults.words import how_they_ended
from squall.chaos.runtimes.contract import ResetPeer

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Reset each of the targets' connections some time after its first use, again and again.

    Toxiproxy does so in each direction separately: a client that waits for a response sees the reset after twice the
    time.
    """
    from squall.chaos.faults.acts.worse_links import connection_end_proof, play_measured

    after_ms = int(p.fault.params["after_ms"])
    proof = connection_end_proof(
        ResetPeer(after_ms),
        partial(context.runtime.ending, timeout_s=context.probe_timeout_s + 2 * after_ms / 1000),
        lambda probe: probe.error == "still open",
        lambda probe: probe.ok,
        "a connection over a link was not reset",
        {"after_ms": after_ms},
    )
    await play_measured(context, p, proof)


KIND = FaultKind(
    name="reset_peer",
    place=13,
    title="resets each connection, new ones too, some time after it was first used",
    fault_class="N",
    duration_s=ON_S,
    params={"after_ms": NumericParameter(0, 60_000, 0), "side": PEERS},
    traits=frozenset({FaultTrait.OF_LINKS, FaultTrait.MEASURES_LINKS, FaultTrait.OUT_OF_SYNC, FaultTrait.EITHER_END}),
    worlds=EVERYWHERE,
    needs_nodes=both_ends,
    draw=DrawRules(
        # Through Toxiproxy the proof takes twice as long and more, and the fault lasts 2 s at least.
        params=lambda rng: {"after_ms": rng.choice((0, 100, 500)), "side": rng.choice(SIDES)},
        swarm="newer",
    ),
    of_clients=on_clients_side,
    play=play,
    verify=proofs.compared("after_ms"),
    evidence="a connection over a link is reset during the fault; just before and just after, it stays open as long",
    middle="the same measurement at a drawn moment",
    describe_evidence=how_they_ended,
    describe_effect=hit_by("reset_peer"),
)
