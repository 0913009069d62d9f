"""Turns the brokers' traces and the nemesis's log into time spans: the states of brokers and partitions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from squall.broker.coordinators.partitions import partition_of as coordinating
from squall.checkers.fault_traits import CUTS_LINKS, PAUSES, SLOWS_LINKS, TAKES_DOWN
from squall.reports.run_files import Json, RunFiles, integer, mapping, number, objects, traits_of

COORDINATORS_LOG = "__transaction_state"
UNAVAILABLE_S = 1.0
"""A partition is drawn as unavailable if writes waited for this number of seconds and none was acknowledged."""


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """Describes the span [begin, end] of a lane in seconds on the page's time axis; `kind` names the state."""

    begin: float
    end: float
    kind: str


@dataclass
class BrokerLane:
    """Describes one broker's lane. The kinds of `states` are up, starting, stopping, down or unknown, without gaps; the
    other spans are drawn over them.
    """

    node: int
    states: list[LaneSpan] = field(default_factory=list)
    over: list[LaneSpan] = field(default_factory=list)
    """Lists the times in which a fault paused the broker ("paused"), cut its links ("cut") or slowed them ("slow")."""
    controller: list[LaneSpan] = field(default_factory=list)
    crashes: list[float] = field(default_factory=list)
    """Lists the times at which the broker ended without a request to end."""


