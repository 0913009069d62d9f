"""A simulation uses no real file, socket or clock: Python's audit events prove it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AUDITED = """
import sys
import squall.chaos.runs.simulation, squall.chaos.mutants
from squall.chaos.plans.plan import with_schedule
from squall.chaos.runtimes.sim.preload import preload_modules
from squall.chaos.runs.simulation import simulate

def plan(seed):
    return with_schedule({"seed": seed, "runtime": "sim", "time_s": 6, "workload": {"rate": 20}}, None)

preload_modules()
touched = []
FORBIDDEN = ("open", "socket.", "os.", "subprocess.", "shutil.", "_thread.", "tempfile.")
ALLOWED = ("socket.__new__",)  # trio wakes itself up over a pair of sockets, made when it starts

def audit(event, args):
    if event.startswith(FORBIDDEN) and event not in ALLOWED:
        touched.append((event, repr(args)[:200]))

sys.addaudithook(audit)
import time
def real(*_): raise AssertionError("a simulation asked a real clock, or slept")
time.monotonic_ns = time.time_ns = time.sleep = time.monotonic = time.time = real
result = simulate(plan(2))
touched = list(touched)
assert result.trouble is None, result.trouble
print(touched)
"""


@pytest.mark.gate
def test_no_real_file_socket_thread_or_clock_is_touched_by_a_simulation() -> None:
    done = subprocess.run([sys.executable, "-c", AUDITED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
