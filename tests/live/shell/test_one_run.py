"""One `squall run` with processes, and one with containers: a broker dies, Spark judges the run, the exit code is 0."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from tests.live.engine import engine_and_images
from tests.live.shell.conftest import Squall

RUN = ("run", "--seed", "7", "--time", "8", "--warmup", "1", "--faults", "kill", "--rate", "200")


@pytest.mark.gate
@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_a_run_in_which_a_broker_dies_is_valid(runtime: str, tmp_path: Path, started: list[Squall]) -> None:
    if runtime == "docker":
        engine_and_images()
    squall = Squall(tmp_path, (*RUN, "--runtime", runtime, "--set", "default.replication.factor=4"))
    started.append(squall)
    assert squall.code() == 0, squall.said()
    assert "default.replication.factor is 4, and the cluster has 3 brokers" in squall.said()
    assert "VALID" in squall.said()
    assert squall.left_behind() == []
    run_dir = tmp_path / "runs/latest"
    verdict = json.loads((run_dir / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    landed = [json.loads(line) for line in (run_dir / "nemesis.jsonl").read_text().splitlines()]
    assert any(line.get("evidence") for line in landed), landed
    assert (run_dir / "report.html").exists()
    assert tomllib.loads((run_dir / "plan.toml").read_text())["probe_ms"] > 0


def test_a_run_that_nobody_reads_after_its_first_line_ends_with_its_verdict(
    tmp_path: Path, started: list[Squall]
) -> None:
    read, write = os.pipe()
    squall = Squall(tmp_path, ("run", "--seed", "7", "--time", "2", "--warmup", "1", "--faults", "none"), write)
    started.append(squall)
    os.close(write)
    assert os.read(read, 1)
    os.close(read)
    assert squall.code() == 0
    assert squall.left_behind() == []
    run_dir = tmp_path / "runs/latest"
    assert json.loads((run_dir / "verdict.json").read_text())["verdict"] == "valid"
    assert json.loads((run_dir / "run.json").read_text())["trouble"] is None
    for name in ("report.html", "junit.xml"):
        assert (run_dir / name).stat().st_size, name


def test_a_program_that_does_not_keep_to_the_protocol_ends_the_run_at_once(
    tmp_path: Path, started: list[Squall]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\n"
        "input()\nprint(json.dumps({'type': 'ready'}), flush=True)\n"
        "sent = json.loads(input())\n"
        "print(json.dumps({'type': 'ok', 'id': sent['id'], 'partition': 0, 'offset': 'soon'}), flush=True)\n"
        "input()\n"
    )
    command = shlex.join([sys.executable, str(program)])
    squall = Squall(tmp_path, ("run", "--workload", "command", "--command", command, "--faults", "none"))
    started.append(squall)
    assert squall.code() == 2, squall.said()
    assert squall.left_behind() == []
    run_dir = tmp_path / "runs/latest"
    assert "heal" not in [each["name"] for each in json.loads((run_dir / "run.json").read_text())["phases"]]
    assert "Spark" not in squall.said()
    (reason,) = json.loads((run_dir / "verdict.json").read_text())["reasons"]
    assert "does not keep to the protocol: it wrote the line" in reason
    assert 'offset: expected a whole number from -1 to 2^62 - 1, or its digits in a string, got "soon"' in reason
    for shown in (squall.log, *(run_dir / name for name in ("verdict.json", "run.json", "report.html", "junit.xml"))):
        text = shown.read_text()
        assert "soon" in text, shown
        assert "HarnessError" not in text, shown
