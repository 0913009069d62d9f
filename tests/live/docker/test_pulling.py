"""Pulling the base image from a registry that serves it, and from one that serves it wrongly or not at all."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain import base_image as module
from squall.chaos.toolchain.base_image import NAMED, base_image
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.images import ImageNames, second_image
from tests.support.clusters.registry import Image, registry
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason=without("amd64: the image is for it", "another machine")
)

NAME = "library/python:3-slim"
THIS = Image("this one")
BROKEN = Image("another one", broken=True)


@pytest.fixture
def server(engine: DockerEngine) -> Iterator[tuple[str, list[str]]]:
    """Start a registry. Yields its address and the list of requested paths; pulled images are removed afterwards."""
    with registry({NAME: THIS, "broken:1": BROKEN}) as (address, asked):
        yield address, asked
        for name in (NAME, "broken:1"):
            engine.forget_image(f"{address}/{name}")


def test_a_named_base_image_is_pulled_once(
    engine: DockerEngine, server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, asked = server
    monkeypatch.setenv(NAMED, f"{address}/{NAME}")
    assert base_image(engine, print) == (f"{address}/{NAME}", THIS.id)
    assert f"/v2/{NAME.partition(':')[0]}/manifests/3-slim" in asked
    asked.clear()
    assert base_image(engine, print) == (f"{address}/{NAME}", THIS.id)
    assert asked == []


def test_the_official_image_is_pulled_where_a_registry_answers_and_none_is_made(
    engine: DockerEngine, server: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.delenv(NAMED, raising=False)
    monkeypatch.setattr(module, "TAG", "squall-base:there-is-none-of-{suite}")
    monkeypatch.setattr(module, "OFFICIAL", f"{server[0]}/library/python:{{version}}-slim")
    monkeypatch.setattr(module, "VERSION", "3")
    monkeypatch.setattr(module, "_make", lambda *given: pytest.fail("it was made all the same"))
    assert base_image(engine, said.append) == (f"{server[0]}/{NAME}", THIS.id)
    assert said == [f"pulling the base image {server[0]}/{NAME} (once)"]


@pytest.mark.parametrize("name", ["broken:1", "nothing:1"])
def test_a_registry_without_it_or_with_half_of_it_is_one_that_does_not_answer(
    engine: DockerEngine, server: tuple[str, list[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    assert not engine.pull(f"{server[0]}/{name}")
    monkeypatch.setenv(NAMED, f"{server[0]}/{name}")
    with pytest.raises(PreconditionError, match="the engine does not have it, and it cannot be pulled"):
        base_image(engine, print)
    monkeypatch.delenv(NAMED)
    monkeypatch.setattr(module, "TAG", "squall-base:there-is-none-of-{suite}")
    monkeypatch.setattr(module, "OFFICIAL", f"{server[0]}/{name}")
    monkeypatch.setattr(module, "_make", lambda engine, tag, suite, say: made.append(tag))
    monkeypatch.setattr(module, "_known", lambda engine, name: (name, "made"))
    assert base_image(engine, print) == (made[0], "made")


def test_a_second_version_is_pulled_as_well(
    engine: DockerEngine, found: tuple[DockerEngine, ImageNames], server: tuple[str, list[str]], tmp_path: Path
) -> None:
    assert second_image(engine, f"{server[0]}/{NAME}", found[1], print) == THIS.id
