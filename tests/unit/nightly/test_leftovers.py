"""Checks what a night ends between its runs: what killed runs left, and nothing of runs that are still going."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.chaos.nightly import leftovers
from squall.chaos.runtimes.docker import labels
from squall.chaos.runtimes.docker.labels import Leftover
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.runtimes.real.processes.registry import RegisteredRun
from squall.chaos.toolchain.engine import EngineError


class Engine:
    """Containers of two runs of this night, the harness of one of which lives, and of somebody else."""

    def __init__(self, runs: Path, refuses: str = "") -> None:
        self.refuses = refuses
        self.removed: list[str] = []
        folders = {"dead": runs / "dead", "alive": runs / "alive", "elsewhere": Path("/elsewhere")}
        self.all = [{"Labels": {labels.RUN: run, labels.FOLDER: str(at)}} for run, at in folders.items()]

    def containers(self, label: str) -> list[dict[str, Any]]:
        return self.all

    def networks(self, label: str) -> list[dict[str, Any]]:
        return []

    volumes = networks

    def remove(self, container: str) -> None:
        if container == self.refuses:
            raise EngineError("it is being removed already")
        self.removed.append(container)

    def close(self) -> None:
        self.removed.append("closed")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Runs of which processes were ended."""
    found: list[str] = []
    at = {"dead": tmp_path / "dead", "alive": tmp_path / "alive", "elsewhere": Path("/elsewhere")}
    listed = [RegisteredRun(run, str(folder), run == "alive", (), Path("f")) for run, folder in at.items()]
    monkeypatch.setattr(registry, "runs", lambda: listed)
    monkeypatch.setattr(registry, "end", lambda run: found.append(run.run) or [f"broker of {run.run}"])
    return found


def with_engine(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    left = [Leftover(run, run == "alive", ((run, run),), ()) for run in ("alive", "dead", "elsewhere")]
    monkeypatch.setattr(leftovers, "reach_engine", lambda: engine)
    monkeypatch.setattr(labels, "find", lambda engine: left)


def test_what_a_killed_run_of_this_night_left_is_ended_and_nothing_else(
    ended: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = Engine(tmp_path)
    with_engine(monkeypatch, engine)
    assert leftovers.end_leftovers(tmp_path) == ["broker of dead", "container dead"]
    assert ended == ["dead"]
    assert engine.removed == ["dead", "closed"]


def test_an_engine_that_refuses_does_not_end_the_night(
    ended: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = Engine(tmp_path, refuses="dead")
    with_engine(monkeypatch, engine)
    assert leftovers.end_leftovers(tmp_path) == ["broker of dead"]
    assert engine.removed == ["closed"]
