"""Faults that were drawn by themselves, made such that each can land: one that hits nothing proves nothing. Pure.

They overlap as often as they were drawn to. They only no longer look for a node that another fault holds down, for an
fsync where nobody syncs, or for a request that nobody sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.draws import rng_for
from chaos.faults.vocabulary import Fault
from chaos.plans.schedule import of_one_broker

HOLDING = ("kill", "stop", "pause", "crash_at", "power_loss", "disk")
"""Actions that hold nodes down, or may. A rolling restart is not among them: it goes around what others hold."""
NEEDING = (*HOLDING, "clock")
"""Actions whose nodes must run, from their begin to the proof that they landed."""
MEASURED = ("latency", "bandwidth", "slicer", "limit_data", "reset_peer", "slow_close")
"""Actions whose links must answer in the meantime."""
MOVING = (*HOLDING, "rolling", "partition", "leadership")
"""Actions after which clients ask for metadata."""
PLENTY = 8
"""So many times as many records as are counted: batches are fewer, and some producers wait."""
ASKS_S = 0.5
"""How long before the end of a fault somebody must have a reason to ask."""
COMES_BACK_S = 1.0
"""What a node may take longer to come back than was planned: its start waits for a quorum."""
ANSWERS_MS = 1000
"""A connection over a link that is measured lives for so long between two resets."""
OFTEN, FEW = 0.3, 10
"""Of few packets so large a share is lost that some are; few: up to so many records a second."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What of a cluster and its load decides whether a fault can land."""

    nodes: int
    replicas: int
    flushes: bool
    """The topics have flush.messages=1: whoever has a replica syncs all the time."""
    rate: int = 40
    """Records a second, all producers together."""
    acks: int = -1


def landing(seed: int, faults: Sequence[Fault], ground: Ground) -> tuple[Fault, ...]:
    """The same faults, each at something that it can hit; without those for which there is no node left."""
    found = [_now_and_then(_resigned_once(fault, faults), faults) for fault in faults]
    found = [_on_calls(seed, _on_requests(fault, faults, ground), ground) for fault in found]
    found = [_on_packets(of_one_broker(fault) if ground.nodes == 1 else fault, ground) for fault in found]
    found = [_in_time(_on_replicas(fault, ground), faults, ground) for fault in found]
    return _apart(seed, found, ground.nodes)


# -------------------------------------------------------------------------------------------------- what they wait for


def _on_calls(seed: int, fault: Fault, ground: Ground) -> Fault:
    """Faults of the n-th write or fsync hit those who have a replica: others may not write anything for long. Without
    flush.messages hardly anybody syncs: only what the controllers decide, if they decide something.
    """
    op = fault.params.get("op")
    if op not in ("write", "fsync"):
        return fault
    params: dict[str, Any] = dict(fault.params)
    if op == "fsync" and not ground.flushes:
        params["op"] = "write"
    everywhere = ground.replicas == ground.nodes
    if everywhere and op == "fsync":
        target = rng_for(seed, "swarm", "syncing", fault.id).choice(("leader", "controller"))
    else:
        target = fault.target if everywhere or fault.target == "follower" else "leader"
    return replace(fault, params=params, target=target)


def _on_requests(fault: Fault, faults: Sequence[Fault], ground: Ground) -> Fault:
    """Requests that somebody sends. Clients ask for metadata when leaders go; the only broker has no peers; nobody is
    answered with acks=0; and who leads changes, or is not known yet, while another fault holds a node.
    """
    params, target, api = dict(fault.params), fault.target, fault.params.get("api")
    if api is None:
        return fault
    last_s = fault.at_s + fault.duration_s - ASKS_S
    moves = any(other.action in MOVING and fault.at_s <= other.at_s <= last_s for other in faults)
    if (api == "Metadata" and not moves) or (api == "BrokerHeartbeat" and ground.nodes == 1):
        params["api"], target = "Produce", "leader"
    if params["api"] == "Produce" and ground.acks == 0:
        params["stream"] = "there"
    if target == "leader" and any(other.action in HOLDING and overlap(fault, other) for other in faults):
        target = "all"
    return replace(fault, params=params, target=target)


