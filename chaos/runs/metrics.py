"""Exports the status of a run (its phase, load, faults, brokers and verdict) as metrics in OpenMetrics text, for
Prometheus and other readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from squall.chaos.faults.context import FaultExecution
from squall.chaos.runs.run_status import RunPhase, RunStatus
from squall.workloads.counters import LATENCY_BOUNDS_S, LoadCounters, SendLatencies

CONTENT_TYPE = CONTENT_TYPE_LATEST
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
"""Lists the values of the metric `squall_phase` in the order of a run's phases. The load is `load`, with or without
faults.
"""
VERDICTS = ("valid", "invalid", "unknown")
WAITING, UNDER_WAY, LANDED, NOT_LANDED = "waiting", "under way", "landed", "not landed"


class RunMetrics(Collector):
    """Collects the metrics of a run. `now`: the present time by `time.monotonic()`, for the times of the current phase.
    """

    def __init__(self, status: RunStatus, now: float) -> None:
        self._status, self._now = status, now

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family, in the order of docs/metrics.md."""
        status, phase = self._status, self._status.phase
        yield InfoMetricFamily("squall_run", "Which run this is.", {**status.about})
        yield _states("squall_phase", "What goes on now.", PHASES, state_of(phase))
        elapsed = None if phase is None else phase.took_s(self._now)
        yield _seconds("squall_phase_elapsed", "How long this phase has lasted.", elapsed)
        left = None if phase is None else phase.left_s(self._now)
        yield _seconds("squall_phase_remaining", "What is left of this phase, if that is planned.", left)
        yield from _load(status.load or LoadCounters())
        read = status.final.read if status.final else 0
        yield CounterMetricFamily("squall_final_read_records", "Records that final readers got.", read)
        yield from _faults(status)
        yield from _cluster(status)
        yield _states("squall_verdict", "What the run was judged to be; before that, none.", VERDICTS, status.verdict)


def exposition(status: RunStatus, now: float) -> str:
    """Return all metrics of a run as text. now: the time by `time.monotonic()`."""
    text: bytes = generate_latest(RunMetrics(status, now))
    return text.decode()


def state_of(phase: RunPhase | None) -> str:
    """Return the value of the metric `squall_phase` for this phase; empty between phases."""
    return "" if phase is None else phase.stage.removesuffix(" with faults")


def _load(load: LoadCounters) -> Iterator[Metric]:
    yield CounterMetricFamily("squall_sends", "Records that were handed to a producer.", load.sent)
    outcomes = CounterMetricFamily(
        "squall_send_outcomes",
        "Sends that have ended: ok (acknowledged), fail (not appended), info (nobody knows).",
        labels=("outcome",),
    )
    for outcome, count in (("ok", load.acked), ("fail", load.failed), ("info", load.info)):
        outcomes.add_metric((outcome,), count)
    yield outcomes
    yield GaugeMetricFamily("squall_sends_outstanding", "Sends that have not ended.", max(0, load.outstanding))
    yield CounterMetricFamily("squall_records_read", "Records that readers got under load.", load.read)
    yield _histogram(load.latencies)


def _histogram(latencies: SendLatencies) -> Metric:
    sum_s, bounds = latencies.sum_s, [*map(str, LATENCY_BOUNDS_S), "+Inf"]
    return HistogramMetricFamily(
        "squall_send_latency",
        "From hand-over to acknowledgement, of sends that were acknowledged.",
        # A bucket of OpenMetrics counts everything below its bound.
        list(zip(bounds, accumulate(list(latencies.counts)), strict=True)),
        sum_s,
        unit="seconds",
    )


def _faults(status: RunStatus) -> Iterator[Metric]:
    states = Counter(map(_state, status.faults))
    by_state = {(state,): states[state] for state in (WAITING, UNDER_WAY, LANDED, NOT_LANDED)}
    yield _gauge("squall_faults", "Planned faults by what has become of them.", ("state",), by_state)
    on = Counter(played.fault.action for played in status.under_way())
    by_kind = {(kind,): on[kind] for kind in sorted({played.fault.action for played in status.faults})}
    yield _gauge("squall_faults_under_way", "Faults that have begun and not ended, by kind.", ("kind",), by_kind)
    coming = status.coming()
    yield _seconds("squall_next_fault", "Until the next fault is due.", max(0.0, coming[0].in_s) if coming else None)


def _state(played: FaultExecution) -> str:
    if played.ended is not None:
        return LANDED if played.landed else NOT_LANDED
    return WAITING if played.began is None else UNDER_WAY


def _cluster(status: RunStatus) -> Iterator[Metric]:
    nodes, view = status.nodes, status.view
    up = {(str(node),): state == "running" for node, state in sorted(nodes.items())}
    yield _gauge("squall_broker_up", "1 where the broker runs, 0 where it is down or paused.", ("broker",), up)
    places = [] if view is None else sorted(view.isr)
    isr, replicas, leaders = (view.isr, view.replicas, view.leaders) if view else ({}, {}, {})
    for name, about, values in (
        ("squall_partition_isr", "In-sync replicas, as a broker says.", {p: len(isr[p]) for p in places}),
        ("squall_partition_replicas", "Replicas that a partition should have.", {p: len(replicas[p]) for p in places}),
        ("squall_partition_leader", "The broker that leads a partition; -1 for none.", {p: leaders[p] for p in places}),
    ):
        by_place = {_place(place): value for place, value in values.items()}
        yield _gauge(name, about, ("topic", "partition"), by_place)


def _place(place: str) -> tuple[str, str]:
    topic, _, index = place.rpartition("-")
    return topic, index


def _states(name: str, about: str, states: Iterable[str], now: str | None) -> Metric:
    """Return a state set in which the state `now` is 1 and all others are 0."""
    return StateSetMetricFamily(name, about, {state: state == now for state in states})


def _seconds(name: str, about: str, value: float | None) -> Metric:
    """Return a gauge without labels, and with `_seconds` added to its name. If the value is None, the gauge has no
    sample.
    """
    return GaugeMetricFamily(name, about, value, unit="seconds")


def _gauge(name: str, about: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """Return a gauge with labels. values: a tuple of the labels' values -> the gauge's value."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family
