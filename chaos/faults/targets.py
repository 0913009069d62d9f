"""Resolves the names of targets to the nodes or clients that are hit. A name is resolved when a fault begins, from the
cluster's answer at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from squall.chaos.faults.kind import FaultError
from squall.chaos.nearest import did_you_mean, nearest
from squall.chaos.runtimes.contract import Link
from squall.chaos.runtimes.layout import zone_name

OF_PARTITIONS = ("leader", "follower", "followers", "isr", "last_isr")
"""Lists the targets that may name a partition, as in `leader:TOPIC-N`."""
COORDINATOR = "coordinator"
"""Is the target of a coordinator: `coordinator:ID` is the broker that coordinates a transactional id of the workload,
`coordinator:GROUP` the broker that coordinates a group. Without a name, any of these coordinators is meant.
"""
NODE_TARGETS = (*OF_PARTITIONS, "controller", COORDINATOR, "node", "random", "minority", "majority", "all")
"""Lists the targets that are brokers. `node:N` names a broker id."""
ZONE_TARGET = "zone"
"""Is a target for faults of links: `zone:N` means all links of the workload's N-th client zone (a group of clients with
links of their own), counted from 1.
"""
LINK_TARGET = "link"
"""Is a target for faults of links: `link:A->B` is the one directed link over which A opens connections to B. A and B
are each a broker id or a target that is one broker, such as `leader`. A may also be a client zone.
"""
BUT = " not "
"""Separates a target from the brokers that are not to be hit, as in `leader not controller`."""
OF_ONE = ("leader", "follower", "isr", "last_isr", "controller", COORDINATOR, "node", "random")
"""Lists the targets that are one broker."""
MEMBER = "member"
LOAD = "load"
CLIENT_TARGETS = ("producer", "reader", MEMBER, LOAD)
"""Lists the targets for faults of clients: any client of this kind, or `producer:N`. Each member of a group is a
producer or a reader as well, and each load is a reader.
"""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Holds what Metadata responses say: the plan's broker ids, the active controller (-1: unknown), and each
    partition's leader and ISR.
    """

    nodes: Sequence[int]
    controller: int
    leaders: Mapping[str, int]
    """Maps "TOPIC-N" to the leader's broker id, -1 if the partition has no leader."""
    isr: Mapping[str, tuple[int, ...]]
    replicas: Mapping[str, tuple[int, ...]]
    coordinators: Mapping[str, int] = field(default_factory=dict)
    """Maps a transactional id or a group to the broker id of its coordinator, -1 if there is none. Contains only the
    names that are needed to resolve the targets of the plan's faults. No workload has a transactional id and a group of
    the same name.
    """
    states: Mapping[str, str] = field(default_factory=dict)
    """Maps a transactional id to the state of its transaction, and a group to its state, in Kafka's words. Contains
    only names that conditions use, and whose coordinators answered.
    """
    places: Sequence[str] = ()
    """Lists the workload's partitions. A target that names no partition, such as `leader`, chooses one of these,
    because other partitions get hardly any writes. Empty: it chooses from all partitions.
    """


class WorkloadClients(NamedTuple):
    """Counts a workload's clients by their kind. Lists the numbers of those that can become zombies, and of those that
    have an instance id, because some faults can hit only these.
    """

    producers: int
    readers: int
    zombies: Sequence[int]
    """Lists the numbers of the producers that a fault can stop while a successor takes over their transactional id."""
    members: int = 0
    named: Sequence[int] = ()
    """Lists the numbers of the members that have an instance id."""
    loads: int = 0


class CoordinatorKeys(NamedTuple):
    """Holds the keys by which Kafka finds a coordinator (FindCoordinator): a workload's transactional ids and its
    groups.
    """

    ids: Sequence[str] = ()
    """Lists the workload's transactional ids."""
    groups: Sequence[str] = ()
    asked: Sequence[str] = ()
    """Lists the requests that group members often send to coordinators, by the names of their APIs, such as Heartbeat.
    Faults that are to hit a request to a coordinator are drawn from these.
    """

    def lacks(self, wanted: str) -> str:
        """Return an error message if the workload has no transactional id and no group named `wanted`; else "". An
        empty `wanted` means any of them.
        """
        names = (*self.ids, *self.groups)
        if not names:
            return "the workload has no transactional producers and no consumer group, so nobody coordinates them"
        if wanted in ("", *names):
            return ""
        what = " or ".join((["transactional id"] if self.ids else []) + (["group"] if self.groups else []))
        return f"there is no {what} {wanted}: the workload has {', '.join(names)}"


