"""Checks the figures of a failover: the steps as they were seen, and each client's longest silence."""

from __future__ import annotations

import pytest

from bench.failover import steps
from bench.observer import FailoverObserver

KILLED = 100.0
PATIENT = [100.01, 109.4, 109.41]
"""Acknowledgement times: one was under way at the kill, and after it comes a long silence."""


def seen(acknowledged: list[float], **at: float) -> FailoverObserver:
    observer = FailoverObserver([("h", 1)], [("h", 1)], "t", 1)
    observer.steps, observer.acknowledged = at, acknowledged
    return observer


def test_the_clients_part_is_apart_from_the_clusters() -> None:
    observer = seen([99.9, 109.1], fenced=109.0, leader=109.0, controller=102.0)
    found = steps(KILLED, observer, PATIENT, 2, controller=True)
    assert {name: round(value, 3) for name, value in found.items()} == {
        "s to another controller": 2.0,
        "s until it is fenced": 9.0,
        "s to another leader": 9.0,
        "s to next ack": 9.4,
        "s from leader to ack": 0.4,
        "our client, s to next ack": 9.1,
        "our client, s from leader to ack": 0.1,
        "records failed": 2,
    }


def test_a_step_that_nobody_saw_has_no_figure() -> None:
    found = steps(KILLED, seen([109.1], fenced=109.0, controller=100.1), PATIENT, 0, controller=False)
    assert set(found) == {"s until it is fenced", "s to next ack", "our client, s to next ack", "records failed"}


@pytest.mark.parametrize(("rdkafka", "ours"), [([99.0], [109.0]), ([109.0], [99.0])])
def test_a_client_that_was_acknowledged_nothing_more_is_no_figure(rdkafka: list[float], ours: list[float]) -> None:
    with pytest.raises(RuntimeError, match="nothing was acknowledged"):
        steps(KILLED, seen(ours), rdkafka, 0, controller=False)
