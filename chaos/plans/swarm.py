"""A seed into a whole plan: cluster, settings, load and faults, each drawn from a stream of its own purpose.

What one big mixture averages away, a swarm finds: every seed leaves out much, and does more of the rest. Loads are
small, because what breaks replication is when things happen, and not how much of it there is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from chaos.draws import rng_for
from chaos.faults.targets import minority_size
from chaos.faults.vocabulary import Fault, FaultError
from chaos.plans.landing import Ground, landing
from chaos.plans.plan import FAST_FAILOVER, Plan, make_plan
from chaos.plans.scenes import SCENES, Scene
from chaos.plans.schedule import make_schedule
from workloads.registry import DEFAULT, SCENARIOS
from workloads.scenario import Ground as Drawn
from workloads.scenario import Scenario

KINDS = ("kill", "stop", "pause", "crash_at", "power_loss", "clock", "partition", "latency", "packet_loss", "reset",
         "protocol", "disk", "leadership")  # fmt: skip
"""Of faults. Bit rot is not among them, but for one scene: hardly a configuration mends it, so each seed with it would
say the same."""
NEWER = ("bandwidth", "slicer", "limit_data", "reset_peer", "slow_close", "flapping", "rolling", "client")
"""Kinds that some seeds have besides: drawn by themselves, so that the other seeds are the plans that they were."""
NEWER_SHARE, SHAPE_SHARE, SIDE_SHARE, QUIET_SHARE, WAITING_SHARE = 0.35, 0.25, 0.2, 0.1, 0.08
QUIET_S = 8.0
BETWEEN_BROKERS = ("partition", "latency", *(kind for kind in NEWER if kind not in ("rolling", "client")))
OF_NODES = ("kill", "stop", "pause", "crash_at", "power_loss", "disk", "rolling")
OF_FSYNCS = ("crash_at", "disk")
OF_ONE = ("crash_at", "stop")
"""Of one node at a time: so is a crash point, and most of a quorum cannot leave in good order together."""
TIME_S, WARMUP_S = 26.0, 2.0
LONG_S, LONG_RATE, LONG_SHARE = 150.0, 3, 0.02
"""What takes minutes to happen. At few records a second."""
SCENE_SHARE, RESIGN_SHARE = 0.08, 0.3
CONTROLLERS = 3
"""As many as a cluster has of at least so many brokers; a smaller one has a single controller."""


def swarm_plan(seed: int, *, time_s: float | None = None, workload: str = DEFAULT) -> Plan:
    """The plan of one seed, in runtime sim. `time_s`: of load with faults; None: few seeds have a long one."""
    values = _drawn(seed, time_s, SCENARIOS[workload])
    if rng_for(seed, "swarm", "scene").random() < SCENE_SHARE and time_s is None:
        rng = rng_for(seed, "swarm", "the scene")
        values = _staged(values, rng.choice(SCENES)(rng))
    return make_plan(values)


def _drawn(seed: int, time_s: float | None, scenario: type[Scenario]) -> dict[str, Any]:
    """A plan in which everything is drawn by itself."""
    long = time_s is None and rng_for(seed, "swarm", "time").random() < LONG_SHARE
    time_s = time_s if time_s is not None else LONG_S if long else TIME_S
    nodes = rng_for(seed, "swarm", "nodes").choice((1, 2, 3, 3, 3, 3, 3, 4, 5, 5))
    kinds = _kinds(seed, nodes)
    table = scenario.drawn_settings(partial(rng_for, seed, "swarm"), Drawn(nodes, not set(OF_FSYNCS).isdisjoint(kinds)))
    if long and "rate" in scenario.model_fields:
        table = {**table, "rate": LONG_RATE}
    load = scenario.model_validate(table)
    replicas, traffic = load.replication_factor, load.traffic()
    aimed = [_aimed(seed, fault, nodes, replicas) for fault in _faults(seed, kinds, time_s)]
    flushes = load.topic_settings.get("flush.messages") == "1"
    faults = landing(seed, aimed, Ground(nodes, replicas, flushes, traffic.rate, traffic.acks))
    return {
        "seed": seed,
        "runtime": "sim",
        "warmup_s": WARMUP_S,
        "time_s": time_s,
        "cluster": {"nodes": nodes, "settings": _settings(seed, kinds)},
        "workload": table,
        "limits": {"converge_s": 60, "final_read_s": 30, "stuck_s": 25},
        "faults": _waiting(seed, [_listed(fault) for fault in faults]),
    }


def _waiting(seed: int, faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Now and then a fault begins just when the one before it has ended, with no time to recover between them."""
    rng = rng_for(seed, "swarm", "waiting")
    if rng.random() >= WAITING_SHARE or len(faults) < 2:
        return faults
    first = rng.randrange(len(faults) - 1)
    after, then = faults[first], faults[first + 1]
    if then["at_s"] > after["at_s"]:
        faults[first + 1] = {**then, "at_s": after["at_s"], "when": f"after fault {first} ended"}
    return faults


