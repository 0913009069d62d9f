"""Fixtures for the docker runtime, with the stub brokers of `tests/live/process`, and a list of what a run has in the
engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from squall.chaos.runtimes.docker import labels
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.images import ImageNames
from tests.live.engine import STUB_INSIDE, STUB_MOUNT, engine_and_images

MakeRuntime = Callable[..., DockerRuntime]


@pytest.fixture
def found() -> tuple[DockerEngine, ImageNames]:
    """Return the engine and the images. Skips the test if there are none."""
    return engine_and_images()


@pytest.fixture
def engine(found: tuple[DockerEngine, ImageNames]) -> DockerEngine:
    """The engine."""
    return found[0]


@pytest.fixture
async def make_runtime(found: tuple[DockerEngine, ImageNames], tmp_path: Path) -> AsyncIterator[MakeRuntime]:
    """Yield a function that makes runtimes below tmp_path; they are stopped at the end of the test."""
    made: list[DockerRuntime] = []

    def make(folder: str = "", **options: object) -> DockerRuntime:
        given = {"program": STUB_INSIDE, "mounts": (STUB_MOUNT,), **options}
        made.append(DockerRuntime(tmp_path / (folder or f"run{len(made)}"), *found, **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for runtime in made:
        await runtime.stop()


@pytest.fixture
async def runtime(make_runtime: MakeRuntime) -> DockerRuntime:
    """Return a started runtime with three stub brokers behind Toxiproxy."""
    runtime = make_runtime()
    await runtime.start()
    return runtime


def of_run(engine: DockerEngine, run: str) -> list[str]:
    """Return the names of everything that belongs to a run in the engine."""
    label = f"{labels.RUN}={run}"
    names = [each["Names"][0].removeprefix(f"/squall-{run}-") for each in engine.containers(label)]
    names += ["volume" for _ in engine.volumes(label)]
    return sorted([*names, *("network" for _ in engine.networks(label))])
