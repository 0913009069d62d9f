"""Measures each way to install Squall that README.md names: its size, and its duration with warm caches."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.engine import find_engine
from squall.chaos.toolchain.images import LABEL
from tests.shown.batches import SQUALL, Called, Say
from tests.shown.table import ROOT, Sitting, Table, add

INSTALLS = Table(
    "installs",
    "Size and time of each installation",
    "A row is one way to install Squall, in README.md's words. MB are millions of bytes: all files of a new"
    " environment, with pip, or all layers of an image. pip had all packages in its cache, the engine its base image.",
    ("way", "packages", "MB", "wall s", "Python", "brings"),
    keys=1,
)
README = re.compile(r"^\| `([^`]+)`[^|]*\| ([^|]+) \| ([\d,]+) MB \|$", re.MULTILINE)
IMAGES = {"--harness": "squall/squall", "--standalone": "squall/broker"}
BUILT = re.compile(r"\((\d+) MB, sha256:")
ASK = """import importlib.metadata as found, platform
print(len({each.name for each in found.distributions()} - {"pip", "setuptools"}), platform.python_version())"""


@dataclass(frozen=True, slots=True)
class InstallCommand:
    """A row of README's table: a command, what it installs, and the size in MB that README gives."""

    command: str
    brings: str
    size_mb: int


def ways(readme: str) -> list[InstallCommand]:
    """Return all ways to install that README names, in order."""
    return [
        InstallCommand(command, brings, int(size.replace(",", ""))) for command, brings, size in README.findall(readme)
    ]


def show_installs(word: str, of: Sitting, docs: Path, say: Say) -> list[str]:
    """Measure every way whose command contains `word`. Returns a sentence for each problem."""
    wrong = []
    asked = [way for way in ways((ROOT / "README.md").read_text()) if word in way.command]
    with _clone() as clone:
        if any("images" not in way.command for way in asked):
            say("filling pip's cache: its first installation is not measured")
            _by_pip('pip install ".[all]"', clone)
        for way in asked:
            say(way.command)
            try:
                found = _how(way.command)(way.command, clone)
            except HarnessError as error:
                wrong.append(f"{way.command}: {error}")
                continue
            say(f"  {found.size_mb:,.0f} MB in {found.wall_s:.0f} s")
            figures = (found.packages, f"{found.size_mb:,.0f}", round(found.wall_s), found.python)
            add(INSTALLS, [(f"`{way.command}`", *figures, way.brings)], of, docs)
    return wrong


class Installation(NamedTuple):
    """The measured size and duration of a way to install."""

    packages: str
    size_mb: float
    wall_s: float
    python: str


def _how(command: str) -> Callable[[str, Path], Installation]:
    if command.startswith("pip "):
        return _by_pip
    return _image if "images" in command else _launcher


def _by_pip(command: str, clone: Path) -> Installation:
    """Install into a new environment, and measure it."""
    with tempfile.TemporaryDirectory(prefix="squall-shown-") as folder:
        _ended_well(Called(sys.executable, "-m", "venv", folder))
        words = shlex.split(command)[1:]
        called = _ended_well(Called(f"{folder}/bin/python", "-m", "pip", *words, cwd=clone))
        return _measured(Path(folder), called)


def _launcher(command: str, clone: Path) -> Installation:
    """Let the launcher `./squall` make the clone's `.venv`, and measure it."""
    shutil.rmtree(clone / ".venv", ignore_errors=True)
    called = Called(command, "--version", cwd=clone, environment={**os.environ, "SQUALL_PYTHON": sys.executable})
    return _measured(clone / ".venv", _ended_well(called))


def _measured(environment: Path, called: Called) -> Installation:
    files = (path.lstat() for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    size = sum(each.st_size for each in files)
    packages, python = _printed(str(environment / "bin/python"), "-c", ASK).split()
    return Installation(packages, size / 1e6, called.wall_s, python)


def _image(command: str, clone: Path) -> Installation:
    """Build the checkout's container image without cached layers, and measure it. Raises PreconditionError if there is
    no Docker engine or no program docker.
    """
    (flag,) = IMAGES.keys() & set(command.split())
    engine = find_engine()
    _ended_well(Called(SQUALL, "images"))  # which the broker's image is made of
    for image in engine.images(f"{LABEL}={flag[2:]}"):
        engine.forget_image(image["Id"])
    called = _ended_well(Called(*command.split()))
    size = BUILT.search(called.said)
    assert size is not None, called.said
    packages, python = _printed("docker", "run", "--rm", "--entrypoint", "python", IMAGES[flag], "-c", ASK).split()
    return Installation(packages, float(size[1]), called.wall_s, python)


@contextmanager
def _clone() -> Iterator[Path]:
    """Yield a fresh clone of the checkout's commit."""
    with tempfile.TemporaryDirectory(prefix="squall-shown-") as folder:
        subprocess.run(["git", "clone", "--quiet", ROOT, f"{folder}/squall"], check=True)
        yield Path(folder) / "squall"


def _ended_well(called: Called) -> Called:
    if called.code:
        raise HarnessError(f"exit code {called.code}: {called.said[-1000:]}")
    return called


def _printed(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise HarnessError(f"cannot ask {command[0]} for its packages: {error}") from error
