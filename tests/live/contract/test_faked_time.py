"""Two ways to change a clock, in containers: by the offset file of our broker, and below the broker by libfaketime. The
same jump looks the same to a client, and the broker's trace proves it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from squall.chaos.errors import PreconditionError
from squall.chaos.faults.kinds.clock import clock_evidence
from squall.chaos.runtimes.contract import Evidence
from squall.chaos.runtimes.docker.faketime import check_image
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.toolchain.base_image import base_image
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import SETTINGS
from tests.live.contract.test_switched_off import SwitchedOff, played
from tests.live.engine import engine_and_images
from tests.support.patience import LONG_S, scaled, slowed

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
OFF_MS = 5_000
Bend = Callable[[int, float], Awaitable[Evidence]]


def on_faked(folder: Path, test: Callable[[DockerRuntime], Awaitable[None]]) -> None:
    """Run a test's body on one of our brokers under libfaketime."""
    engine, images = engine_and_images()
    settings = {**slowed(SETTINGS), "log.retention.check.interval.ms": "300"}

    async def run() -> None:
        runtime = DockerRuntime(folder / "run", engine, images, nodes=1, settings=settings, fake_time=True)
        await runtime.start()
        try:
            await test(runtime)
        finally:
            await runtime.stop()

    trio.run(run)


def bender(runtime: DockerRuntime, how: str) -> Bend:
    return runtime.fake_time if how == "faketime" else runtime.set_clock


async def words(runtime: DockerRuntime, count: int) -> None:
    """Wait until broker 1's trace has so many lines."""
    with trio.fail_after(LONG_S):
        while len(runtime.clock_reports(1)) < count:
            await trio.sleep(0.05)


@pytest.mark.parametrize("how", ["offset", "faketime"])
def test_a_jump_is_seen_in_timestamps_and_said_by_the_node_either_way(tmp_path: Path, how: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        client, bend = OneClient(runtime), bender(runtime, how)
        await client.create("t", message_timestamp_type="LogAppendTime")
        assert not runtime.clock_reports(1)
        for jump_ms in (-HOUR_MS, 1_500, DAY_MS):
            said = len(runtime.clock_reports(1))
            await bend(1, jump_ms)
            await words(runtime, said + 3)
            off_ms = (await client.must_produce("t")).log_append_time_ms - time.time() * 1000
            assert abs(off_ms - jump_ms) < scaled(OFF_MS / 10)
            told = clock_evidence(runtime.clock_reports(1)[said:], jump_ms, 1.0)
            assert told["off"], told
        await bend(1, 0)
        await trio.sleep(0.2)
        assert abs((await client.must_produce("t")).log_append_time_ms - time.time() * 1000) < scaled(OFF_MS / 10)

    on_faked(tmp_path, body)


@pytest.mark.parametrize("how", ["offset", "faketime"])
def test_what_is_old_by_a_bent_clock_is_deleted_either_way(tmp_path: Path, how: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        client, bend = OneClient(runtime), bender(runtime, how)
        await client.create(
            "t", retention_ms=str(HOUR_MS), segment_bytes="1048576", message_timestamp_type="LogAppendTime"
        )
        await client.must_produce("t", 20, size=200_000)
        await trio.sleep(1)
        assert await client.start("t") == 0
        await bend(1, DAY_MS)
        with trio.fail_after(LONG_S):
            while not await client.start("t"):
                await trio.sleep(0.05)

    on_faked(tmp_path, body)


@pytest.mark.parametrize("off", [False, True], ids=["left_on", "switched_off"])
@pytest.mark.parametrize("strobe_ms", [0, 400])
def test_only_what_is_left_on_has_evidence(tmp_path: Path, strobe_ms: int, off: bool) -> None:
    async def body(runtime: DockerRuntime) -> None:
        params = {"how": "faketime", "offset_ms": -HOUR_MS, "strobe_ms": strobe_ms}
        told = await played(SwitchedOff(runtime) if off else runtime, runtime, "clock", params)
        assert bool(told["evidence"]) is not off, told
        assert bool(told["error"]) is off

    on_faked(tmp_path, body)


def test_an_image_without_the_library_is_refused() -> None:
    engine, images = engine_and_images()
    check_image(engine, images.broker)
    with pytest.raises(PreconditionError, match=r"clocks cannot be bent by libfaketime|has no libfaketime that works"):
        check_image(engine, base_image(engine, lambda line: None)[0])
