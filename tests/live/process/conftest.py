"""A process runtime with stub brokers: see stub_broker.py."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from squall.chaos.runtimes.process.runtime import ProcessRuntime

STUB = (sys.executable, "-P", str(Path(__file__).with_name("stub_broker.py")))

MakeRuntime = Callable[..., ProcessRuntime]


@pytest.fixture
async def make_runtime(tmp_path: Path) -> AsyncIterator[MakeRuntime]:
    """Yield a function that makes runtimes below tmp_path; they are stopped at the end of the test."""
    made: list[ProcessRuntime] = []

    def make(folder: str = "run", **options: object) -> ProcessRuntime:
        runtime = ProcessRuntime(tmp_path / folder, program=STUB, **options)  # type: ignore[arg-type]
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        await runtime.stop()


@pytest.fixture
async def runtime(make_runtime: MakeRuntime) -> ProcessRuntime:
    """Return a started runtime with three stub brokers behind Toxiproxy."""
    runtime = make_runtime()
    await runtime.start()
    return runtime
