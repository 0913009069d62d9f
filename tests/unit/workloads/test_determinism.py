"""The clients can be simulated: one seed, one run, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def digests(seeds: list[str], hash_seed: int, path: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.support.clusters.appends_digest", str(path), *seeds]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.gate
def test_one_seed_gives_one_history_and_one_exchange_of_requests_in_any_process(tmp_path: Path) -> None:
    first, other = digests(["1", "2"], 1, tmp_path / "1")
    assert "requests" in first
    assert other != first
    assert digests(["1"], 2, tmp_path / "2") == [first]
