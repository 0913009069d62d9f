"""Faults of the n-th write or fsync: whom they can hit. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.draws import rng_for
from chaos.faults.kind import Fault, Params, Site

OPS = ("write", "fsync")
PLENTY = 8
"""So many times as many records as are counted: batches are fewer, and some producers wait."""


def on_writes(seed: int, fault: Fault, in_flight: int) -> Params:
    """Without a setting that asks for flushes, a broker may sync nothing for seconds: its writes are hit instead."""
    return {**fault.params, "op": "write"} if fault.params["op"] == "fsync" else fault.params


def hit_by_calls(fault: Fault, site: Site) -> Fault:
    """Faults of the n-th write or fsync hit those who have a replica: others may not write anything for long. Without
    flush.messages hardly anybody syncs: only what the controllers decide, if they decide something.
    """
    op, ground = fault.params["op"], site.ground
    if op not in OPS:
        return fault
    params: dict[str, Any] = dict(fault.params)
    if op == "fsync" and not ground.flushes:
        params["op"] = "write"
    if not many_records(fault, site):
        params["nth"] = 1
    everywhere = ground.replicas == ground.nodes
    if everywhere and op == "fsync":
        target = rng_for(site.seed, "swarm", "syncing", fault.id).choice(("leader", "controller"))
    else:
        target = fault.target if everywhere or fault.target == "follower" else "leader"
    return replace(fault, params=params, target=target)


def many_records(fault: Fault, site: Site) -> bool:
    """Whether a node gets many more records while the fault is on than have to pass before it strikes. Of few requests,
    writes and fsyncs the first one is hit, and not a later one.
    """
    expected = site.ground.rate * fault.duration_s / site.ground.nodes
    return expected >= PLENTY * float(fault.params["nth"])
