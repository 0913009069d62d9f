"""Appends and fetches happen for every request: they allocate nothing while nothing moves."""

from __future__ import annotations

import tracemalloc

from broker.replication import NO_EFFECTS
from chaos.garbage import garbage_waits
from tests.support.partitions import fetched, leader


def test_events_that_move_nothing_return_the_one_empty_tuple() -> None:
    partition = leader()
    assert partition.appended(5, 0) is NO_EFFECTS
    assert fetched(partition, 2, 5) is NO_EFFECTS
    assert fetched(partition, 2, 5) is NO_EFFECTS
    assert partition.tick(0) == NO_EFFECTS


def test_events_that_move_nothing_keep_no_memory() -> None:
    partition = leader(log_end=1 << 40)
    fetched(partition, 2, 1 << 40)
    offset, now_ms = 1 << 40, 1 << 30

    def events() -> None:
        for _ in range(1000):
            partition.appended(offset, now_ms)
            partition.follower_fetched(2, offset, 102, now_ms)

    events()
    with garbage_waits():  # Finalisers of what other tests have left are not of these events.
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            events()
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 200
    assert peak - before < 2000
