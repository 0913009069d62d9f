"""The Docker engine and the images that live tests use, or why there are none."""

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
"""The stub in a container: what is run, and how it comes there."""

_found: list[tuple[DockerEngine, ImageNames] | str] = []
"""What was found, or why nothing: looked for once."""


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
    """For tests in containers; skips them where there can be none."""
    prepare(lambda line: None)
    if isinstance(_found[0], str):
        skip_without(f"containers: {_found[0]}", f"as root: {one_line(engine_lacks()) or './squall images'}")
    return _found[0]
