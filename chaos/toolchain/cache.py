"""Installs tools into the cache folder. A folder appears there only when it is complete."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from squall.chaos.errors import HarnessError

WHEELS = Path(__file__).parent / "wheels"
Say = Callable[[str], None]


def cache_folder() -> Path:
    """Return the folder of tools and of the registry of runs: $SQUALL_CACHE, else squall/ in the user's cache folder.
    """
    if given := os.environ.get("SQUALL_CACHE"):
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "squall"


def installed(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache; if it is not there yet, `build(folder)` makes it first.

    The folder is built beside its place and renamed into it, under a lock: another process sees all of it or nothing,
    and an interrupted build leaves only a temporary folder, which the next build removes. Raise what `build` raises.
    """
    place = cache_folder() / name
    if place.is_dir():
        return place
    with locked(name):
        if place.is_dir():
            return place
        for stale in place.parent.glob(f".{place.name}.new-*"):
            remove(stale)
        folder = Path(tempfile.mkdtemp(prefix=f".{place.name}.new-", dir=place.parent))
        try:
            build(folder)
            folder.chmod(0o755)
            folder.rename(place)
        except BaseException:
            remove(folder)
            raise
    return place


def unpack_wheel(name: str, into: Path) -> None:
    """Install the pinned wheel `name` (wheels/NAME.txt holds its version and hashes) into the folder `into`.

    The wheel is never installed into our own environment, because it has hundreds of megabytes that only some machines
    need. If pip fails, raise HarnessError with the end of its output.
    """
    arguments = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-compile", "--target", str(into)]
    run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
        + ["--requirement", str(WHEELS / f"{name}.txt")],
        what=f"the {name} wheel could not be installed",
    )


def run(arguments: list[str], *, what: str, env: dict[str, str] | None = None, timeout_s: float = 900) -> str:
    """Run a program and return its output. Raise HarnessError, beginning with `what`, unless it exits with 0 in time.
    """
    try:
        done = subprocess.run(
            arguments,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{what}: {error}") from error
    if done.returncode:
        raise HarnessError(f"{what}: {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def remove(folder: Path) -> None:
    """Remove a folder, even if parts of it are read-only, as in Go's module cache."""

    def unlock(function: Callable[[str], object], path: str, _: object) -> None:
        os.chmod(os.path.dirname(path), 0o700)
        function(path)

    shutil.rmtree(folder, onerror=unlock)


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Lock `name` in the cache against other processes during the block, and yield its path."""
    place = cache_folder() / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f".{place.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield place
