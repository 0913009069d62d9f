"""Installs Squall's package into environments of its own with pip, for each Python on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from squall.chaos.toolchain.cache import cache_folder
from tests.support.lacks import skip_without

ROOT = Path(__file__).resolve().parents[2]
RANGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class Installed:
    """An environment with Squall. `what` is an extra such as `[run]`, or empty for the package without extras."""

    def __init__(self, folder: Path, what: str, *words: str, python: str = sys.executable) -> None:
        self.folder, self.home = folder / "venv", folder / "home"
        self.home.mkdir()
        subprocess.run([python, "-m", "venv", "--symlinks", self.folder], check=True)
        self.pip(f"{ROOT}{what}", *words)

    def python(
        self, *arguments: str, path: bool = False, where: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python in the folder `where`, by default an empty home folder. With `path` it finds the
        programs on PATH and in Squall's cache; else it finds no program, so no Java either.
        """
        here = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        here["SQUALL_CACHE"] = str(cache_folder())
        environment = here if path else {"PATH": str(self.folder / "bin")}
        environment |= {"HOME": str(self.home), "COLUMNS": "200"}
        command = [self.folder / "bin/python", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=where or self.home)

    def squall(self, *arguments: str, path: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the program `squall` that pip has installed."""
        return self.python(str(self.folder / "bin/squall"), *arguments, path=path)

    def packages(self) -> Path:
        """Return the environment's site-packages."""
        return Path(self.python("-c", "import squall; print(squall.__path__[0])").stdout.strip()).parent

    def pip(self, *words: str) -> None:
        """Run `pip install`. Skips the test if no package index can be reached."""
        done = self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words, path=True)
        if "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr:
            skip_without("a package index", "a network that pip reaches")
        assert done.returncode == 0, done.stderr


def python_of(version: str) -> str:
    """Return an interpreter of this version: the running one, one on PATH, or one of pyenv. Skips the test if there is
    none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [sys.executable, shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python3")]
    for each in filter(None, found):
        # What pyenv has on PATH may refuse to be any version at all.
        done = subprocess.run([each, "-c", f"import venv, ensurepip; {VERSION}"], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return str(each)
    skip_without(f"Python {version} with venv", f"pyenv install {version}")


def lowest() -> dict[str, str]:
    """Return the lowest permitted version of each dependency in pyproject.toml, by normalised package name."""
    texts = [*RANGES["dependencies"], *(each for extra in RANGES["optional-dependencies"].values() for each in extra)]
    ranges = {canonicalize_name(each.name): each.specifier for each in map(Requirement, texts) if each.specifier}
    return {name: next(each.version for each in ours if each.operator == ">=") for name, ours in ranges.items()}
