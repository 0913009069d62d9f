"""The steps of a launch are read from the brokers' traces."""

from __future__ import annotations

import pytest

from bench.launch import STEPS, steps

LINES = [
    {"t": 100.5, "e": "node_started"},
    {"t": 100.7, "e": "controller_active"},
    {"t": 100.8, "e": "registered"},
    {"t": 100.9, "e": "node_ready"},
    {"t": 100.6, "e": "node_started"},
    {"t": 100.95, "e": "registered"},
    {"t": 101.0, "e": "node_ready"},
    {"t": 101.1, "e": "topic_created"},
    {"t": 101.2, "e": "topic_created"},
]


def test_each_step_is_that_of_the_first_broker_or_of_the_last() -> None:
    found = steps(LINES, 100.0)
    assert [round(found[title], 2) for title in STEPS] == [0.5, 0.6, 0.7, 0.95, 1.0, 1.1]


def test_a_step_that_no_trace_tells_is_no_figure() -> None:
    with pytest.raises(KeyError, match="topic_created"):
        steps(LINES[:-2], 100.0)