def _on_packets(fault: Fault, ground: Ground) -> Fault:
    """Clients talk to leaders. With few records little is said, and between brokers that replicate nothing: of that a
    larger share is lost.
    """
    if fault.action != "packet_loss":
        return fault
    params, target = dict(fault.params), fault.target
    if params["side"] == "clients" and target not in ("all", "majority"):
        target = "leader"
    if ground.rate <= FEW or (ground.replicas == 1 and params["side"] == "peers"):
        params["probability"] = max(OFTEN, params["probability"])
    return replace(fault, params=params, target=target)


def _on_replicas(fault: Fault, ground: Ground) -> Fault:
    """A node without a partition has none to move or to have a leader elected of."""
    asks = fault.params.get("how") in ("move", "preferred", "unclean")
    if not asks or ground.replicas == ground.nodes or fault.target in ("all", "majority"):
        return fault
    return replace(fault, target="leader")


def _in_time(fault: Fault, faults: Sequence[Fault], ground: Ground) -> Fault:
    """Of few requests of producers, writes and fsyncs the first one is hit, and not a later one. Few requests are sent
    while another fault holds a node: producers wait.
    """
    expected = ground.rate * fault.duration_s / ground.nodes
    produces = fault.params.get("api") == "Produce"
    counted = produces or fault.params.get("op") in ("write", "fsync")
    waits = produces and any(other.action in HOLDING and overlap(fault, other) for other in faults)
    if not counted or (not waits and expected >= PLENTY * float(fault.params.get("nth", 1))):
        return fault
    return replace(fault, params={**fault.params, "nth": 1})


def _resigned_once(fault: Fault, faults: Sequence[Fault]) -> Fault:
    """Whom an earlier request unseats just now is no controller any more: a partition is moved instead."""
    if fault.params.get("how") != "resign":
        return fault
    earlier = (other for other in faults if other is not fault and (other.at_s, other.id) < (fault.at_s, fault.id))
    if not any(other.params.get("how") == "resign" and overlap(fault, other) for other in earlier):
        return fault
    return replace(fault, target="leader", params={"how": "move"})


def _now_and_then(fault: Fault, faults: Sequence[Fault]) -> Fault:
    """While links are measured their connections are not reset faster than a slow one can answer."""
    if not fault.params.get("every_ms") or not any(o.action in MEASURED and overlap(fault, o) for o in faults):
        return fault
    return replace(fault, params={**fault.params, "every_ms": max(ANSWERS_MS, fault.params["every_ms"])})


# ------------------------------------------------------------------------------------------------------- who is held


def overlap(one: Fault, other: Fault, longer_s: float = 0.0) -> bool:
    """Whether both are on at some moment, or would be if each was on for so much longer."""
    return one.at_s <= other.at_s + other.duration_s + longer_s and other.at_s <= one.at_s + one.duration_s + longer_s


def _apart(seed: int, faults: list[Fault], nodes: int) -> tuple[Fault, ...]:
    """Faults of nodes that overlap get nodes of their own, by id."""
    kept: dict[int, Fault] = {}
    for fault in sorted(faults, key=lambda each: each.at_s):
        rivals = [other for other in faults if other is not fault and _in_the_way(fault, other)]
        if not rivals:
            kept[fault.id] = fault
            continue
        taken = {kept[other.id].target for other in rivals if other.id in kept}
        free = [name for name in (f"node:{n}" for n in range(1, nodes + 1)) if name not in taken]
        if free:
            kept[fault.id] = replace(fault, target=rng_for(seed, "swarm", "apart", fault.id).choice(free))
    return tuple(kept[fault.id] for fault in faults if fault.id in kept)


def _in_the_way(one: Fault, other: Fault) -> bool:
    """One holds down what the other needs; or both would bend one clock."""
    return one.action in NEEDING and other.action in NEEDING and overlap(one, other, COMES_BACK_S)
