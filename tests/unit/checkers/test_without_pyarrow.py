"""A run is judged from its lines where neither pyarrow nor Spark can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from checkers.in_memory import judge_bytes
from checkers.verdict import INVALID, to_json
from tests.support.histories.two_owners import two_owners

ROOT = Path(__file__).parents[3]
PLAN = "workload = {acks = -1, min_isr = 2, replication_factor = 3}"
SCRIPT = """
import json, sys, tomllib
sys.modules.update(pyarrow=None, pyspark=None, numpy=None)  # importing them fails
from pathlib import Path
from checkers.in_memory import judge_bytes
from checkers.verdict import judge, to_json
run = Path(sys.argv[1])
plan = tomllib.loads((run / "plan.toml").read_text())
judged = judge_bytes(run.name, (run / "history.jsonl").read_bytes(), b"", plan)
judge(run, judged.findings, judged.verdict.metrics, history=judged.history)
print(json.dumps(to_json(judged.verdict)))
"""


def test_a_run_is_judged(tmp_path: Path) -> None:
    """In memory, and as a run directory."""
    lines = b"".join(two_owners().lines())
    (tmp_path / "history.jsonl").write_bytes(lines)
    (tmp_path / "plan.toml").write_text(PLAN)
    done = subprocess.run((sys.executable, "-c", SCRIPT, str(tmp_path)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    without, stored = json.loads(done.stdout), json.loads((tmp_path / "verdict.json").read_text())
    judged = judge_bytes(tmp_path.name, lines, b"", tomllib.loads(PLAN))
    assert without == json.loads(json.dumps(to_json(judged.verdict)))
    for verdict in (without, stored):
        assert verdict["verdict"] == INVALID
        assert "dual-ownership" in {each["name"] for each in verdict["anomalies"]}