class UnresolvedTargetError(Exception):
    """Reports that no node fits the target's name now (no leader, no known controller), so that the fault cannot land.
    """


def of_clients(target: str) -> bool:
    """Return whether a target is one of the workload's clients."""
    return target.partition(":")[0] in CLIENT_TARGETS


def check_target(here: str, target: str) -> tuple[str, str]:
    """Split a target such as "leader:orders-0-1" into kind and argument. Leave out the brokers after `not`. Raise
    FaultError if the text is no target. here: how the message names the fault.
    """
    target, but = _split(target)
    kind, colon, argument = target.partition(":")
    if colon and not argument.strip() and kind in (*NODE_TARGETS, *CLIENT_TARGETS):
        raise FaultError(f"{here}: target {target!r}: nothing stands behind the colon: leave it out, or say which one")
    if but:
        _check_but(here, f"{target}{BUT}{but}", kind, but)
    if kind in CLIENT_TARGETS:
        if argument and not argument.isdigit():
            raise FaultError(f"{here}: target {target!r}: a {kind} has a number, as in {kind}:0")
        return kind, argument
    if kind == ZONE_TARGET:
        if not argument.isdigit() or int(argument) < 1:
            raise FaultError(f"{here}: target {target!r}: zones are counted from 1, as in zone:2")
        return kind, argument
    if kind == LINK_TARGET:
        link_ends(here, f"{target}{BUT}{but}" if but else target)
        return kind, argument
    if kind not in NODE_TARGETS:
        known = (*NODE_TARGETS, ZONE_TARGET, LINK_TARGET)
        near = nearest(kind, CLIENT_TARGETS)
        meant = f"did you mean {near!r}?" if near else did_you_mean(kind, known)
        raise FaultError(f"{here}: unknown target {target!r}: {meant}")
    if kind == "node" and not argument.isdigit():
        raise FaultError(f"{here}: target {target!r}: node needs a broker id, as in node:2")
    if kind in OF_PARTITIONS and argument and "-" not in argument:
        raise FaultError(f"{here}: target {target!r}: a partition is TOPIC-NUMBER, as in {kind}:orders-0-1")
    return kind, argument


def _split(target: str) -> tuple[str, str]:
    """Split a target at its `not`: "leader not controller" gives ("leader", "controller"), and "leader" gives
    ("leader", ""). A link is left whole, because each of its ends may have its own `not`.
    """
    if target.startswith(f"{LINK_TARGET}:"):
        return target, ""
    named, _, but = target.partition(BUT)
    return named.strip(), but.strip()


def _check_but(here: str, target: str, kind: str, but: str) -> None:
    """Raise FaultError if the text after `not` names brokers that cannot be left out, or if this kind of target has no
    `not`.
    """
    if kind not in NODE_TARGETS:
        raise FaultError(f"{here}: target {target!r}: only brokers can be left out: no `not` behind {kind}")
    whom, _, argument = but.partition(":")
    if whom not in ("controller", "node") and not (whom in ("leader", COORDINATOR) and argument):
        allowed = "controller, node:N, leader:TOPIC-N or coordinator:ID"
        raise FaultError(f"{here}: target {target!r}: behind `not` stands {allowed}")
    check_target(here, but)


def link_ends(here: str, target: str) -> tuple[str, str]:
    """Return the targets of a link's two ends, such as `node:1` and `leader:orders-0-1`. Raise FaultError if the target
    is no link. here: how the message names the fault.
    """
    source, arrow, end = target.partition(":")[2].partition("->")
    if not arrow or not source.strip() or not end.strip():
        raise FaultError(f"{here}: target {target!r}: a link has two ends, as in link:1->2 or link:zone:1->leader")
    ends = [f"node:{each}" if each.isdigit() else each for each in (source.strip(), end.strip())]
    for at, each in enumerate(ends):
        kind, _ = check_target(here, each)
        if kind not in (OF_ONE if at else (*OF_ONE, ZONE_TARGET)):
            allowed = "a broker" if at else "a broker or a zone"
            raise FaultError(f"{here}: target {target!r}: {each!r} is not {allowed}: a link has one at each end")
    return ends[0], ends[1]


