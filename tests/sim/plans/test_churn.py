"""A limit of lag in messages removes followers from the ISR that are only late, not behind (R12, KAFKA-1546)."""

from __future__ import annotations

from tests.sim.plans.churn import BURSTS, BY_MESSAGES, measure


def test_every_burst_throws_followers_out_where_lag_is_a_count_and_none_does_where_it_is_a_time() -> None:
    by_time, by_messages = measure(2, {}), measure(2, BY_MESSAGES)
    assert by_time.verdict == by_messages.verdict == "valid"
    assert by_time.changes == 0
    # Out and in again.
    assert by_messages.changes >= 2 * BURSTS
    assert by_messages.alone_s > 0.5
