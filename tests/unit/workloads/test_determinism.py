"""The clients can be simulated: one seed, one run, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def digest(seed: int, hash_seed: int, path: Path) -> str:
    command = [sys.executable, "-m", "tests.support.clusters.appends_digest", str(seed), str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_seed_gives_one_history_and_one_exchange_of_requests_in_any_process(tmp_path: Path) -> None:
    first = digest(1, 1, tmp_path / "1")
    assert "requests" in first
    assert digest(1, 2, tmp_path / "2") == first
    assert digest(2, 1, tmp_path / "3") != first
