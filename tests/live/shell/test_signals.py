"""`squall run` ends in every phase when it gets a signal, and leaves nothing behind."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

from squall.chaos.runtimes.real.processes.ports import free_ports
from squall.chaos.runtimes.real.processes.registry import claimed_ports
from squall.chaos.typed import PROGRAM
from tests.live.shell.conftest import Squall

RUN = ("run", "--seed", "7", "--time", "60", "--warmup", "1", "--faults", "none", "--rate", "200")


@pytest.mark.parametrize(
    ("phase", "signals"),
    [
        ("start the cluster", [signal.SIGTERM]),
        pytest.param("load", [signal.SIGHUP], marks=pytest.mark.gate),
        ("load", [signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]),
    ],
)
def test_a_signal_ends_a_run_in_good_order(
    phase: str, signals: list[signal.Signals], tmp_path: Path, started: list[Squall]
) -> None:
    squall = Squall(tmp_path, RUN)
    started.append(squall)
    squall.until(f"] {phase}")
    for number in signals:
        squall.send(number)
    assert squall.code() == 130, squall.said()
    assert "ending in good order" in squall.said()
    assert f"{PROGRAM} verify" in squall.said()
    assert squall.left_behind() == []
    told = json.loads((tmp_path / "runs/latest/run.json").read_text())
    assert told["trouble"] == "interrupted"


def test_a_signal_while_judging_ends_spark_too(tmp_path: Path, started: list[Squall]) -> None:
    short = ("run", "--seed", "7", "--time", "2", "--warmup", "1", "--faults", "none", "--rate", "200")
    squall = Squall(tmp_path, short)
    started.append(squall)
    squall.until("] judge")
    squall.send(signal.SIGTERM)
    assert squall.code() == 130, squall.said()
    assert squall.left_behind() == []
    assert not (tmp_path / "runs/latest/verdict.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.gate), signal.SIGHUP])
def test_a_cluster_for_development_stops_in_good_order(
    number: signal.Signals, tmp_path: Path, started: list[Squall]
) -> None:
    # `--port` ends at 65,000: of a cluster the following ones belong to it.
    (port,) = free_ports(1, {*claimed_ports(), *range(65_001, 65_536)}, random.Random())
    squall = Squall(tmp_path, ("cluster", "up", "-n", "1", "--port", str(port), "--data", str(tmp_path / "kept")))
    started.append(squall)
    squall.until("bootstrap.servers=")
    squall.send(number)
    assert squall.code() == 0, squall.said()
    assert squall.said().rstrip().endswith("stopped")
    assert squall.left_behind() == []


def test_a_batch_of_simulations_says_how_far_it_came(tmp_path: Path, started: list[Squall]) -> None:
    squall = Squall(tmp_path, ("sim", "--seeds", "0..500", "--jobs", "2"))
    started.append(squall)
    squall.until("seeds 0..500")
    squall.send(signal.SIGTERM)
    assert squall.code() == 130, squall.said()
    assert "interrupted" in squall.said()
    assert squall.left_behind() == []
