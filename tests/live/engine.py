"""Finds the Docker engine and makes the images for live tests, or remembers why that is impossible."""

from __future__ import annotations

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.engine import ContainerMount, DockerEngine, find_engine
from squall.chaos.toolchain.engine_lacks import engine_lacks, reason
from squall.chaos.toolchain.images import ImageNames, ensure_images
from squall.chaos.toolchain.lacks import one_line
from tests.live.process.conftest import STUB
from tests.support.lacks import skip_without

STUB_INSIDE = ("python", "-P", "/stub_broker.py")
STUB_MOUNT = ContainerMount(STUB[-1], "/stub_broker.py", read_only=True)
"""The mount that brings the stub broker's file into a container."""

_found: list[tuple[DockerEngine, ImageNames] | str] = []
"""The engine and images, or the reason why there are none; empty until the first search."""


def prepare(say: Say) -> None:
    """Find the engine and make the images."""
    if _found:
        return
    try:
        engine = find_engine()
        _found.append((engine, ensure_images(engine, say)))
    except HarnessError as error:
        _found.append(reason(error))


def engine_and_images() -> tuple[DockerEngine, ImageNames]:
    """Return the engine and the images. Skips the test if there are none."""
    prepare(lambda line: None)
    if isinstance(_found[0], str):
        skip_without(f"containers: {_found[0]}", f"as root: {one_line(engine_lacks()) or './squall images'}")
    return _found[0]
