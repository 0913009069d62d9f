"""A seed determines a run to the last byte, also in another OS process with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate

PROGRAM = Path(__file__).with_name("trace_of_a_seed.py")
ROOT = PROGRAM.parents[3]
CONTEXT = 5


@cache
def traced(seed: int, hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PROGRAM), str(seed)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def difference(first: list[str], second: list[str]) -> str:
    """Return the first line at which two traces differ, with the lines before it; "" if they are equal."""
    for at, (one, other) in enumerate(zip(first[1:], second[1:], strict=False), 1):
        if one != other:
            before = "\n  ".join(first[max(1, at - CONTEXT) : at])
            return f"line {at} differs, after\n  {before}\none:   {one}\nother: {other}"
    if len(first) != len(second):
        return f"one trace has {len(first)} lines, the other {len(second)}"
    return "" if first[0] == second[0] else "every line is the same, but not the bytes that were delivered"


SEEDS = [pytest.param(14, marks=pytest.mark.gate), 3, 8]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trace_says_what_happened(seed: int) -> None:
    assert len(traced(seed, "1")) > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_under_two_hash_seeds_in_two_processes_gives_one_trace(seed: int) -> None:
    first, second = traced(seed, "1"), traced(seed, "4242")
    assert not difference(first, second), difference(first, second)


@pytest.mark.gate
def test_another_seed_is_another_run() -> None:
    assert simulate(swarm_plan(14)).digest != simulate(swarm_plan(15)).digest


@pytest.mark.gate
def test_a_divergence_is_told_by_its_first_line_with_what_stood_before_it() -> None:
    told = difference(["d1", "a", "b", "c"], ["d2", "a", "b", "x"])
    assert told == "line 3 differs, after\n  a\n  b\none:   c\nother: x"
    assert difference(["d1", "a"], ["d2", "a"]).startswith("every line")
    assert difference(["d", "a"], ["d", "a"]) == ""
