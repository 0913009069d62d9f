"""What transactions need of the brokers: a log of the coordinators that finds enough brokers, and time-outs in time."""

from __future__ import annotations

from collections.abc import Mapping

FACTOR = "transaction.state.log.replication.factor"
MIN_ISR = "transaction.state.log.min.isr"
"""Both of the coordinators' log, `__transaction_state`."""
DEFAULT_FACTOR, DEFAULT_MIN_ISR = 3, 2
"""Kafka's, and ours."""
ABORT_EVERY = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
"""So often a coordinator looks for transactions whose time-out is over; 10 s by default."""


def suited(nodes: int) -> dict[str, str]:
    """Settings for a cluster of this size. What outlives its time-out is aborted a second later at most."""
    return {**_small(nodes), ABORT_EVERY: "1000"}


def impossible(nodes: int, settings: Mapping[str, str]) -> str:
    """Why no producer would get its id in this cluster, and what to set; empty where each gets one."""
    factor = settings.get(FACTOR, str(DEFAULT_FACTOR))
    if not factor.isdigit() or int(factor) <= nodes:
        return ""  # what is no number is the broker's to refuse
    cluster = "1 broker" if nodes == 1 else f"{nodes} brokers"
    wanted = {FACTOR: str(nodes), **_small(nodes)}
    change = " and ".join(f"{name}={value}" for name, value in wanted.items())
    return f"{FACTOR} is {factor}, and the cluster has {cluster}, so no producer would get its id: set {change}"


def _small(nodes: int) -> dict[str, str]:
    """By default the log needs three brokers, and two of them in sync."""
    return {FACTOR: str(nodes), MIN_ISR: "1"} if nodes < DEFAULT_FACTOR else {}
