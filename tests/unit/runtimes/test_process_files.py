"""Reading what the kernel, a trace and the registry say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest

from squall.chaos.runtimes.real import proc
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.runtimes.real.trace_tail import TraceTail


def test_a_process_is_itself_and_a_dead_one_is_nobody() -> None:
    with subprocess.Popen(["cat"], stdin=PIPE, stdout=PIPE, env={"SQUALL_RUN": "r 1"}) as popen:
        assert popen.stdin is not None and popen.stdout is not None
        popen.stdin.write(b"it runs, with its own environment\n")
        popen.stdin.flush()
        assert popen.stdout.readline()
        process = proc.identify(popen.pid)
        assert process is not None
        assert proc.is_alive(process)
        assert proc.environment(popen.pid) == {"SQUALL_RUN": "r 1"}
        popen.kill()
    assert proc.identify(popen.pid) is None
    assert not proc.is_alive(process)
    assert proc.run_state(popen.pid) is None
    assert proc.environment(popen.pid) == {}


def test_a_process_that_nobody_waited_for_counts_as_dead() -> None:
    with subprocess.Popen(["true"]) as popen:
        assert os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT) is not None
        assert proc.run_state(popen.pid) == "Z"
        assert proc.identify(popen.pid) is None


def test_a_name_with_brackets_and_blanks_is_read_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "7").mkdir()
    fields = ["T", *["0"] * 18, "12345", "0"]
    (tmp_path / "7/stat").write_text(f"7 (a ) S (b) {' '.join(fields)}\n")
    monkeypatch.setattr(proc, "PROC", tmp_path)
    assert proc.run_state(7) == "T"


def test_a_tail_begins_at_the_end_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    missing = TraceTail(path)
    assert missing.events() == []
    path.write_text('{"e":"old"}\n')
    tail = TraceTail(path)
    assert [event["e"] for event in missing.events()] == ["old"]
    with path.open("a") as file:
        file.write('{"e":"a"}\n{"e":')
    assert [event["e"] for event in tail.events()] == ["a"]
    with path.open("a") as file:
        file.write('"b"}\n')
    assert [event["e"] for event in tail.events()] == ["b"]
    assert tail.events() == []


@pytest.fixture
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path))
    return tmp_path / "runs"


def test_a_run_under_way_holds_its_ports_until_it_is_closed(own_registry: Path) -> None:
    with registry.locked():
        first = registry.RunRegistration("one", own_registry)
        first.claim_ports([4001, 4002])
    assert registry.claimed_ports() == {4001, 4002}
    (found,) = registry.runs()
    assert (found.run, found.harness_alive, found.processes) == ("one", True, ())
    first.close()
    assert registry.claimed_ports() == set()


def test_files_that_are_not_runs_are_passed_over(own_registry: Path) -> None:
    own_registry.mkdir()
    (own_registry / "torn.json").write_text('{"run":')
    (own_registry / "other.json").write_text('{"run":"x"}')
    assert registry.runs() == []
