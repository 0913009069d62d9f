"""Checks which Python will do: ranks of those that were tried, those that were not, and those that are too old."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from squall.chaos.toolchain import interpreter
from squall.chaos.toolchain.interpreter import BEST, NEWEST, NO_VENV, OLDEST, SLOWER, UNTRIED, is_optimised, rank

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("version", "optimised", "has_venv", "expected"),
    [
        ((3, 10), True, True, None),
        ((3, 11), True, True, BEST),
        ((3, 14), True, True, BEST),
        ((3, 14), False, True, SLOWER),
        ((3, 15), True, True, UNTRIED),
        ((4, 0), True, True, UNTRIED),
        ((3, 13), True, False, NO_VENV),
    ],
)
def test_rank(version: tuple[int, int], optimised: bool, has_venv: bool, expected: int | None) -> None:
    assert rank(version, optimised=optimised, has_venv=has_venv) == expected


def test_a_build_tells_that_it_is_optimised_or_is_a_distributions() -> None:
    assert is_optimised("'--enable-optimizations' '--with-lto'", "/opt/python")
    assert is_optimised("'--enable-shared' '--prefix=/usr'", "/usr")
    assert not is_optimised("'--prefix=/usr/local'", "/usr/local")


def test_as_a_program_it_tells_rank_version_and_path() -> None:
    command = [sys.executable, "-I", interpreter.__file__]
    found, version, path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(found) in (BEST, SLOWER, UNTRIED)
    assert version == "{}.{}".format(*sys.version_info)
    assert path == sys.executable


def test_every_place_that_names_versions_names_these() -> None:
    oldest, newest = ("{}.{}".format(*each) for each in (OLDEST, NEWEST))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={oldest}"
    script = (ROOT / "squall").read_text()
    assert f"needs Python {oldest} or newer" in script
    assert f"{oldest} to {newest}: trying it" in script
    assert f"Python {oldest} to {newest} with `venv`" in (ROOT / "README.md").read_text()
