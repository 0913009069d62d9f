"""A run as metrics, in OpenMetrics text: what `Sight` shows, for Prometheus and whatever else reads that format.

The format is that of the OpenMetrics specification 1.0: families with type, unit and help, `_total` at counters,
`_info` at facts, cumulative buckets, state sets with one line a state, and `# EOF`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from chaos.faults.stage import Played
from chaos.runs.sight import Phase, Sight
from workloads.counters import LATENCY_BOUNDS_S, Counters, Latencies

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PHASES = (
    "start the cluster",
    "create topics",
    "warm-up",
    "load",
    "settle",
    "heal",
    "converge",
    "writes after healing",
    "reads after healing",
    "final reads",
    "stop the cluster",
    "judge",
    "report",
)
"""The states of `squall_phase`, in their order. With or without faults, the load is `load`."""
VERDICTS = ("valid", "invalid", "unknown")
WAITING, UNDER_WAY, LANDED, NOT_LANDED = "waiting", "under way", "landed", "not landed"

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""Suffix of the name, labels, value."""


def exposition(sight: Sight, now: float) -> str:
    """All metrics of a run. `now`: `time.monotonic()`."""
    return "".join(f"{line}\n" for family in _families(sight, now) for line in family) + "# EOF\n"


def state_of(phase: Phase | None) -> str:
    """The state of `squall_phase`; empty where nothing goes on."""
    return "" if phase is None else phase.stage.removesuffix(" with faults")


def _families(sight: Sight, now: float) -> Iterator[Iterator[str]]:
    phase = sight.phase
    yield _family("squall_run", "info", "Which run this is.", [("_info", sight.about, 1)])
    yield _states("squall_phase", "What goes on now.", PHASES, state_of(phase))
    elapsed: list[Sample] = [] if phase is None else [("", {}, phase.took_s(now))]
    yield _family("squall_phase_elapsed_seconds", "gauge", "How long this phase has lasted.", elapsed)
    left_s = None if phase is None else phase.left_s(now)
    left: list[Sample] = [] if left_s is None else [("", {}, left_s)]
    yield _family("squall_phase_remaining_seconds", "gauge", "What is left of this phase, if that is planned.", left)
    yield from _load(sight.load or Counters())
    read = sight.final.read if sight.final else 0
    yield _family("squall_final_read_records", "counter", "Records that final readers got.", [("_total", {}, read)])
    yield from _faults(sight)
    yield from _cluster(sight)
    yield _states("squall_verdict", "What the run was judged to be; before that, none.", VERDICTS, sight.verdict)


def _load(load: Counters) -> Iterator[Iterator[str]]:
    outcomes = {"ok": load.acked, "fail": load.failed, "info": load.info}
    yield _family("squall_sends", "counter", "Records that were handed to a producer.", [("_total", {}, load.sent)])
    yield _family(
        "squall_send_outcomes",
        "counter",
        "Sends that have ended: ok (acknowledged), fail (not appended), info (nobody knows).",
        [("_total", {"outcome": outcome}, count) for outcome, count in outcomes.items()],
    )
    yield _family(
        "squall_sends_outstanding", "gauge", "Sends that have not ended.", [("", {}, max(0, load.outstanding))]
    )
    yield _family("squall_records_read", "counter", "Records that readers got under load.", [("_total", {}, load.read)])
    yield _family(
        "squall_send_latency_seconds",
        "histogram",
        "From hand-over to acknowledgement, of sends that were acknowledged.",
        _histogram(load.latencies),
    )


def _histogram(latencies: Latencies) -> Iterator[Sample]:
    sum_s, counts = latencies.sum_s, list(latencies.counts)
    bounds = [*(repr(bound) for bound in LATENCY_BOUNDS_S), "+Inf"]
    for bound, count in zip(bounds, accumulate(counts), strict=True):
        yield "_bucket", {"le": bound}, count
    yield "_count", {}, sum(counts)
    yield "_sum", {}, sum_s


def _faults(sight: Sight) -> Iterator[Iterator[str]]:
    states = Counter(map(_state, sight.faults))
    yield _family(
        "squall_faults",
        "gauge",
        "Planned faults by what has become of them.",
        [("", {"state": state}, states[state]) for state in (WAITING, UNDER_WAY, LANDED, NOT_LANDED)],
    )
    on = Counter(played.fault.action for played in sight.under_way())
    kinds = sorted({played.fault.action for played in sight.faults})
    yield _family(
        "squall_faults_under_way",
        "gauge",
        "Faults that have begun and not ended, by kind.",
        [("", {"kind": kind}, on[kind]) for kind in kinds],
    )
    coming = sight.coming()
    soon: list[Sample] = [("", {}, max(0.0, coming[0].in_s))] if coming else []
    yield _family("squall_next_fault_seconds", "gauge", "Until the next fault is due.", soon)


def _state(played: Played) -> str:
    if played.ended is not None:
        return LANDED if played.landed else NOT_LANDED
    return WAITING if played.began is None else UNDER_WAY


def _cluster(sight: Sight) -> Iterator[Iterator[str]]:
    nodes, view = sight.nodes, sight.view
    yield _family(
        "squall_broker_up",
        "gauge",
        "1 where the broker runs, 0 where it is down or paused.",
        [("", {"broker": str(node)}, state == "running") for node, state in sorted(nodes.items())],
    )
    places = [] if view is None else sorted(view.isr)
    for name, about, of in (
        ("squall_partition_isr", "In-sync replicas, as a broker says.", view.isr if view else {}),
        ("squall_partition_replicas", "Replicas that a partition should have.", view.replicas if view else {}),
    ):
        yield _family(name, "gauge", about, [("", _place(place), len(of[place])) for place in places])
    leaders = view.leaders if view else {}
    yield _family(
        "squall_partition_leader",
        "gauge",
        "The broker that leads a partition; -1 for none.",
        [("", _place(place), leaders[place]) for place in places],
    )


def _place(place: str) -> Labels:
    topic, _, index = place.rpartition("-")
    return {"topic": topic, "partition": index}


def _states(name: str, about: str, states: Iterable[str], now: str | None) -> Iterator[str]:
    """A state set: each state is 0 but that of `now`."""
    return _family(name, "stateset", about, [("", {name: state}, state == now) for state in states])


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if name.endswith("_seconds"):
        yield f"# UNIT {name} seconds"
    yield f"# HELP {name} {_escaped(about)}"
    for suffix, labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{suffix}{f'{{{inside}}}' if inside else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 6))