def _staged(values: dict[str, Any], scene: Scene) -> dict[str, Any]:
    """The same plan with a scene in the place of its faults, and with what that needs; as it is where its workload has
    no such settings.
    """
    if not scene.workload.keys() <= SCENARIOS[values["workload"]["name"]].model_fields.keys():
        return values
    cluster = values["cluster"]
    return {
        **values,
        "time_s": scene.time_s or TIME_S,
        "cluster": {
            "nodes": max(cluster["nodes"], scene.nodes),
            "settings": {**cluster["settings"], **scene.settings},
        },
        "workload": {**values["workload"], **scene.workload},
        "faults": [_listed(fault) for fault in scene.faults],
    }


def _listed(fault: Fault) -> dict[str, Any]:
    """As a plan file has it."""
    times = {"at_s": fault.at_s, "duration_s": fault.duration_s}
    return {**times, "action": fault.action, "target": fault.target, "params": dict(fault.params)}


def _faults(seed: int, kinds: tuple[str, ...], time_s: float) -> tuple[Fault, ...]:
    """One after the other, as in every run; now and then a second line of them across the first."""
    rng = rng_for(seed, "swarm", "faults")
    lines = 2 if rng.random() < 0.35 else 1
    found: list[Fault] = []
    try:
        for line in range(lines):
            # Two faults of whole nodes at once often find each other's node down, and then one of them proves nothing.
            across = tuple(kind for kind in kinds if kind not in OF_NODES) if line and rng.random() < 0.7 else kinds
            drawn = make_schedule(seed if not line else rng.getrandbits(62), across, time_s)
            found += [replace(fault, id=len(found) + number) for number, fault in enumerate(drawn)]
    except FaultError:  # too short a load for any
        return ()
    return _with_quiet(seed, found, time_s)


def _with_quiet(seed: int, faults: list[Fault], time_s: float) -> tuple[Fault, ...]:
    """Now and then nothing begins for a while, so that what faults left behind meets a load by itself."""
    rng = rng_for(seed, "swarm", "quiet")
    if rng.random() >= QUIET_SHARE:
        return tuple(faults)
    begin_s = rng.uniform(0.2, 0.5) * time_s
    return tuple(fault for fault in faults if not begin_s <= fault.at_s < begin_s + QUIET_S)


def _kinds(seed: int, nodes: int) -> tuple[str, ...]:
    """Which kinds of faults this seed has at all: few, most often."""
    rng = rng_for(seed, "swarm", "kinds")
    possible = [kind for kind in KINDS if nodes > 1 or kind not in BETWEEN_BROKERS]
    count = rng.choice((0, 1, 2, 2, 3, 3, 4, 6, len(possible)))
    found = rng.sample(possible, count)
    more = rng_for(seed, "swarm", "newer kinds")
    if more.random() < NEWER_SHARE:
        newer = [kind for kind in NEWER if nodes > 1 or kind not in BETWEEN_BROKERS]
        found += more.sample(newer, min(len(newer), more.choice((1, 1, 2, 3))))
    return tuple(sorted(found))


def _aimed(seed: int, fault: Fault, nodes: int, replicas: int) -> Fault:
    """At whom it goes; a request for leaders is now and then one to the controller, where there is another one."""
    resigns = fault.action == "leadership" and rng_for(seed, "swarm", "resign", fault.id).random() < RESIGN_SHARE
    if resigns and nodes >= CONTROLLERS:
        return replace(fault, target="controller", params={"how": "resign"})
    fault = replace(fault, params=_on_links(seed, fault, nodes))
    return replace(fault, target=_target(seed, fault, nodes, replicas))


def _on_links(seed: int, fault: Fault, nodes: int) -> dict[str, Any]:
    """Its parameters; of partitions and latency some are of clients' links, or of shapes that need three brokers."""
    params = dict(fault.params)
    rng = rng_for(seed, "swarm", "links", fault.id)
    drawn = rng.random()
    if fault.action == "partition" and nodes >= CONTROLLERS and drawn < SHAPE_SHARE:
        return {**params, "shape": rng.choice(("ring", "bridge"))}
    if fault.action == "partition" and params["shape"] == "isolate" and drawn < SHAPE_SHARE + SIDE_SHARE:
        return {**params, "side": rng.choice(("clients", "both"))}
    if fault.action == "latency" and drawn < SIDE_SHARE:
        return {**params, "side": rng.choice(("clients", "both"))}
    return params


def _target(seed: int, fault: Fault, nodes: int, replicas: int) -> str:
    """Some faults hit more than one node, or one that only follows."""
    if fault.action in ("protocol", "rolling", "client"):
        return fault.target  # whom such requests go to; all; and no broker
    rng = rng_for(seed, "swarm", "target", fault.id)
    if rng.random() < 0.75 or nodes == 1:
        return fault.target
    several = [] if fault.action in OF_ONE else ["majority", "all", *(["minority"] if minority_size(nodes) else [])]
    possible = [*several, *(["follower", "follower"] if replicas > 1 else [])]
    return rng.choice(possible) if possible else fault.target


def _settings(seed: int, kinds: tuple[str, ...]) -> dict[str, str]:
    """Of the brokers: failover as fast as in every run, and what makes rare paths less rare."""
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
    return settings
