"""Ctrl-C leaves no container. After `kill -9`, `squall clean` removes the run's containers, found by label, and nothing
else.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from squall.chaos.cli import run as squall
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.runtimes.real.processes.child import until
from squall.chaos.toolchain.engine import DockerEngine
from tests.live.docker.conftest import MakeRuntime, of_run
from tests.live.engine import STUB_INSIDE, STUB_MOUNT

HARNESS = """
import signal, sys, trio
from pathlib import Path
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.toolchain.engine import Mount, find_engine
from squall.chaos.toolchain.images import ensure_images

async def main():
    engine = find_engine()
    images = ensure_images(engine, print)
    mount = Mount(sys.argv[2], "/stub_broker.py", read_only=True)
    stub = {"program": tuple(sys.argv[3:]), "mounts": (mount,)}
    runtime = DockerRuntime(Path(sys.argv[1]), engine, images, volume_bytes=4 << 20, **stub)
    try:
        await runtime.start()
        await runtime.pause(2)
        print("run", runtime.run, flush=True)
        await trio.sleep_forever()
    finally:
        await runtime.stop()

signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
trio.run(main)
"""
ALL = ["broker-1", "broker-2", "broker-3", "network", "toxiproxy"]
WITH_VOLUMES = [*ALL, "volume", "volume", "volume"]


@pytest.fixture
def harness(engine: DockerEngine, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a harness with three stub brokers, one of them paused; it prints its run's id."""
    command = [sys.executable, "-c", HARNESS, str(tmp_path / "run"), STUB_MOUNT.source, *STUB_INSIDE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as popen:
        yield popen
        popen.kill()
    squall(["clean"])


async def run_of(harness: subprocess.Popen[str]) -> str:
    """Return the run's id, once the harness has started its brokers."""
    assert harness.stdout is not None
    while line := await trio.to_thread.run_sync(harness.stdout.readline):
        if line.startswith("run "):
            return line.removeprefix("run ").strip()
    raise AssertionError("the harness ended before its cluster was up")


async def test_what_a_killed_harness_leaves_is_found_by_its_labels_and_removed(
    harness: subprocess.Popen[str], engine: DockerEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await run_of(harness)
    assert of_run(engine, run) == WITH_VOLUMES
    assert squall(["clean"]) == 0
    assert f"{run}: under way with 4 containers, left alone" in capsys.readouterr().out
    assert of_run(engine, run) == WITH_VOLUMES
    harness.send_signal(signal.SIGKILL)
    assert await until(lambda: harness.poll() is not None, 10)
    assert squall(["clean", "--dry-run"]) == 0
    assert f"{run}: would end container squall-{run}-broker-2" in capsys.readouterr().out
    assert of_run(engine, run) == WITH_VOLUMES
    assert squall(["clean"]) == 0
    told = capsys.readouterr().out
    assert f"{run}: ended container squall-{run}-toxiproxy" in told
    assert f"{run}: ended network squall-{run}" in told
    assert f"{run}: ended volume squall-{run}-data-2" in told
    assert of_run(engine, run) == []


async def test_what_a_killed_harness_leaves_is_removed_by_the_next_run(
    harness: subprocess.Popen[str], engine: DockerEngine, make_runtime: MakeRuntime
) -> None:
    run = await run_of(harness)
    harness.send_signal(signal.SIGKILL)
    assert await until(lambda: harness.poll() is not None, 10)
    await make_runtime("next").start()
    assert of_run(engine, run) == []


async def test_ctrl_c_leaves_nothing(harness: subprocess.Popen[str], engine: DockerEngine) -> None:
    run = await run_of(harness)
    harness.send_signal(signal.SIGINT)
    assert await until(lambda: harness.poll() is not None, 60)
    assert of_run(engine, run) == []


async def test_clean_leaves_a_cluster_of_this_process_alone(runtime: DockerRuntime, engine: DockerEngine) -> None:
    assert squall(["clean"]) == 0
    assert of_run(engine, runtime.run) == ALL
