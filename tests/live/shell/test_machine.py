"""Problems of the machine are reported as such: exit code 2 or 3, one sentence, and no finding about the cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.chaos import cli
from tests.live.shell.conftest import Squall
from tests.support.lacks import skip_without


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 400 MiB, which a test can fill."""
    if os.geteuid() != 0:
        skip_without("root, who can mount a file system of a bounded size", "call it as root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        said = mounted.stderr.decode().strip()
        skip_without(f"a file system of a bounded size, which cannot be mounted: {said}", "another machine")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_fills_up_makes_the_run_unknown_and_keeps_the_history(
    small_disk: Path, started: list[Squall], tmp_path: Path
) -> None:
    runs = small_disk / "runs"
    load = ("--time", "20", "--warmup", "1", "--faults", "none", "--rate", "1000")
    squall = Squall(tmp_path, ("run", "--seed", "7", *load, "--runs", str(runs)))
    started.append(squall)
    squall.until("acknowledged")
    with (small_disk / "fill").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"\0" * (1 << 20))
    assert squall.code() == 2, squall.said()
    assert "UNKNOWN" in squall.said()
    assert "No space left on device" in squall.said()
    verdict = json.loads((runs / "latest/verdict.json").read_text())
    assert verdict["verdict"] == "unknown"
    assert any("No space left on device" in reason for reason in verdict["reasons"])
    assert (runs / "latest/history.jsonl").stat().st_size > 0
    assert squall.left_behind() == []


def test_too_little_room_is_refused_before_anything_starts(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["run", "--time", "600", "--seed", "1", "--runs", str(small_disk / "runs")]) == 3
    assert "MiB are free there" in capsys.readouterr().err
    assert list((small_disk / "runs").iterdir()) == []


@pytest.mark.gate
@pytest.mark.parametrize("folder", ["/dev/null", "/proc/nothing", "/dev/null/below"])
def test_a_place_that_cannot_take_runs_is_refused(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--time", "1", "--seed", "1", "--runs", folder]) == 3
    told = capsys.readouterr().err
    assert f"--runs {folder}: no run directory can be made there" in told
    assert "Traceback" not in told