def check_feasible(
    target: str, nodes: Sequence[int], zones: int, places: Sequence[str], here: str, names: CoordinatorKeys
) -> None:
    """Raise FaultError, when a plan is made, for a target that its cluster or its workload can never have.

    zones: the number of client zones. places: the workload's partitions, as TOPIC-N. here: how messages name the fault,
    such as "fault 3 (kill)". names: the workload's transactional ids and groups.
    """
    kind, argument = check_target(here, target)
    if kind == LINK_TARGET:
        ends = link_ends(here, target)
        for end in ends:
            check_feasible(end, nodes, zones, places, here, names)
        # These are drawn anew for each end, so they may be two brokers.
        if ends[0] == ends[1] and not ends[0].startswith(("follower", "isr", "random")):
            raise FaultError(f"{here}: target {target!r}: nobody has a link to itself")
        return
    if but := _split(target)[1]:
        check_feasible(but, nodes, zones, places, here, names)
        if len(nodes) == 1:
            raise FaultError(f"{here}: target {target!r}: a cluster of 1 has nobody else")
        if kind == "node" and but == f"node:{argument}":
            raise FaultError(f"{here}: target {target!r}: nobody is left")
    if kind == "node" and int(argument) not in nodes:
        raise FaultError(f"{here}: there is no node {argument}: the cluster has {', '.join(map(str, nodes))}")
    if kind == COORDINATOR and (why := names.lacks(argument)):
        raise FaultError(f"{here}: target {target!r}: {why}")
    if kind in OF_PARTITIONS and argument and argument not in places:
        raise FaultError(f"{here}: there is no partition {argument}: the workload has {', '.join(places)}")
    if kind == ZONE_TARGET and int(argument) > zones:
        have = "1 zone" if zones == 1 else f"{zones} zones"
        raise FaultError(f"{here}: there is no zone {argument}: the workload has {have} (workload.zones)")
    if kind == "minority" and minority_size(len(nodes)) == 0:
        raise FaultError(f"{here}: a cluster of {len(nodes)} has no minority")


def check_clients(
    target: str, clients: WorkloadClients, here: str, *, transactional: bool, named: bool = False
) -> None:
    """Raise FaultError, when a plan is made, for a client that its workload does not have. here: how messages name the
    fault, such as "fault 3 (kill)". transactional: the client must be able to become a zombie. named: the client must
    have an instance id.
    """
    kind, argument = check_target(here, target)
    if kind not in CLIENT_TARGETS:
        return
    zombie = transactional and kind == "producer"
    counts = {"reader": clients.readers, MEMBER: clients.members, LOAD: clients.loads}
    count = counts.get(kind, clients.producers)
    have: Sequence[int] = clients.zombies if zombie else clients.named if named else range(count)
    if argument and int(argument) not in have:
        listed = "" if not have else f"{kind}:{have[0]}" if len(have) == 1 else f"{kind}:{have[0]} to {kind}:{have[-1]}"
        whose = " with a transactional id" if zombie else " with an instance id" if named else ""
        raise FaultError(f"{here}: there is no {target}: the workload has {listed or f'no {kind}'}{whose}")


def no_such_id(wanted: str, ids: Sequence[str]) -> str:
    """Return an error message if the transactional id `wanted` is not in `ids`; else "". An empty `wanted` means any
    id.
    """
    return CoordinatorKeys(ids=ids).lacks(wanted) if ids else "the workload has no transactional producers"


def no_such_group(wanted: str, groups: Sequence[str]) -> str:
    """Return an error message if the group `wanted` is not in `groups`; else "". An empty `wanted` means any group."""
    return CoordinatorKeys(groups=groups).lacks(wanted) if groups else "the workload has no consumer group"


