"""Moves faults that count calls (the n-th write or fsync of a broker) to nodes that make such calls. It does no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from squall.chaos.draws import rng_for
from squall.chaos.faults.kind import Fault, FaultPlacement, Params

OPS = ("write", "fsync")
RECORDS_PER_CALL = 8
"""Estimates, rather too high than too low, how many records a broker gets for each write or fsync that it makes. There
are several because records share a batch. Also, producers that wait for responses send fewer records than planned.
"""


def on_writes(seed: int, fault: Fault, in_flight: int) -> Params:
    """Return the parameters with `write` in place of `fsync`: without flush.messages, a broker may make no fsync for
    seconds.
    """
    return {**fault.params, "op": "write"} if fault.params["op"] == "fsync" else fault.params


def retarget_nth_call(fault: Fault, placement: FaultPlacement) -> Fault:
    """Change a fault that acts at the n-th write or fsync so that the target makes this call. The target becomes a node
    with a replica: any other node may make no write for a long time. Without flush.messages, `write` replaces `fsync`:
    then hardly any node but a controller calls fsync, when it commits a record. n becomes 1 if few records are
    expected.
    """
    op, cluster = fault.params["op"], placement.cluster
    if op not in OPS:
        return fault
    params: dict[str, Any] = dict(fault.params)
    if op == "fsync" and not cluster.flushes:
        params["op"] = "write"
    if not expects_many_records(fault, placement):
        params["nth"] = 1
    everywhere = cluster.replicas == cluster.nodes
    if everywhere and op == "fsync":
        target = rng_for(placement.seed, "swarm", "syncing", fault.id).choice(("leader", "controller"))
    else:
        target = fault.target if everywhere or fault.target == "follower" else "leader"
    return replace(fault, params=params, target=target)


def expects_many_records(fault: Fault, placement: FaultPlacement) -> bool:
    """Return whether a fault that acts at the n-th write, fsync or request is likely to act: whether a broker is
    expected to get enough records during the fault. If not, the callers set n to 1.
    """
    expected = placement.cluster.rate * fault.duration_s / placement.cluster.nodes
    return expected >= RECORDS_PER_CALL * float(fault.params["nth"])
