"""Volumes that are really full: a broker ends because of it, the run reports that, and its recorded files are kept."""

from __future__ import annotations

import json
from pathlib import Path

from squall.chaos.commands.run import plan_of
from squall.chaos.runs.real import run_and_judge
from squall.chaos.runtimes.docker import labels
from squall.chaos.toolchain.engine import DockerEngine
from tests.live.docker.conftest import MakeRuntime, of_run

FLAGS = {"broker_settings": {}, "topic_settings": {}, "seed": 3, "warmup_s": 1.0}


def runs_of(engine: DockerEngine, folder: Path) -> list[str]:
    """Return what the engine still has of the runs of a folder."""
    found = [*engine.containers(labels.RUN), *engine.networks(labels.RUN), *engine.volumes(labels.RUN)]
    return [str(each) for each in found if each["Labels"].get(labels.FOLDER, "").startswith(str(folder))]


def test_a_run_on_volumes_that_fill_up_is_unknown_says_why_keeps_its_history_and_leaves_nothing(
    engine: DockerEngine, tmp_path: Path
) -> None:
    load = {"time_s": 8.0, "faults": "none", "rate": 3000, "min_bytes": 1000, "max_bytes": 2000, "volume_mib": 8}
    limits = {"delivery_timeout_ms": 4000, "converge_s": 5.0, "final_read_s": 5.0}
    directory = run_and_judge(plan_of(None, {**FLAGS, **load, **limits}, "docker"), tmp_path)
    assert directory is not None
    verdict = json.loads((directory.path / "verdict.json").read_text())
    told = json.loads((directory.path / "run.json").read_text())
    assert verdict["verdict"] == "unknown"
    assert "No space left on device" in json.dumps(verdict["reasons"]), verdict["reasons"]
    assert any("No space left on device" in gone["last_words"] for gone in told["node_exits"])
    assert told["counters"]["acked"] > 500
    assert directory.history.read_bytes().count(b"\n") > 1000, "the history is kept"
    assert runs_of(engine, tmp_path) == []


def test_a_run_that_fits_into_its_volumes_is_valid_and_their_data_is_compared(
    engine: DockerEngine, tmp_path: Path
) -> None:
    load = {"time_s": 12.0, "faults": "kill", "rate": 200, "volume_mib": 256}
    directory = run_and_judge(plan_of(None, {**FLAGS, **load}, "docker"), tmp_path)
    assert directory is not None
    assert json.loads((directory.path / "verdict.json").read_text())["verdict"] == "valid"
    assert runs_of(engine, tmp_path) == []


async def test_volumes_keep_their_data_over_a_kill_and_bring_it_home(
    make_runtime: MakeRuntime, engine: DockerEngine
) -> None:
    runtime = make_runtime(volume_bytes=4 << 20)
    await runtime.start()
    container = f"squall-{runtime.run}-broker-1"
    engine.run_in(container, ["sh", "-c", "echo kept >/node/data/word"])
    said = engine.run_in(container, ["sh", "-c", "df -k /node/data | tail -n 1"])
    assert said.split()[1] == "4096"
    await runtime.kill(1)
    await runtime.start_node(1)
    assert engine.run_in(container, ["cat", "/node/data/word"]) == "kept\n"
    assert "volume" in " ".join(of_run(engine, runtime.run))
    await runtime.stop()
    assert (runtime.data_path(1) / "word").read_text() == "kept\n"
    assert of_run(engine, runtime.run) == []
