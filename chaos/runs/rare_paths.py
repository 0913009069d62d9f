"""Counts how often a simulation took each of the broker's rare code paths, such as the truncation of a log. A batch of
simulations should take all of them.

The counts come from the brokers' traces and, if a trace does not show the path, from the simulator (`SimCore.counts`).
A path that a whole batch leaves at zero was not tested by it. A batch reports this, and lists separately the paths that
its workload cannot take at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from squall.chaos.faults.kind import FaultTrait
from squall.chaos.faults.kinds import KINDS

if TYPE_CHECKING:
    from squall.chaos.plans.parts import FaultSpec
    from squall.workloads.scenario import Scenario

Line = Mapping[str, Any]
METADATA = "__cluster_metadata"


def _always(line: Line) -> bool:
    return True


def _cut(line: Line) -> bool:
    return line.get("topic") != METADATA and line.get("from_offset", 0) > line.get("to_offset", 0)


TRACED: Mapping[str, tuple[str, Callable[[Line], bool]]] = {
    "log truncated": ("truncated", _cut),
    "log restarted at another offset": ("truncated", lambda line: bool(line.get("restarted"))),
    "log start moved": ("log_start_moved", _always),
    "ISR shrunk to one": ("isr_changed", lambda line: len(line["isr"]) == 1),
    "ISR proposal rejected": ("isr_rejected", _always),
    "ISR proposal failed": ("isr_proposal_failed", _always),
    "leader elected": ("leader_elected", lambda line: line["leader"] >= 0),
    "partition without leader": ("leader_elected", lambda line: line["leader"] < 0),
    "unclean election": ("leader_elected", lambda line: bool(line.get("unclean"))),
    "broker fenced": ("broker_fenced", _always),
    "registration lost": ("registration_lost", _always),
    "broker started within its session": (
        "registration_refused",
        lambda line: line["error"] == "DUPLICATE_BROKER_REGISTRATION",
    ),
    "controlled shutdown": ("node_stopped", lambda line: bool(line.get("controlled"))),
    "controller resigned": ("controller_resigned", _always),
    "quorum election": ("election", lambda line: line.get("role") == "leader"),
    "metadata log truncated": ("truncated", lambda line: line.get("topic") == METADATA),
    "metadata log trimmed": ("metadata_log_trimmed", _always),
    "snapshot taken": ("snapshot_taken", _always),
    "snapshot install": ("snapshot_installed", _always),
    "log recovered": ("recovered", _always),
    "torn log cut": ("recovered", lambda line: bool(line.get("truncated_bytes"))),
    "bad records fetched": ("bad_records", _always),
    "fetch refused": ("fetch_refused", _always),
    "coordinator loaded": ("coordinator_loaded", lambda line: line["ids"] > 0),
    "coordinator unloaded": ("coordinator_unloaded", lambda line: line["ids"] > 0),
    "decision completed by the next coordinator": ("coordinator_loaded", lambda line: line["prepared"] > 0),
    "marker refused": ("marker_refused", _always),
    "marker unanswered": ("markers_unanswered", _always),
    "marker written before": ("txn_marker", lambda line: not line["error"] and line["offset"] < 0),
    "transaction timed out": ("transaction_timed_out", _always),
    "offsets expired": ("offsets_expired", _always),
    "transactional id expired": ("transaction_state", lambda line: line["state"] == "Dead"),
}
"""Maps the name of a rare code path to the trace event that shows it, and to the condition that this event must meet.
"""

WORLD = (
    "controller failover",
    "incremental fetch of a consumer",
    "consumer lost its fetch session",
    "fetch session eviction",
    "look-up by time",
    "dedup hit",
    "producer fenced",
    "producer epochs used up",
    "marker waits for a leader",
    "completion refused below min ISR",
    "marker between replay and service",
    "leader died while it deleted records",
    "power lost just after a roll",
    "log truncated within an fsync",
    "rebalance while its coordinator loads",
    "coordinator lost in a rebalance",
    "member fenced",
    "commit of a former member refused",
    "group became a consumer group",
    "group became a classic group",
    "classic group taken over under its members",
    "classic member joined a consumer group",
    "consumer group left to its classic members",
    "group deleted",
)
"""Lists the rare code paths that the simulator counts itself, under these names."""

BY_REQUEST: Mapping[str, str] = {
    "churn": "topic made again",
    "remake": "topic of the workload made again",
    "partitions": "partition added",
    "delete_records": "records deleted by request",
    "min_isr": "min ISR altered",
    "retention": "retention altered",
    "segment": "segment size altered",
    "move": "replicas moved by request",
    "preferred": "leaders elected by request",
    "unclean": "unclean election by request",
    "tail": "end of a segment lost",
    "file": "closed file lost",
}
"""Maps a fault's parameter `how` (an administrator's request, or a kind of damage) to the rare code path that such a
fault makes the broker take.
"""

OF_TRANSACTIONS = (
    "decision completed by the next coordinator",
    "marker refused",
    "marker unanswered",
    "marker written before",
    "transaction timed out",
    "transactional id expired",
    "producer epochs used up",
    "producer fenced",
    "marker waits for a leader",
    "completion refused below min ISR",
)
"""Lists the rare code paths taken only for producers with a transactional id. Any other producer has no transactions,
and a producer id of its own with a constant epoch.
"""

OF_GROUPS = (
    "offsets expired",
    "rebalance while its coordinator loads",
    "coordinator lost in a rebalance",
    "member fenced",
    "commit of a former member refused",
)
"""Lists the rare code paths taken only for members of groups."""

OF_BOTH = ("marker between replay and service",)
"""Lists the rare code paths taken only if members of groups commit offsets in transactions."""

OF_COORDINATORS = ("coordinator loaded", "coordinator unloaded")
"""Lists the rare code paths taken only with transactional ids or groups: without these, a coordinator has nothing to
load.
"""

OF_ACTIONS: Mapping[str, str] = {
    "power lost just after a roll": "power_loss",
    "leader died while it deleted records": "topics",
}
"""Maps a rare code path to the kind of fault that a run needs to take it."""

OF_ROT = ("bad records fetched",)
"""Lists the rare code paths taken only if files of brokers are damaged."""

OF_SETTINGS: Mapping[str, str] = {
    "look-up by time": "lookups",
    "incremental fetch of a consumer": "fetch_sessions",
    "consumer lost its fetch session": "fetch_sessions",
    "group deleted": "deletions",
    "group became a consumer group": "conversions",
    "group became a classic group": "conversions",
    "classic group taken over under its members": "conversions",
    "classic member joined a consumer group": "conversions",
    "consumer group left to its classic members": "conversions",
}
"""Maps a rare code path to a setting of the workload. Clients send the requests that lead to the path only with this
setting.
"""

PATHS = (*TRACED, *WORLD, *BY_REQUEST.values())


def count(trace: Iterable[Line], world: Mapping[str, int], landed: Iterable[Mapping[str, Any]] = ()) -> Counter[str]:
    """Count how often each rare code path was taken.

    world: the simulator's own counts (`SimCore.counts`); all of them are returned, too. landed: the parameters of the
    faults that landed (took effect).
    """
    found: Counter[str] = Counter(dict.fromkeys(PATHS, 0))
    found.update(world)
    found.update(BY_REQUEST[str(params["how"])] for params in landed if params.get("how") in BY_REQUEST)
    leaders: set[Any] = set()
    for line in trace:
        for name, tells in _BY_EVENT.get(line["e"], ()):
            found[name] += tells(line)
        if line["e"] == "controller_active":
            leaders.add(line.get("epoch"))
    # The first controller follows no other.
    found["controller failover"] = max(found["controller failover"], len(leaders) - 1)
    return found


def impossible(load: Scenario, faults: Collection[FaultSpec] | None = None) -> frozenset[str]:
    """Return the rare code paths that no run of this workload can take, because its clients send no request that leads
    there, or because the plan has no fault that leads there.

    faults: the faults that all runs have in common; None: each run draws its own faults and settings.
    """
    traffic, found = load.traffic(), set[str]()
    plain = not traffic.ids and not traffic.groups
    found.update(() if traffic.ids else OF_TRANSACTIONS)
    found.update(() if traffic.groups else OF_GROUPS)
    found.update(() if traffic.ids and traffic.groups else OF_BOTH)
    found.update(OF_COORDINATORS if plain else ())
    found.update(path for path, setting in OF_SETTINGS.items() if setting not in type(load).model_fields)
    if faults is None:
        found.update(() if plain else OF_ROT)  # a swarm has it in one scene, of plain loads
    else:
        # Switches that are off. Numbers are not asked: members of both protocols convert a group without `conversions`.
        found.update(path for path, setting in OF_SETTINGS.items() if getattr(load, setting, None) is False)
        hows = {fault.params.get("how") for fault in faults}
        found.update(path for how, path in BY_REQUEST.items() if how not in hows)
        actions = {fault.action for fault in faults}
        found.update(path for path, action in OF_ACTIONS.items() if action not in actions)
        damages = any(FaultTrait.DAMAGES_FILES in KINDS[fault.action].traits for fault in faults)
        found.update(() if damages else OF_ROT)
    return frozenset(found)


_BY_EVENT: dict[str, list[tuple[str, Callable[[Line], bool]]]] = {}
for _name, (_event, _tells) in TRACED.items():
    _BY_EVENT.setdefault(_event, []).append((_name, _tells))