@dataclass
class PartitionLane:
    """Describes one partition's lane. In `leaders` the kind is the leader's id, "-1" for none; `isr` lists (second, ISR
    size), each valid until the next.
    """

    name: str
    leaders: list[LaneSpan] = field(default_factory=list)
    isr: list[tuple[float, int]] = field(default_factory=list)
    gaps: list[LaneSpan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LeaderEpochStart:
    """Describes the begin of one leader epoch of a partition, as the new leader and the controller report it."""

    epoch: int
    leader: int
    t: float
    isr: tuple[int, ...]
    leo: int | None
    """Gives the log end offset of the new leader when it took over; None if only the controller reports the epoch."""
    unclean: bool


def event_s(files: RunFiles, event: Json) -> float:
    """Return when a trace event happened, in seconds on the page's time axis."""
    return files.seconds(event["t"] * 1e9) or 0.0


def broker_lanes(files: RunFiles, begin: float, end: float) -> list[BrokerLane]:
    """Return a lane for every broker, with its states cut to [begin, end]."""
    lanes = []
    for node in files.nodes:
        lane = BrokerLane(node)
        lane.crashes = [t for each in objects(files.run.get("node_exits"))
                        if each.get("node") == node and (t := files.seconds(each.get("t"))) is not None]  # fmt: skip
        changes = [*_state_changes(files, node), *((t, "down") for t in lane.crashes)]
        # A broker with a trace is down before the first line. Without a trace, nothing is known of it.
        first = "down" if files.traces.get(node) and not files.from_polls else "unknown"
        lane.states = _fold([(float("-inf"), first), *changes], begin, end)
        lane.over = [span for fault in files.faults for span in _fault_spans(files, fault, node, end)]
        lane.controller = _controller_spans(files, node, lane, end)
        lanes.append(lane)
    return lanes


_STATE = {"node_started": "starting", "node_ready": "up", "node_stopping": "stopping", "node_stopped": "down"}


def _state_changes(files: RunFiles, node: int) -> Iterable[tuple[float, str]]:
    for event in files.traces.get(node, []):
        if event["e"] in _STATE:
            yield event_s(files, event), _STATE[event["e"]]
    for fault in files.faults:
        if TAKES_DOWN in traits_of(fault):
            for target, act in _acts(fault, "down"):
                at = files.seconds(act.get("asked_ns"))
                if target == node and at is not None and act.get("gone"):
                    yield at, "down"


def _acts(fault: Json, key: str) -> Iterable[tuple[int, Json]]:
    """Yield (node, what was observed there) for one action of the fault, in the order in which the nemesis hit the
    nodes. `key` names the action in the fault's evidence: down, paused, resumed.
    """
    seen = mapping(fault.get("evidence") or fault.get("seen"))
    nodes = mapping(fault.get("target")).get("resolved")
    return zip(nodes if isinstance(nodes, list) else [], objects(seen.get(key)), strict=False)


def _fold(changes: list[tuple[float, str]], begin: float, end: float) -> list[LaneSpan]:
    """Turn state changes into spans; of two changes at the same time the later in the list wins."""
    ordered = sorted(changes, key=lambda change: change[0])
    spans = []
    for index, (t, kind) in enumerate(ordered):
        until = ordered[index + 1][0] if index + 1 < len(ordered) else end
        if max(t, begin) < min(until, end):
            spans.append(LaneSpan(max(t, begin), min(until, end), kind))
    return spans


def _fault_spans(files: RunFiles, fault: Json, node: int, end: float) -> Iterable[LaneSpan]:
    began = files.seconds(fault.get("began"))
    if began is None:
        return
    ended = files.seconds(fault.get("ended"))
    until = end if ended is None else ended
    resolved = mapping(fault.get("target")).get("resolved")
    hit = isinstance(resolved, list) and node in resolved
    traits = traits_of(fault)
    if PAUSES in traits and hit:
        held = [act for target, act in _acts(fault, "paused") if target == node]
        freed = [act for target, act in _acts(fault, "resumed") if target == node]
        start = files.seconds(held[0].get("paused_ns")) if held else None
        stop = files.seconds(freed[0].get("resumed_ns")) if freed else None
        yield LaneSpan(began if start is None else start, until if stop is None else stop, "paused")
    # A cut in halves or in a ring may isolate a broker that is no target of it.
    elif CUTS_LINKS in traits and (hit or _is_alone(fault, node, files.nodes)):
        yield LaneSpan(began, until, "cut")
    elif SLOWS_LINKS in traits and hit:
        yield LaneSpan(began, until, "slow")


def _is_alone(fault: Json, node: int, nodes: list[int]) -> bool:
    """Return whether a fault cut the links between a node and all its peers."""
    links = mapping(fault.get("evidence") or fault.get("seen")).get("links")
    peers = set()
    for link in links if isinstance(links, list) else []:
        source, _, target = str(link).partition("->")
        if str(node) in (source, target):
            peers.add(target if source == str(node) else source)
    return len(nodes) > 1 and peers >= {str(each) for each in nodes if each != node}


def _controller_spans(files: RunFiles, node: int, lane: BrokerLane, end: float) -> list[LaneSpan]:
    spans: list[LaneSpan] = []
    since: float | None = None
    # A broker that was killed did not trace that it is no controller any more.
    downs = [span.begin for span in lane.states if span.kind in ("down", "starting")]
    trace = files.traces.get(node, [])
    marks = [(event_s(files, e), str(e["e"])) for e in trace if str(e["e"]).startswith("controller_")]
    for t, mark in sorted([*marks, *((down, "down") for down in downs)]):
        if mark == "controller_active":
            since = t
        elif since is not None:
            spans.append(LaneSpan(since, t, "controller"))
            since = None
    if since is not None:
        spans.append(LaneSpan(since, end, "controller"))
    return spans


def leader_epochs(files: RunFiles) -> dict[str, list[LeaderEpochStart]]:
    """Map each partition to the starts of its leader epochs, in order of the epochs."""
    found: dict[str, dict[int, LeaderEpochStart]] = {}
    events = [(event_s(files, e), node, e) for node, trace in files.traces.items() for e in trace]
    for t, node, event in sorted(events, key=lambda each: each[:2]):
        if event["e"] not in ("became_leader", "leader_elected", "polled") or not isinstance(event.get("epoch"), int):
            continue
        known = found.setdefault(partition_of(event), {})
        before = known.get(event["epoch"])
        took_over = event["e"] == "became_leader"
        isr = event.get("isr")
        # The first report counts. Later ones add what only the leader knows (the log end), or the controller (unclean).
        known[event["epoch"]] = LeaderEpochStart(
            epoch=event["epoch"],
            leader=before.leader if before else node if took_over else integer(event.get("leader")),
            t=before.t if before else t,
            isr=before.isr if before else tuple(isr if isinstance(isr, list) else ()),
            leo=integer(event.get("leo")) if took_over else before.leo if before else None,
            unclean=bool(event.get("unclean")) or (before is not None and before.unclean),
        )
    return {name: [known[epoch] for epoch in sorted(known)] for name, known in sorted(found.items())}


def partition_of(event: Json) -> str:
    """Return the name of a trace event's partition, such as "orders-3"."""
    return f"{event.get('topic')}-{event.get('partition')}"


def partition_lanes(
    files: RunFiles, begin: float, end: float, gaps: Mapping[str, list[LaneSpan]]
) -> list[PartitionLane]:
    """Return a lane for every partition that the traces or the history name, with its leaders cut to [begin, end]. Idle
    partitions of the coordinators' logs are left out.
    """
    by_name = leader_epochs(files)
    isr = _isr_steps(files)
    lanes = []
    names = {*by_name, *files.part_names.values()}
    for name in sorted(names - _idle_coordinators(files, names), key=_natural):
        lane = PartitionLane(name, gaps=gaps.get(name, []))
        lane.leaders = _fold([(term.t, str(term.leader)) for term in by_name.get(name, [])], begin, end)
        lane.isr = isr.get(name, [])
        lanes.append(lane)
    return lanes


def _idle_coordinators(files: RunFiles, names: Collection[str]) -> set[str]:
    """Return the partitions of the transaction coordinators' log to which no transactional id of the traces belongs."""
    logs = {name for name in names if _natural(name)[0] == COORDINATORS_LOG}
    states = (event for trace in files.traces.values() for event in trace if event["e"] == "transaction_state")
    ids = {str(event.get("transactional_id")) for event in states}
    return logs - {f"{COORDINATORS_LOG}-{coordinating(each, len(logs))}" for each in ids if logs}


def _natural(name: str) -> tuple[str, int]:
    topic, _, index = name.rpartition("-")
    return topic, int(index) if index.isdigit() else -1


def _isr_steps(files: RunFiles) -> dict[str, list[tuple[float, int]]]:
    """Map each partition to (second, ISR size) for each committed ISR. A state with an old partition epoch is ignored:
    a node learned it late.
    """
    steps: dict[str, list[tuple[float, int]]] = {}
    newest: dict[str, int] = {}
    kinds = ("became_leader", "isr_changed", "leader_elected", "polled")
    events = [(event_s(files, e), e) for trace in files.traces.values() for e in trace if e["e"] in kinds]
    for t, event in sorted(events, key=lambda each: each[0]):
        name, epoch, isr = partition_of(event), integer(event.get("partition_epoch")), event.get("isr")
        # Partition epochs only rise: a lower one is old news that a broker learned late.
        if epoch > newest.get(name, -1) and isinstance(isr, list):
            newest[name] = epoch
            steps.setdefault(name, []).append((t, len(isr)))
    return steps


def gaps_of_metrics(files: RunFiles) -> dict[str, list[LaneSpan]]:
    """Map each partition to its longest time in which writes waited and none was acknowledged. A partition whose
    longest time is below UNAVAILABLE_S is left out.
    """
    found = {}
    for name, gap in mapping(mapping(files.metrics.get("unavailable")).get("partitions")).items():
        length, begin = number(mapping(gap).get("s")), number(mapping(gap).get("from_s"))
        if length is not None and begin is not None and length >= UNAVAILABLE_S:
            found[name] = [LaneSpan(begin, begin + length, "gap")]
    return found
