"""Checks what is printed if containers cannot be had: everything at once, and one line that gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain import engine_lacks
from squall.chaos.toolchain.lacks import MissingDependency, one_line, refuse


def test_everything_that_an_ordinary_user_lacks_for_containers_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr(engine_lacks.os, "getuid", lambda: 4242)
    lacks = engine_lacks.engine_lacks()
    assert [lack.what.split(":")[0].split(",")[0] for lack in lacks] == [
        "no Docker engine",
        "its images",
        "the right to use it",
    ]
    assert one_line(lacks) == "compose/engine.sh && ./squall images && usermod -aG docker 4242"


def test_root_lacks_only_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr(engine_lacks.os, "getuid", lambda: 0)
    assert one_line(engine_lacks.engine_lacks()) == "compose/engine.sh"


def test_an_engine_that_is_somebody_elses_needs_only_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "theirs.sock"
    path.touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setattr(engine_lacks.os, "access", lambda path, mode: False)
    (lack,) = engine_lacks.engine_lacks()
    assert lack.command.startswith("usermod -aG ")


def test_an_engine_elsewhere_is_no_matter_of_installing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    (lack,) = engine_lacks.engine_lacks()
    assert "need an engine of this machine" in lack.what
    assert one_line([lack]) == ""


def test_a_refusal_names_each_thing_and_ends_with_one_line_for_all() -> None:
    with pytest.raises(PreconditionError) as refused:
        refuse(
            "this run",
            [
                MissingDependency("x", ("a", "b")),
                MissingDependency("y"),
                MissingDependency("z", ("b", "c"), "start"),
                MissingDependency("w", (), "start"),
            ],
        )
    assert str(refused.value).splitlines() == [
        "this run needs what is not here:",
        *("  x", "  y", "  z", "  w"),
        "get it: as root: apt-get install -y a b c && start",
    ]
    refuse("this run", [])
