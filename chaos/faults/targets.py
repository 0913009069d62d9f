"""Who is hit: the names of targets. A name is resolved when a fault begins, from the cluster's answer just then."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from chaos.faults.kind import FaultError
from chaos.runtimes.layout import zone_name

OF_PARTITIONS = ("leader", "follower", "isr", "last_isr")
"""Targets that may name a partition, as in `leader:TOPIC-N`."""
NODE_TARGETS = (*OF_PARTITIONS, "controller", "node", "random", "minority", "majority", "all")
"""Whom a fault may hit. `node:N` names a broker id."""
ZONE_TARGET = "zone"
"""Of faults of links: `zone:N` is all links of the workload's N-th client zone, counted from 1."""
CLIENT_TARGETS = ("producer", "reader")
"""Of faults of clients: any one of them, or `producer:N`."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The answer of Metadata: the plan's broker ids, the active controller (-1: unknown), and each partition's leader
    and ISR.
    """

    nodes: Sequence[int]
    controller: int
    leaders: Mapping[str, int]
    """"TOPIC-N" to broker id, -1 where none leads."""
    isr: Mapping[str, tuple[int, ...]]
    replicas: Mapping[str, tuple[int, ...]]


class Unresolved(Exception):
    """No node fits the target's name now (no leader, no known controller), so the fault cannot land."""


def of_clients(target: str) -> bool:
    """Whether a target is one of the workload's clients."""
    return target.partition(":")[0] in CLIENT_TARGETS


def check_target(here: str, target: str) -> tuple[str, str]:
    """(kind, argument) of a target such as "leader:orders-0-1". Raises FaultError if it is no target."""
    kind, _, argument = target.partition(":")
    if kind in CLIENT_TARGETS:
        if argument and not argument.isdigit():
            raise FaultError(f"{here}: target {target!r}: a {kind} has a number, as in {kind}:0")
        return kind, argument
    if kind == ZONE_TARGET:
        if not argument.isdigit() or int(argument) < 1:
            raise FaultError(f"{here}: target {target!r}: zones are counted from 1, as in zone:2")
        return kind, argument
    if kind not in NODE_TARGETS:
        known = (*NODE_TARGETS, ZONE_TARGET)
        near = difflib.get_close_matches(kind, (*known, *CLIENT_TARGETS), n=1)
        meant = f"did you mean {near[0]!r}? There are" if near else "one of"
        raise FaultError(f"{here}: unknown target {target!r}: {meant} {', '.join(known)}")
    if kind == "node" and not argument.isdigit():
        raise FaultError(f"{here}: target {target!r}: node needs a broker id, as in node:2")
    if kind in OF_PARTITIONS and argument and "-" not in argument:
        raise FaultError(f"{here}: target {target!r}: a partition is TOPIC-NUMBER, as in {kind}:orders-0-1")
    return kind, argument


def check_feasible(target: str, nodes: Sequence[int], zones: int, places: Sequence[str], here: str) -> None:
    """Refuse, when a plan is made, a target that its cluster or its workload can never have. places: its partitions."""
    kind, argument = check_target(here, target)
    if kind == "node" and int(argument) not in nodes:
        raise FaultError(f"{here}: there is no node {argument}: the cluster has {', '.join(map(str, nodes))}")
    if kind in OF_PARTITIONS and argument and argument not in places:
        raise FaultError(f"{here}: there is no partition {argument}: the workload has {', '.join(places)}")
    if kind == ZONE_TARGET and int(argument) > zones:
        have = "1 zone" if zones == 1 else f"{zones} zones"
        raise FaultError(f"{here}: there is no zone {argument}: the workload has {have} (workload.zones, --zones)")
    if kind == "minority" and minority_size(len(nodes)) == 0:
        raise FaultError(f"{here}: a cluster of {len(nodes)} has no minority")


def minority_size(nodes: int) -> int:
    """How many nodes may fail while a majority still runs."""
    return (nodes - 1) // 2


def zone_of(target: str) -> str:
    """The name of the client zone that a target names. Empty if it names none."""
    kind, argument = check_target("target", target)
    return zone_name(int(argument)) if kind == ZONE_TARGET else ""


def resolve(target: str, view: ClusterView, rng: Random) -> tuple[int, ...]:
    """Broker ids that `target` names now, sorted. Raises Unresolved."""
    kind, argument = check_target("target", target)
    nodes = sorted(view.nodes)
    if kind == "all":
        return tuple(nodes)
    if kind == "node":
        return (int(argument),)
    if kind == "random":
        return (rng.choice(nodes),)
    if kind in ("minority", "majority"):
        size = minority_size(len(nodes)) if kind == "minority" else len(nodes) // 2 + 1
        return tuple(sorted(rng.sample(nodes, size)))
    if kind == "controller":
        if view.controller not in nodes:
            raise Unresolved("no active controller is known")
        return (view.controller,)
    return (_replica(kind, argument, view, rng),)


def _replica(kind: str, argument: str, view: ClusterView, rng: Random) -> int:
    partitions = sorted(p for p in view.leaders if not argument or p == argument)
    if not partitions:
        raise Unresolved(f"no partition {argument!r}" if argument else "no partition exists")
    if kind == "last_isr":
        partitions = [each for each in partitions if len(view.isr.get(each, ())) == 1]
        if not partitions:
            raise Unresolved(f"{argument or 'every partition'} has more replicas in sync than one, or none")
    partition = rng.choice(partitions)
    if kind in ("isr", "last_isr"):
        if not view.isr.get(partition):
            raise Unresolved(f"{partition} has nobody in sync")
        return rng.choice(sorted(view.isr[partition]))
    leader = view.leaders[partition]
    if leader < 0:
        raise Unresolved(f"{partition} has no leader")
    if kind == "leader":
        return leader
    followers = [r for r in view.replicas[partition] if r != leader]
    if not followers:
        raise Unresolved(f"{partition} has no follower")
    return rng.choice(followers)
