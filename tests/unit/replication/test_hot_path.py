"""Appends and fetches happen for every request: they allocate nothing while nothing moves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from squall.broker.replication import NO_EFFECTS
from tests.support.replication.partitions import fetched, leader

ROOT = Path(__file__).parents[3]
MEASURED = """
import gc, tracemalloc
from tests.support.replication.partitions import fetched, leader

partition = leader(log_end=1 << 40)
fetched(partition, 2, 1 << 40)
offset, now_ms = 1 << 40, 1 << 30

def events():
    for _ in range(1000):
        partition.appended(offset, now_ms)
        partition.follower_fetched(2, offset, 102, now_ms)

events()
gc.disable()
tracemalloc.start()
before, _ = tracemalloc.get_traced_memory()
tracemalloc.reset_peak()
events()
after, peak = tracemalloc.get_traced_memory()
print(after - before, peak - before)
"""
"""In a process of its own: in one that runs many tests, threads and finalisers that others left allocate as well."""


def test_events_that_move_nothing_return_the_one_empty_tuple() -> None:
    partition = leader()
    assert partition.appended(5, 0) is NO_EFFECTS
    assert fetched(partition, 2, 5) is NO_EFFECTS
    assert fetched(partition, 2, 5) is NO_EFFECTS
    assert partition.tick(0) == NO_EFFECTS


def test_events_that_move_nothing_keep_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, peak = map(int, done.stdout.split())
    assert kept < 200
    assert peak < 2000