def coordinated_names(targets: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of a workload's transactional ids and groups (`names`) whose coordinators must be known to resolve
    these targets. The target `coordinator` without a name needs the coordinators of all.
    """
    named: set[str] = set()
    for target in targets:
        ends = link_ends("target", target) if target.startswith(f"{LINK_TARGET}:") else (target,)
        for end in (each for one in ends for each in _split(one) if each):
            kind, argument = check_target("target", end)
            if kind == COORDINATOR:
                named |= {argument} if argument else {*names}
    return tuple(each for each in names if each in named)


def minority_size(nodes: int) -> int:
    """Return how many nodes may fail while a majority still runs."""
    return (nodes - 1) // 2


def zone_of(target: str) -> str:
    """Return the name of the client zone that a target names. Empty if the target names none."""
    kind, argument = check_target("target", target)
    return zone_name(int(argument)) if kind == ZONE_TARGET else ""


def link_of(target: str, view: ClusterSnapshot, rng: Random) -> Link | None:
    """Return the link that `target` names now, or None if the target is no link. Raise UnresolvedTargetError if no
    broker fits an end of the link.
    """
    if not target.startswith(f"{LINK_TARGET}:"):
        return None
    source, end = link_ends("target", target)
    named: list[int | str] = [zone_of(source)] if zone_of(source) else [*resolve(source, view, rng)]
    (hit,) = resolve(end, view, rng)
    if named[0] == hit:
        raise UnresolvedTargetError(f"{target}: both ends are broker {hit} now")
    return Link(named[0], hit)


def resolve(target: str, view: ClusterSnapshot, rng: Random) -> tuple[int, ...]:
    """Return the broker ids that `target` names now, sorted. Raise UnresolvedTargetError if there are none."""
    kind, argument = check_target("target", target)
    but = _split(target)[1]
    avoided = resolve(but, view, rng) if but else ()
    # Sorted, here and below: a draw must not depend on the order in which brokers answered.
    nodes = [node for node in sorted(view.nodes) if node not in avoided]
    if kind == "all":
        return tuple(nodes)
    if kind == "random":
        return (rng.choice(nodes),)
    if kind in ("minority", "majority"):
        # Of all brokers: those behind `not` keep their votes, so they do not change what a majority is.
        size = minority_size(len(view.nodes)) if kind == "minority" else len(view.nodes) // 2 + 1
        if size > len(nodes):
            raise UnresolvedTargetError(f"{target}: {len(nodes)} brokers are left, too few")
        return tuple(sorted(rng.sample(nodes, size)))
    if kind in ("node", "controller"):
        found = int(argument) if kind == "node" else view.controller
        if kind == "controller" and found not in view.nodes:
            raise UnresolvedTargetError("no active controller is known")
        if found in avoided:
            raise UnresolvedTargetError(f"{target}: that is broker {found} now")
        return (found,)
    if kind == COORDINATOR:
        return (_coordinator(argument, view, avoided, rng),)
    return _replicas(kind, argument, view, avoided, rng)


def _coordinator(wanted: str, view: ClusterSnapshot, avoided: Sequence[int], rng: Random) -> int:
    known = {each: node for each, node in sorted(view.coordinators.items()) if each == wanted or not wanted}
    free = {each: node for each, node in known.items() if node in view.nodes and node not in avoided}
    if not free:
        avoidable = any(node in avoided for node in known.values())
        why = f"that is broker {', '.join(map(str, avoided))} now" if avoidable else "nobody coordinates it now"
        raise UnresolvedTargetError(f"{COORDINATOR}:{wanted}: {why}" if wanted else f"{COORDINATOR}: {why}")
    return free[rng.choice(list(free))]


def _replicas(kind: str, argument: str, view: ClusterSnapshot, avoided: Sequence[int], rng: Random) -> tuple[int, ...]:
    meant = (argument,) if argument else view.places or view.leaders
    partitions = sorted(each for each in view.leaders if each in meant)
    if not partitions:
        raise UnresolvedTargetError(f"no partition {argument!r}" if argument else "no partition exists")
    if kind == "last_isr":
        partitions = [each for each in partitions if len(view.isr.get(each, ())) == 1]
        if not partitions:
            raise UnresolvedTargetError(f"{argument or 'every partition'} has more replicas in sync than one, or none")
    if avoided:
        partitions = [each for each in partitions if not set(_named(kind, each, view)) <= set(avoided)]
        if not partitions:
            where = argument or "every partition"
            raise UnresolvedTargetError(
                f"every {kind.removesuffix('s')} of {where} is broker {', '.join(map(str, avoided))} now"
            )
    # A target without a partition may mean any partition, so prefer one that has a leader now.
    partition = rng.choice([each for each in partitions if view.leaders[each] >= 0] or partitions)
    named = [node for node in _named(kind, partition, view) if node not in avoided]
    if kind in ("isr", "last_isr"):
        if not named:
            raise UnresolvedTargetError(f"{partition} has nobody in sync")
        return (rng.choice(sorted(named)),)
    if view.leaders[partition] < 0:
        raise UnresolvedTargetError(f"{partition} has no leader")
    if kind == "leader":
        return (named[0],)
    if not named:
        raise UnresolvedTargetError(f"{partition} has no follower")
    return tuple(sorted(named)) if kind == "followers" else (rng.choice(named),)


def _named(kind: str, partition: str, view: ClusterSnapshot) -> list[int]:
    """Return the brokers among which a target of this kind chooses: the partition's leader, its ISR, or its followers.
    """
    leader = view.leaders[partition]
    match kind:
        case "leader":
            return [leader]
        case "isr" | "last_isr":
            return list(view.isr.get(partition, ()))
        case _:
            return [node for node in view.replicas[partition] if node != leader]
