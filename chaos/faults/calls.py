"""Moves faults that count calls (the n-th write or fsync of a broker) to nodes that make such calls. It does no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from squall.chaos.draws import rng_for
from squall.chaos.faults.kind import Fault, FaultPlacement, Params

OPS = ("write", "fsync")
PLENTY = 8
"""Gives how many records a broker must get during a fault of its n-th write or fsync, for each of the n calls. One call
would not be enough: several records share a batch, and some producers wait.
"""


def on_writes(seed: int, fault: Fault, in_flight: int) -> Params:
    """Return the parameters with `write` in place of `fsync`: brokers without flush.messages may not call fsync for
    seconds.
    """
    return {**fault.params, "op": "write"} if fault.params["op"] == "fsync" else fault.params


def hit_by_calls(fault: Fault, placement: FaultPlacement) -> Fault:
    """Move a fault of the n-th write or fsync to a node that has a replica: other nodes may not write for a long time.
    Without flush.messages hardly any node calls fsync; only the controllers do, when they commit a record.
    """
    op, cluster = fault.params["op"], placement.cluster
    if op not in OPS:
        return fault
    params: dict[str, Any] = dict(fault.params)
    if op == "fsync" and not cluster.flushes:
        params["op"] = "write"
    if not many_records(fault, placement):
        params["nth"] = 1
    everywhere = cluster.replicas == cluster.nodes
    if everywhere and op == "fsync":
        target = rng_for(placement.seed, "swarm", "syncing", fault.id).choice(("leader", "controller"))
    else:
        target = fault.target if everywhere or fault.target == "follower" else "leader"
    return replace(fault, params=params, target=target)


def many_records(fault: Fault, placement: FaultPlacement) -> bool:
    """Return whether a node is likely to make enough writes during a fault that acts at the n-th write or fsync: it
    gets many more records than n. If it does not, the caller makes the fault act at the first call.
    """
    expected = placement.cluster.rate * fault.duration_s / placement.cluster.nodes
    return expected >= PLENTY * float(fault.params["nth"])
