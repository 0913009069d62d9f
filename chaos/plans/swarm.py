"""Draws a whole plan from a seed: cluster, settings, load and faults, each from a random stream of its own.

The plans follow swarm testing: each seed leaves out many features, and uses the others more. If every plan mixed
everything, rare behaviour would be averaged away. Loads are small, because replication breaks by the timing of events
and not by their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from squall.chaos.draws import rng_for
from squall.chaos.faults.kind import HOLDING, ClusterTraits, Fault, FaultError, FaultKind, FaultTrait, Params
from squall.chaos.faults.kinds import KINDS as ALL
from squall.chaos.faults.targets import LOAD, CoordinatorKeys, minority_size
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.group_scenes import GROUP_SCENES, TRANSACTIONAL_GROUP_SCENES, WAITS_S
from squall.chaos.plans.landing import faults_conflict, landing
from squall.chaos.plans.late_scenes import LATE_SCENES
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.plans.scenes import SCENES, RarePathScene
from squall.chaos.plans.schedule import coordinated, make_schedule, of_loads, of_transactions
from squall.workloads.registry import DEFAULT, SCENARIOS
from squall.workloads.scenario import Scenario, SwarmCluster

KINDS = tuple(kind for kind in ALL.values() if kind.draw.swarm == "first")
"""Lists the kinds of faults from which seeds draw. Bit rot is used in only one scene: hardly any configuration can
repair it, so every seed with bit rot would have the same result.
"""
NEWER = tuple(kind for kind in ALL.values() if kind.draw.swarm == "newer")
"""Lists kinds of faults that were added after those of `KINDS`. Some seeds use them in addition. They are drawn
separately, so that the plans of other seeds did not change.
"""
BESIDE = tuple(kind for kind in ALL.values() if kind.draw.swarm == "beside")
"""Lists kinds of faults that neither take nodes down nor conflict with other faults. Some seeds use them in addition,
at any time.
"""
NEWER_SHARE, QUIET_SHARE, WAITING_SHARE, BESIDE_SHARE, LOAD_SHARE = 0.35, 0.1, 0.08, 0.25, 0.7
QUIET_S = 8.0
TIME_S, WARMUP_S = 26.0, 2.0
VOTERS = (1, 3, 3, 3, 3, 4, 5, 5)
WINDOWS_KIB, WINDOW_SHARE = (4, 16, 64), 0.12
"""Give the sizes in KiB from which some seeds draw the window of a connection (`ClusterPlan.window_kib`), and the share
of these seeds. If the window is small, a sender often waits for the receiver. Sizes below 4 KiB would cost a seed with
large records minutes of CPU.
"""
LONG_S, LONG_RATE, LONG_SHARE = 150.0, 3, 0.02
"""Give, for long loads, the length in s, the records per second, and the share of seeds that have one. Some events need
minutes.
"""
SCENE_SHARE, LATE_SHARE, GROUP_SHARE = 0.11, 0.3, 0.25
"""Give the shares of seeds that use a scene: one of `SCENES`; with transactional producers, one of `LATE_SCENES`; with
consumer groups, one of `GROUP_SCENES`.
"""


def swarm_plan(seed: int, *, time_s: float | None = None, workload: str | None = DEFAULT) -> Plan:
    """Return the plan of one seed, for runtime sim. time_s: the length of the load in s; None: the seed draws it, and
    few loads are long. workload: the workload's name; None: the seed draws it.
    """
    values = _drawn(seed, time_s, SCENARIOS[workload_of(seed) if workload is None else workload])
    if time_s is None and (scene := _scene(seed, values["workload"])) is not None:
        values = _staged(values, scene)
    return make_plan({**values, "faults": [*values["faults"], *_of_loads(seed, values)]})


def _scene(seed: int, table: Mapping[str, Any]) -> RarePathScene | None:
    """Return the scene that a seed uses with this load, or None if it uses none. table: the workload's settings."""
    traffic = SCENARIOS[table["name"]].model_validate(table).traffic()
    draw, rng = rng_for(seed, "swarm", "scene").random(), rng_for(seed, "swarm", "the scene")
    if traffic.groups:
        of_groups = TRANSACTIONAL_GROUP_SCENES if traffic.ids else GROUP_SCENES
        return rng.choice(of_groups)(rng, traffic.groups, table) if draw < GROUP_SHARE else None
    share, scenes = (LATE_SHARE, LATE_SCENES) if traffic.ids else (SCENE_SHARE, SCENES)
    return rng.choice(scenes)(rng) if draw < share else None


