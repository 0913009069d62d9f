"""A broker that is restarted as another version: it is evidence only if clients get that version's answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.broker.protocol.schema.api_versions import ApiVersionsRequest
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import Evidence, NodeState, Runtime, RuntimeCapability
from squall.chaos.toolchain.images import second_image
from squall.chaos.toolchain.places import PACKAGES
from squall.chaos.toolchain.sources import second_version
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import our_broker, our_contained_broker
from tests.live.contract.test_switched_off import played
from tests.live.engine import engine_and_images
from tests.support.second_version import broker_with

LIST_OFFSETS = 2
NEWEST = '_api(ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 6)'
OLDER = NEWEST.replace("11", "9")


@pytest.fixture
def another(tmp_path: Path) -> Path:
    """Return a checkout whose broker supports only older versions of ListOffsets."""
    return broker_with(tmp_path / "another", "protocol/apis.py", lambda text: text.replace(NEWEST, OLDER))


async def spoken(runtime: Runtime) -> int:
    """Return the newest version of ListOffsets in the broker's ApiVersions."""
    answer = await OneClient(runtime).ask(ApiVersionsRequest("test", "1"), 3)
    return next(int(api.max_version) for api in answer.api_keys if api.api_key == LIST_OFFSETS)


class SwitchedOff:
    """A runtime that starts the first version instead of the second."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def upgrade_node(self, node: int) -> Evidence:
        """Report success, and do nothing."""
        return {"from": "A", "to": "B"}


def on_upgradable(where: str, folder: Path, body: Any, another: Path) -> None:
    """Run a test's body on one broker that has a second version."""
    if where == "process":
        our_broker(folder, body, second=second_version(str(another), PACKAGES))
    else:
        engine, images = engine_and_images()
        our_contained_broker(folder, body, second=second_image(engine, str(another), images, lambda line: None))


@pytest.mark.parametrize("off", [False, True], ids=["left_on", "switched_off"])
@pytest.mark.parametrize("where", ["process", "docker"])
def test_clients_hear_the_second_version_and_only_then_there_is_evidence(
    where: str, off: bool, tmp_path: Path, another: Path
) -> None:
    async def body(runtime: Runtime) -> None:
        assert RuntimeCapability.UPGRADE in runtime.acts
        before = await spoken(runtime)
        told = await played(SwitchedOff(runtime) if off else runtime, runtime, "upgrade", {}, duration_s=60.0)
        assert bool(told["evidence"]) is not off, told
        assert (await spoken(runtime) == 9 < before) is not off
        if off:
            assert "runs what it ran before" in told["error"]
            return
        (step,) = told["evidence"]["steps"]
        assert step["was"]["runs"] != step["is"]["runs"]
        assert step["was"]["speaks"]["versions"] != step["is"]["speaks"]["versions"]
        await runtime.kill(1)
        await runtime.start_node(1)
        assert await spoken(runtime) == 9, "it is kept over later restarts"
        assert (await OneClient(runtime).end("t")) > 0, "and has what the first one had"

    on_upgradable(where, tmp_path, body, another)


@pytest.mark.parametrize("where", ["process", "docker"])
def test_without_a_second_version_there_is_none_to_upgrade_to(where: str, tmp_path: Path) -> None:
    async def body(runtime: Runtime) -> None:
        assert RuntimeCapability.UPGRADE not in runtime.acts
        await runtime.kill(1)
        with pytest.raises(PreconditionError, match="no second"):
            await runtime.upgrade_node(1)
        await runtime.start_node(1)
        assert runtime.state(1) is NodeState.RUNNING

    {"process": our_broker, "docker": our_contained_broker}[where](tmp_path, body)


async def test_what_is_no_other_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="its broker is this one, file by file"):
        second_version(str(PACKAGES), PACKAGES)
    with pytest.raises(PreconditionError, match="no broker/__main__.py"):
        second_version(str(tmp_path), PACKAGES)
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker/__main__.py").touch()
    assert second_version(str(tmp_path), PACKAGES) == tmp_path
    with pytest.raises(
        PreconditionError, match="its broker's files cannot be hurt as this one's.*leave out power_loss"
    ):
        second_version(str(tmp_path), PACKAGES, faulted=True)
    shutil.copytree(PACKAGES / "broker/faulted", tmp_path / "broker/faulted")
    assert second_version(str(tmp_path), PACKAGES, faulted=True) == tmp_path
    await trio.lowlevel.checkpoint()


def test_an_image_that_is_none_or_the_first_one_is_refused() -> None:
    engine, images = engine_and_images()
    with pytest.raises(PreconditionError, match="it is the image that brokers are started from"):
        second_image(engine, images.broker, images, print)
    with pytest.raises(PreconditionError, match="no folder, no image of the engine, and it cannot be pulled"):
        second_image(engine, "127.0.0.1:1/nothing:here", images, print)
