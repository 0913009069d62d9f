"""A run is judged from its lines where neither pyarrow nor Spark can be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

from squall.checkers.history.conversion import FOLDER, convert
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import INVALID, to_json
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.two_owners import two_owners

ROOT = Path(__file__).parents[3]
PLAN = "workload = {acks = -1, min_isr = 2, replication_factor = 3}"
WITHOUT = """
import json, sys, tomllib
sys.modules.update(pyarrow=None, pyspark=None, numpy=None, matplotlib=None)  # importing them fails
"""
IN_MEMORY = """
from pathlib import Path
from squall.checkers.in_memory import judge_bytes
from squall.checkers.verdict import to_json
run = Path(sys.argv[1])
plan = tomllib.loads((run / "plan.toml").read_text())
print(json.dumps(to_json(judge_bytes(run.name, (run / "history.jsonl").read_bytes(), b"", plan).verdict)))
"""
BY_COMMAND = """
from squall.chaos import cli
sys.exit(cli.run(["verify", sys.argv[1], "--engine", "reference"]))
"""
OTHERS = """
from squall.chaos import cli
sys.modules.update(duckdb=None, toxiproxy=None)
run, zipped = sys.argv[1], sys.argv[1] + "/sent.zip"
codes = [cli.run(words) for words in (
    ["verify", run], ["explain", run, "unseen"], ["runs", "--runs", run + "/.."], ["export", run, "--out", zipped],
    ["report", run], ["query", run], ["report", "--nightly", run], ["run"],
)]
print(codes)
"""


def without(script: str, run: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script that can import none of them, and finds no Java."""
    command, nowhere = (sys.executable, "-c", WITHOUT + script, str(run)), {"PATH": "", "HOME": str(run)}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=nowhere)


def test_a_run_is_judged(tmp_path: Path) -> None:
    """In memory, and as a run directory by `squall verify`."""
    lines = b"".join(two_owners().lines())
    (tmp_path / "history.jsonl").write_bytes(lines)
    (tmp_path / "plan.toml").write_text(PLAN)
    done = without(IN_MEMORY, tmp_path)
    assert done.returncode == 0, done.stderr
    judged = judge_bytes(tmp_path.name, lines, b"", tomllib.loads(PLAN))
    in_memory = json.loads(done.stdout)
    assert in_memory == json.loads(json.dumps(to_json(judged.verdict)))
    done = without(BY_COMMAND, tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "The reference engine searched the history." in done.stdout
    assert "pip install 'squall[figures]'" in done.stdout, "which draws the page"
    stored = json.loads((tmp_path / "verdict.json").read_text())
    for verdict in (in_memory, stored):
        assert (verdict["verdict"], verdict["engine"]) == (INVALID, "reference")
        assert "dual-ownership" in {each["name"] for each in verdict["anomalies"]}


def test_commands_that_draw_nothing_take_a_run_that_has_tables(tmp_path: Path) -> None:
    """As Spark leaves a run. The commands that cannot work name the extra that each lacks."""
    run = tmp_path / "run"
    run.mkdir()
    lossy = HistoryBuilder()
    values = [lossy.sent(lossy.producer(), offset) for offset in range(2)]
    lossy.final([(0, values[0])], end=1)
    (run / "history.jsonl").write_bytes(b"".join(lossy.lines()))
    (run / "plan.toml").write_text(PLAN)
    assert without(BY_COMMAND, run).returncode == 1
    convert(run)
    assert (run / FOLDER / "records.parquet").exists()
    done = without(OTHERS, run)
    assert done.stdout.splitlines()[-1:] == ["[3, 0, 0, 0, 3, 3, 3, 3]"], done.stdout + done.stderr
    named = [done.stderr.count(f"pip install 'squall[{extra}]'") for extra in ("spark", "figures", "query", "run")]
    assert named == [3, 1, 1, 1], done.stderr
    assert "--engine reference does without" in done.stderr
    with ZipFile(run / "sent.zip") as packed:
        names = {each.partition("/")[2] for each in packed.namelist()}
    assert {"plan.toml", "history.jsonl", "verdict.json"} <= names
    assert "report.html" not in names
    assert "squall[figures]" in done.stdout.partition("sent.zip")[0], "export says why"
