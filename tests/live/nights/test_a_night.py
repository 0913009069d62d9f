"""`squall nightly` end to end: simulations, so that it takes seconds; a session that is killed; what its exit says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 100
SMALL = ("--vary", "runtime=sim", "--time", "8", "--faults", "kill", "--jobs", "1")


def start(*words: str | Path) -> subprocess.Popen[str]:
    """`squall nightly WORDS`."""
    command = [sys.executable, "-P", "-m", "chaos", "nightly", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment)


def nightly(*words: str | Path) -> tuple[int, str, str]:
    """Its exit code, and what it printed on each stream."""
    process = start(*words)
    out, errors = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, errors


def results(night: Path) -> list[dict[str, Any]]:
    """The whole lines of results.jsonl."""
    file = night / "results.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def until_one_has_ended(night: Path, process: subprocess.Popen[str]) -> None:
    """Wait for the first line of results.jsonl."""
    deadline = time.monotonic() + LIMIT_S
    while not results(night):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no run has ended"
        time.sleep(0.02)


def runs_of(folder: Path) -> list[str]:
    """Processes of this machine that work below a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/runs" in line:
            found.append(line)
    return found


def test_a_night_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    night = tmp_path / "night"
    process = start(*SMALL, "--vary", "acks=all,1,0", "--seeds", "2", "--seed", "1", "--out", night)
    until_one_has_ended(night, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    deadline = time.monotonic() + 20
    while left := runs_of(night):
        assert time.monotonic() < deadline, left
    before = results(night)
    assert 0 < len(before) < 6
    assert not (night / "end.json").exists()

    code, out, errors = nightly("--resume", night, "--jobs", "1")

    assert code == 0, errors
    after = results(night)
    assert after[: len(before)] == before, "what had ended is not played again"
    planned = json.loads((night / "night.json").read_text())["items"]
    assert sorted(each["item"] for each in after) == sorted(each["item"] for each in planned)
    assert sorted(path.name for path in (night / "runs").iterdir() if not path.is_symlink()) == sorted(
        Path(each["run"]).name for each in after
    ), "half a run is no run"
    assert f"{len(before)} runs ended in an earlier session" in errors
    assert "6 of 6 runs were played: 6 valid" in out
    told = json.loads((night / "end.json").read_text())
    assert (told["exit"], told["interrupted"], told["left_out"]) == (0, False, [])
    cases = ElementTree.parse(night / "junit.xml").findall(".//testcase")
    assert len(cases) == 6, "JUnit shows the whole night, and not its last session"
    assert len(list((night / "allure-results").glob("*-result.json"))) == 6


def test_a_planted_bug_is_a_finding_and_exit_code_1(tmp_path: Path) -> None:
    night, summary = tmp_path / "night", tmp_path / "summary.md"
    words = ("--vary", "mutant=none,22", "--seed", "1", "--summary", summary)
    code, out, errors = nightly(*SMALL[:2], "--time", "10", "--faults", "kill,partition", *words, "--out", night)
    assert code == 1, errors
    assert {each["verdict"] for each in results(night)} == {"valid", "invalid"}
    assert "FOUND  squall/sim appends mutant=22, faults kill,partition, seed 1" in out
    assert "| squall/sim appends mutant=22 | 1 | 0 | 1 | 0 | 0 |" in summary.read_text()
    failed = ElementTree.parse(night / "junit.xml").findall(".//testcase[failure]")
    assert [each.get("classname") for each in failed] == ["squall.sim appends mutant=22"]
    assert json.loads((night / "end.json").read_text())["exit"] == 1


def test_a_night_that_proves_too_little_has_exit_code_2(tmp_path: Path) -> None:
    night = tmp_path / "night"
    words = ("--vary", "runtime=sim", "--time", "5", "--seeds", "1", "--budget", "1s", "--out", night)
    code, out, errors = nightly(*words)
    assert code == 2, errors
    assert "Too much is unknown: this night proves too little. 0 of 1 runs were played; 1 are left out." in out
    assert "no time: such a run takes about" in (night / "summary.md").read_text()


def test_a_selection_is_pytests(tmp_path: Path) -> None:
    night = tmp_path / "night"
    words = (*SMALL, "--vary", "acks=all,1", "--seed", "1", "--out", night)
    code, out, errors = nightly(*words, "-k", "acks and not nothing")
    assert code == 0, errors
    assert "1 of 1 runs were played" in out
    code, out, errors = nightly("--resume", night, "-k", "acks and (")
    assert code == 3
    assert "acks and (" in errors


def test_a_list_says_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    night = tmp_path / "night"
    words = (*SMALL, "--vary", "acks=all,1", "--vary", "idempotence=on", "--out", night)
    code, out, _ = nightly(*words, "--list")
    assert code == 0
    assert "1 runs over 1 configurations" in out
    assert "excluded: runtime=sim acks=1 idempotence=on: workload: idempotence needs acks = -1 (all)" in out
    assert "MiB stay on disk" in out
    assert not night.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "akcs=1"), "did you mean 'acks'?"),
        (("--vary", "acks=2"), "one of all, 1, 0"),
        (("--resume", "nowhere"), "not the folder of a night"),
        (("--resume", "nowhere", "--seeds", "3"), "--resume goes on with what was planned"),
        (("--budget", "soon"), "is no time"),
        (("--matrix", "nowhere.toml"), "there is no such file"),
    ],
)
def test_wrong_usage_is_said_before_anything_begins(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    code, _, errors = nightly(*words, *(() if "--resume" in words else ("--out", tmp_path / "night")))
    assert (code, said in " ".join(errors.split())) == (3, True), errors
    assert not (tmp_path / "night").exists()