def workload_of(seed: int) -> str:
    """Pick the workload for a seed. Each workload's `SWARM_SHARE` is the share of seeds that get it; all other seeds
    get the default.
    """
    draw = rng_for(seed, "swarm", "which workload").random()
    for name, scenario in SCENARIOS.items():
        if draw < scenario.SWARM_SHARE:
            return name
        draw -= scenario.SWARM_SHARE
    return DEFAULT


def _drawn(seed: int, time_s: float | None, scenario: type[Scenario]) -> dict[str, Any]:
    """Return a plan's values, with everything drawn independently: no scene."""
    long = time_s is None and rng_for(seed, "swarm", "time").random() < LONG_SHARE
    time_s = time_s if time_s is not None else LONG_S if long else TIME_S
    nodes = rng_for(seed, "swarm", "nodes").choice((1, 2, 3, 3, 3, 3, 3, 4, 5, 5))
    # Two voters are not drawn: they cannot lose one, as one voter cannot.
    voters = rng_for(seed, "swarm", "voters").choice([count for count in VOTERS if count <= nodes])
    windows = rng_for(seed, "swarm", "windows")
    window = {"window_kib": windows.choice(WINDOWS_KIB)} if windows.random() < WINDOW_SHARE else {}
    kinds = (*_kinds(seed, nodes), *_of_transactions(seed, scenario))
    traits = {trait for name in kinds for trait in ALL[name].traits}
    stream = partial(rng_for, seed, "swarm")
    ground = SwarmCluster(nodes, FaultTrait.COUNTS_SYNCS in traits, FaultTrait.DAMAGES_FILES in traits)
    table = scenario.drawn_settings(stream, ground)
    settings = {**_settings(seed, kinds), **scenario.drawn_brokers(stream, table)}
    if long and "rate" in scenario.model_fields:
        table = {**table, "rate": LONG_RATE}
    load = scenario.model_validate(table)
    replicas, traffic = load.replication_factor, load.traffic()
    if not traffic.zombies:
        kinds = tuple(name for name in kinds if name not in of_transactions((0,)))
    names = CoordinatorKeys(traffic.ids, traffic.groups, traffic.coordinator_apis)
    aimed = [coordinated(seed, _aimed(seed, fault, nodes, replicas), names) for fault in _faults(seed, kinds, time_s)]
    places = len(load.places())
    flushes = load.topic_settings.get("flush.messages") == "1"
    closes_after = _closes_after(load.topic_settings, table)
    faults = landing(
        seed, aimed, ClusterTraits(nodes, replicas, flushes, traffic.rate, traffic.acks, places, closes_after, voters)
    )
    # A zombie's successor that crashes with all others would prove nothing of the zombie, and transactional producers
    # without a group do not come to rest.
    remade = bool(traffic.members or not traffic.ids) and FaultTrait.NEEDS_TRANSACTIONS not in traits
    faults = (*faults, *_beside(seed, len(aimed), time_s, remade=remade))
    return {
        "seed": seed,
        "runtime": "sim",
        "warmup_s": WARMUP_S,
        "time_s": time_s,
        "cluster": {"nodes": nodes, "voters": voters, "settings": settings, **window},
        "workload": table,
        "limits": {"converge_s": 60, "final_read_s": 30, "stuck_s": 25},
        "faults": _waiting(seed, faults),
    }


def _closes_after(topic: Mapping[str, str], load: Mapping[str, Any]) -> float:
    """Return after about how many records a partition begins a new segment, with a margin; infinite if segments have
    the default size, and if retention removes closed segments again.
    """
    sizes = load.keys() & {"min_bytes", "record_bytes"}
    if "segment.bytes" not in topic or "retention.ms" in topic or not sizes:
        return inf
    mean: float = load["record_bytes"] if "record_bytes" in load else (load["min_bytes"] + load["max_bytes"]) / 2
    return 1 + 1.5 * int(topic["segment.bytes"]) / mean


