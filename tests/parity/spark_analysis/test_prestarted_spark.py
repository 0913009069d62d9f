"""Spark that was started before the history existed finds the same as Spark that was started afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from squall.chaos.runs import judgement
from squall.chaos.runs import prestarted_spark as ahead_of_use
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.prestarted_spark import PrestartedSpark
from squall.chaos.runs.spark import command_of
from squall.chaos.toolchain.java import java
from squall.checkers.stages import READY, line_of
from squall.spark_analysis import jobs, session
from squall.spark_analysis.short_history import write_short_history
from tests.support.histories.builder import HistoryBuilder

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")

LIMIT_S, POLL_S = 240, 0.1


def with_losses(folder: Path) -> None:
    """Write a history that differs from the one with which Spark warms up."""
    h = HistoryBuilder()
    producer = h.producer()
    for off in range(5):
        h.sent(producer, off)
    h.final([(0, h.sent(producer, 5))])
    (folder / "history.jsonl").write_bytes(b"".join(h.lines()))


def found(folder: Path) -> Any:
    kept = json.loads((folder / "findings.json").read_text())["findings"]
    assert kept
    return kept, json.loads((folder / "metrics.json").read_text()), json.loads((folder / "series.json").read_text())


def started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> PrestartedSpark:
    """Start Spark before the history of `folder` is complete, and wait until it is ready."""
    # It keeps its share of the CPU, else it would start only when the tests beside this one let it, and only root may
    # give the share back.
    monkeypatch.setattr(ahead_of_use, "_lower_priority", lambda pid: None)
    ahead = PrestartedSpark(RunDirectory(folder), command_of(folder, java(print), None))
    until = time.monotonic() + LIMIT_S
    while line_of(READY) not in (said := ahead.log.read_text()):
        assert ahead._program.poll() is None, said
        assert time.monotonic() < until
        time.sleep(POLL_S)
    return ahead


def test_it_finds_what_another_one_finds_and_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    with_losses(other)
    quiet = Console(quiet=True)
    assert judgement.analyse(RunDirectory(other), quiet) is None
    ahead = started(one, monkeypatch)
    with_losses(one)
    monkeypatch.setattr(judgement, "run_staged", lambda *_: pytest.fail("another Spark was started"))
    assert judgement.analyse(RunDirectory(one), quiet, ahead=ahead) is None
    assert found(one) == found(other)


def test_another_one_goes_on_where_it_died(tmp_path: Path) -> None:
    ahead = PrestartedSpark(RunDirectory(tmp_path), command_of(tmp_path, java(print), None))
    ahead._program.kill()
    ahead._program.wait()
    write_short_history(tmp_path)
    assert judgement.analyse(RunDirectory(tmp_path), Console(quiet=True), ahead=ahead) is None
    assert {each["anomaly"] for each in found(tmp_path)[0]} == {"corrupt", "int-poll-skip", "lost-write"}


def test_without_a_line_it_ends_and_leaves_nothing(tmp_path: Path) -> None:
    run_dir, temporary = tmp_path / "run", tmp_path / "tmp"
    run_dir.mkdir()
    temporary.mkdir()
    command = [sys.executable, "-P", "-m", "squall.spark_analysis", str(run_dir), "--java-home", str(java(print).home)]
    ended = subprocess.run(
        [*command, "--ahead"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert READY not in ended.stdout.decode()
    assert [*run_dir.iterdir()] == []
    assert [*temporary.glob("squall-*")] == []


def test_a_history_that_asks_for_more_is_left_to_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SMALL_ROWS", 1)
    monkeypatch.setattr(session, "start", lambda *_, **__: pytest.fail("no session is needed to see that"))
    with pytest.raises(jobs.HistoryTooLarge):
        jobs.analyse(tmp_path, tmp_path, ahead=lambda: write_short_history(tmp_path))
    assert not (tmp_path / "findings.json").exists()
