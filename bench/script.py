"""Lists the measurements of one round on a cluster, which are the same for every cluster except for a JVM's warm-up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial

from bench.client import LINGER_MS, first_ack, latency, throughput
from bench.clusters import MeasuredCluster
from bench.failover import KINDS, failover
from bench.groups import commits, reading, rebalance
from bench.rates import OperationRate
from bench.sheet import MeasurementStep, say
from bench.transactions import transactions
from squall.chaos.errors import PreconditionError

WARM_UP = ((1024, True), (1024, False), (100, True), (100, False))
"""Lists record size and idempotence of the loads that warm a JVM up, a quarter of the time each."""
ASKED_FIRST = ((100, True, False), (1024, True, False))
FURTHER = ((100, True, True), (1024, False, False), (100, False, False))
"""Lists the loads that come late in a round, as (record size in bytes, idempotence, whether librdkafka is called
directly). `ASKED_FIRST` lists, in the same form, the loads right after the warm-up. The order matters, because every
load warms the cluster up further.
"""
RATES = ((1000, 5), (1000, 0), (5000, 5))
"""Lists the loads for latencies, as (records per second, linger.ms of the producer)."""
TRANSACTING = (1, 4, 16)
"""Lists the numbers of concurrent producers with which transactions are measured."""
MEMBERS = (10, 100)
"""Lists the sizes of the groups whose rebalances are measured."""
COMMITTERS = (1, 8)
READERS = 3
REST_S = 3.0
NEEDED = "launch"

Figures = Mapping[str, float]


def script(cluster: MeasuredCluster, arguments: argparse.Namespace, *, failovers: bool) -> list[MeasurementStep]:
    """Return the steps of one round on a cluster that was launched just now: those that are marked `needed`, and those
    whose names contain `arguments.only`. `failovers`: whether failovers are measured, too. Raises PreconditionError if
    `arguments.only` selects nothing.
    """
    steps = [
        MeasurementStep(NEEDED, partial(_launch, cluster), needed=True),
        MeasurementStep("memory at rest", partial(_at_rest, cluster)),
    ]
    if cluster.name == "kafka" and arguments.warmup:
        steps.append(MeasurementStep("warm-up", partial(_warm_up, cluster, arguments.warmup), needed=True))
    steps += [_load(cluster, arguments, *load) for load in ASKED_FIRST]
    steps += [_rate(cluster, arguments, *rate) for rate in RATES]
    steps += [_load(cluster, arguments, *load) for load in FURTHER]
    steps += [
        _turns(cluster, arguments.seconds, f"transactions, {producers} producer", transactions, producers)
        for producers in TRANSACTING
    ]
    steps += [_rebalance(cluster, members, protocol) for members in MEMBERS for protocol in ("classic", "consumer")]
    steps += [
        _turns(cluster, arguments.seconds, f"groups, commits, {committers} committer", commits, committers)
        for committers in COMMITTERS
    ]
    steps.append(_reading(cluster))
    steps.append(_load(cluster, arguments, 100, True, False, ", at the end"))
    steps.append(
        MeasurementStep("memory after load", lambda: {"memory after load, MB a broker": max(cluster.rss_mb())})
    )
    for controller in (False, True) if failovers else ():
        kind = KINDS[controller]
        steps.append(MeasurementStep(kind, partial(_failover, cluster, controller, kind)))
    asked = [step for step in steps if step.needed or arguments.only in step.name]
    if all(step.needed for step in asked) and arguments.only not in NEEDED:
        names = "; ".join(step.name for step in steps)
        raise PreconditionError(f"--only {arguments.only}: nothing has this in its name; there are: {names}")
    return asked


def _launch(cluster: MeasuredCluster) -> Figures:
    return {"launch to first ack, s": first_ack(cluster.bootstrap, cluster.launched_at)}


def _at_rest(cluster: MeasuredCluster) -> Figures:
    time.sleep(REST_S)
    return {"memory at rest, MB a broker": max(cluster.rss_mb())}


def _warm_up(cluster: MeasuredCluster, seconds: float) -> Figures:
    say(f"  {cluster.name:>7} warm-up of {seconds:g} s")
    for size, idempotent in WARM_UP:
        throughput(cluster, size, idempotent=idempotent, seconds=seconds / len(WARM_UP))
    transactions(cluster, TRANSACTING[-1], seconds / len(WARM_UP))
    return {}


def _load(
    cluster: MeasuredCluster, arguments: argparse.Namespace, size: int, idempotent: bool, in_c: bool, when: str = ""
) -> MeasurementStep:
    kind = f"{size} B, {'idempotent' if idempotent else 'not idempotent'}{', in C' if in_c else ''}{when}"

    def take() -> Figures:
        found = throughput(cluster, size, idempotent=idempotent, seconds=arguments.seconds, in_c=in_c)
        return {
            f"{kind}, MB/s": found.mb_s,
            f"{kind}, broker CPU s per M": found.broker_cpu_s_per_m,
            f"{kind}, client CPU s per M": found.client_cpu_s_per_m,
        }

    return MeasurementStep(kind, take)


def _rate(cluster: MeasuredCluster, arguments: argparse.Namespace, rate: int, linger_ms: int) -> MeasurementStep:
    kind = f"ack at {rate}/s" + ("" if linger_ms == LINGER_MS else f", linger {linger_ms}")

    def take() -> Figures:
        found = latency(cluster, rate, arguments.seconds + 1, linger_ms=linger_ms)
        return {
            f"{kind}, p50 ms": found.p50_ms,
            f"{kind}, p99 ms": found.p99_ms,
            f"{kind}, p99.9 ms": found.p999_ms,
            f"{kind}, broker cores": found.broker_cores,
        }

    return MeasurementStep(kind, take)


def _turns(
    cluster: MeasuredCluster,
    seconds: float,
    kind: str,
    measure: Callable[[MeasuredCluster, int, float], OperationRate],
    workers: int,
) -> MeasurementStep:
    kind = f"{kind}{'s' if workers > 1 else ''}"
    return MeasurementStep(kind, lambda: measure(cluster, workers, seconds).figures(kind))


def _rebalance(cluster: MeasuredCluster, members: int, protocol: str) -> MeasurementStep:
    kind = f"groups, {protocol}, {members} members"

    def take() -> Figures:
        found = rebalance(cluster, members, protocol)
        return {f"{kind}, all have a record, s": found.all_s, f"{kind}, one more has one, s": found.more_s}

    return MeasurementStep(kind, take)


def _reading(cluster: MeasuredCluster) -> MeasurementStep:
    kind = f"groups, {READERS} members read"

    def take() -> Figures:
        found = reading(cluster, READERS)
        return {
            f"{kind}, MB/s": found.mb_s,
            f"{kind}, broker CPU s per M": found.broker_cpu_s_per_m,
            f"{kind}, client CPU s per M": found.client_cpu_s_per_m,
        }

    return MeasurementStep(kind, take)


def _failover(cluster: MeasuredCluster, controller: bool, kind: str) -> Figures:
    return {f"{kind}, {figure}": value for figure, value in failover(cluster, controller=controller).items()}