def _waiting(seed: int, faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Return the faults as a plan's file has them. For some seeds, one fault begins as soon as the fault before it has
    ended, with no time to recover in between, unless it would then conflict with a third fault.
    """
    rng, listed = rng_for(seed, "swarm", "waiting"), [_listed(fault) for fault in faults]
    if rng.random() >= WAITING_SHARE or len(faults) < 2:
        return listed
    first = rng.randrange(len(faults) - 1)
    after, then = faults[first], faults[first + 1]
    moved = replace(then, at_s=after.at_s + after.duration_s)
    if then.at_s > after.at_s and not any(faults_conflict(moved, each) for each in faults if each not in (after, then)):
        listed[first + 1] |= {"at_s": after.at_s, "when": f"after fault {first} ended"}
    return listed


def _staged(values: dict[str, Any], scene: RarePathScene) -> dict[str, Any]:
    """Return a plan's values, changed for a scene. The scene's faults replace the plan's faults. The scene's broker and
    workload settings are added, and win over the plan's. The values are unchanged if the plan's workload does not know
    one of the scene's workload settings.
    """
    if not scene.workload.keys() <= SCENARIOS[values["workload"]["name"]].model_fields.keys():
        return values
    cluster = values["cluster"]
    return {
        **values,
        "time_s": scene.time_s or TIME_S,
        "cluster": {
            **{name: value for name, value in cluster.items() if name == "window_kib"},
            "nodes": max(cluster["nodes"], scene.nodes),
            "settings": {**cluster["settings"], **scene.settings},
        },
        "workload": {**values["workload"], **scene.workload},
        "faults": [_listed(fault) | _until(scene.when.get(number)) for number, fault in enumerate(scene.faults)],
    }


def _until(when: str | None) -> dict[str, Any]:
    return {} if when is None else {"when": when, "within_s": WAITS_S}


def _listed(fault: Fault) -> dict[str, Any]:
    """Return the fault as a plan's file has it."""
    times = {"at_s": fault.at_s, "duration_s": fault.duration_s}
    return {**times, "action": fault.action, "target": fault.target, "params": dict(fault.params)}


def _faults(seed: int, kinds: tuple[str, ...], time_s: float) -> tuple[Fault, ...]:
    """Draw faults one after the other, with quiet gaps between them. For some seeds, a second sequence of faults
    overlaps the first.
    """
    rng = rng_for(seed, "swarm", "faults")
    lines = 2 if rng.random() < 0.35 else 1
    found: list[Fault] = []
    try:
        for line in range(lines):
            # Two faults of whole nodes at once often meet on the same node, and then one of them proves nothing.
            apart = line and rng.random() < 0.7
            across = tuple(name for name in kinds if not (apart and _of_whole_nodes(name)))
            drawn = make_schedule(seed if not line else rng.getrandbits(62), across, time_s)
            found += [replace(fault, id=len(found) + number) for number, fault in enumerate(drawn)]
    except FaultError:  # The load is too short for any fault.
        return ()
    return _with_quiet(seed, found, time_s)


def _beside(seed: int, first: int, time_s: float, *, remade: bool) -> list[Fault]:
    """Return the faults of the kinds in `BESIDE` that a seed has in addition to its other faults; for most seeds none.
    first: the id of the first of these faults. time_s: the length of the load in s. remade: the clients can handle that
    their topics are deleted and created again.
    """
    rng = rng_for(seed, "swarm", "beside")
    if rng.random() >= BESIDE_SHARE or time_s < TIME_S:
        return []
    found = []
    for number in range(rng.choice((1, 1, 2, 3))):
        kind, at_s = rng.choice(BESIDE), round(rng.uniform(1.0, time_s - 8.0), 2)
        params: Params = kind.draw.params(rng)
        if remade:
            params = kind.draw.own_topics(rng_for(seed, "swarm", "remade", number), params)
        target = kind.draw.target(rng, params) if kind.draw.target is not None else None
        found.append(make_fault(first + number, at_s, round(rng.uniform(1, 4), 2), kind.name, target or "all", params))
    return found


def _with_quiet(seed: int, faults: list[Fault], time_s: float) -> tuple[Fault, ...]:
    """Drop, for some seeds, all faults that begin in one interval, and return the others. In this interval the load
    meets only what earlier faults left behind.
    """
    rng = rng_for(seed, "swarm", "quiet")
    if rng.random() >= QUIET_SHARE:
        return tuple(faults)
    begin_s = rng.uniform(0.2, 0.5) * time_s
    return tuple(fault for fault in faults if not begin_s <= fault.at_s < begin_s + QUIET_S)


def _kinds(seed: int, nodes: int) -> tuple[str, ...]:
    """Draw the kinds of faults that this seed uses; usually there are few."""
    rng = rng_for(seed, "swarm", "kinds")
    possible = [kind.name for kind in KINDS if _enough_brokers(kind, nodes)]
    count = rng.choice((0, 1, 2, 2, 3, 3, 4, 6, len(possible)))
    found = rng.sample(possible, count)
    more = rng_for(seed, "swarm", "newer kinds")
    if more.random() < NEWER_SHARE:
        newer = [kind.name for kind in NEWER if _enough_brokers(kind, nodes)]
        found += more.sample(newer, min(len(newer), more.choice((1, 1, 2, 3))))
    return tuple(sorted(found))


def _of_transactions(seed: int, scenario: type[Scenario]) -> tuple[str, ...]:
    """Return the kinds of faults that need transactional producers, for some seeds only. Return () for all other seeds,
    and if the workload has no such producers.
    """
    found = of_transactions(scenario().traffic().zombies)  # type: ignore[call-arg]
    return found if found and rng_for(seed, "swarm", "zombies").random() < NEWER_SHARE else ()


def _of_loads(seed: int, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the faults of a plan's loads, for most seeds: one of each kind, which lasts for a large part of the load,
    because it conflicts with no other fault.
    """
    traffic = SCENARIOS[values["workload"]["name"]].model_validate(values["workload"]).traffic()
    for number, name in enumerate(of_loads(traffic.loads), len(values["faults"])):
        rng, kind, time_s = rng_for(seed, "swarm", name), ALL[name], values["time_s"]
        if rng.random() < LOAD_SHARE:
            at_s, duration_s = round(rng.uniform(0.5, 3.0), 2), round(rng.uniform(0.3, 0.8) * time_s, 2)
            yield _listed(make_fault(number, at_s, duration_s, name, LOAD, kind.draw.params(rng)))


def _enough_brokers(kind: FaultKind, nodes: int) -> bool:
    """Return whether the cluster has as many brokers as the kind needs with its default parameters."""
    return kind.needs_nodes(kind.defaults) <= nodes


def _of_whole_nodes(name: str) -> bool:
    return bool(ALL[name].traits & (HOLDING | {FaultTrait.ONE_BY_ONE}))


def _aimed(seed: int, fault: Fault, nodes: int, replicas: int) -> Fault:
    """Return a fault with a drawn target and, for some kinds, other parameters. The kind may also replace the fault by
    another one.
    """
    draw = fault.kind.draw
    if (other := draw.instead(seed, fault, nodes)) is not None:
        return other
    if draw.varied is not None:
        fault = replace(fault, params=draw.varied(rng_for(seed, "swarm", "links", fault.id), fault.params, nodes))
    return replace(fault, target=_target(seed, fault, nodes, replicas))


def _target(seed: int, fault: Fault, nodes: int, replicas: int) -> str:
    """Return the fault's target: for some faults several nodes, or a follower."""
    if fault.kind.draw.target is not None:
        return fault.target
    rng = rng_for(seed, "swarm", "target", fault.id)
    if rng.random() < 0.75 or nodes == 1:
        return fault.target
    several = ["majority", "all", *(["minority"] if minority_size(nodes) else [])]
    several = [] if FaultTrait.OF_ONE_NODE in fault.traits else several
    possible = [*several, *(["follower", "follower"] if replicas > 1 else [])]
    return rng.choice(possible) if possible else fault.target


def _settings(seed: int, kinds: tuple[str, ...]) -> dict[str, str]:
    """Draw broker settings: short time-outs, as in every run, and for some seeds values that make rare code paths more
    frequent.
    """
    settings = dict(FAST_FAILOVER)
    settings["log.retention.check.interval.ms"] = "1000"
    rng = rng_for(seed, "swarm", "settings")
    if rng.random() < 0.3:
        settings["replica.lag.time.max.ms"] = rng.choice(("1000", "1500", "6000"))
    if rng.random() < 0.3:
        settings["max.incremental.fetch.session.cache.slots"] = rng.choice(("0", "1", "2"))
    if rng.random() < 0.4:
        settings["metadata.log.max.record.bytes.between.snapshots"] = rng.choice(("200", "1000", "4000"))
        settings["metadata.max.retention.bytes"] = rng.choice(("500", "2000", "-1"))
    deletions = rng_for(seed, "swarm", "file deletions")
    if deletions.random() < 0.15:
        settings["log.segment.delete.delay.ms"] = deletions.choice(("0", "500", "3000"))
    return settings
