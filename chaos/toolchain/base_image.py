"""Provides the base image, Debian with Python: from the engine, else pulled from a registry, else made here."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain.cache import Say, cache_folder, remove, run
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.lacks import MissingDependency, refuse
from squall.chaos.typed import typed

NAMED = "SQUALL_BASE_IMAGE"
PACKAGES = ("python3", "python3-venv", "iptables")
TAG = "squall-base:{suite}-1"
"""Names the image that is made here. The number in the name is raised when the recipe changes."""
OFFICIAL, VERSION = "python:{version}-slim", f"{sys.version_info[0]}.{sys.version_info[1]}"
NEEDLESS = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
STAGES = {
    "Retrieving": "fetching packages",
    "Extracting": "unpacking",
    "Unpacking": "unpacking",
    "Configuring": "setting up",
}


def base_image(engine: DockerEngine, say: Say) -> tuple[str, str]:
    """Return (name, id) of an image with Python 3.11 or newer, its venv module and glibc.

    The environment variable SQUALL_BASE_IMAGE names the image. Without it, the image is the one that was made here
    before, else Python's official slim image, else one of Debian's packages that debootstrap makes (as root, once, in a
    minute to three). Raise PreconditionError if there is none.
    """
    if given := os.environ.get(NAMED):
        if ":" not in given.rpartition("/")[2]:
            given += ":latest"
        if engine.image(given) is None and not engine.pull(given):
            raise PreconditionError(f"{NAMED} is {given}: the engine does not have it, and it cannot be pulled")
        return _known(engine, given)
    suite = _suite()
    made = TAG.format(suite=suite)
    official = OFFICIAL.format(version=VERSION)
    for name in (made, official):
        if engine.image(name) is not None:
            return _known(engine, name)
    say(f"pulling the base image {official} (once)")
    if engine.pull(official):
        return _known(engine, official)
    say("no registry answers: the base image is made of Debian's packages (once; a minute to three)")
    _make(engine, made, suite, say)
    return _known(engine, made)


def _known(engine: DockerEngine, name: str) -> tuple[str, str]:
    found = engine.image(name)
    assert found is not None, "it was just found, pulled or made"
    return name, found


def _suite() -> str:
    """Return the Debian suite for the image: the codename of this machine's release, such as "trixie", or "bookworm" if
    it has none.
    """
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "bookworm"
    return release.get("VERSION_CODENAME") or "bookworm"


def _make(engine: DockerEngine, tag: str, suite: str, say: Say) -> None:
    program = shutil.which("debootstrap")
    lacks = []
    if program is None:
        lacks.append(MissingDependency("debootstrap, for the base image: no registry answers", ("debootstrap",)))
    if os.getuid() != 0:
        lacks.append(MissingDependency("root, once, to make the base image by debootstrap", (), typed("images")))
    lacks += (
        [MissingDependency(f"or the name of an image that has Python 3.11 or newer: {NAMED}=NAME:TAG")] if lacks else []
    )
    refuse("an image for containers", lacks)
    assert program is not None
    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=".base-image-", dir=_scratch_folder()))
    try:
        _debootstrap(program, suite, scratch / "root", say)
        for each in NEEDLESS:
            shutil.rmtree(scratch / "root" / each, ignore_errors=True)
        say("giving it to the engine")
        archive = scratch / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(scratch / "root", arcname=".", filter=_without_devices)
        with archive.open("rb") as file:
            engine.import_image(tag, file, ["LABEL squall.image=base", "ENV LANG=C.UTF-8"])
    finally:
        _unmount(scratch / "root")
        remove(scratch)
    say(f"made the base image in {time.monotonic() - began:.0f} s")


def _unmount(root: Path) -> None:
    """Unmount /proc and /sys, which an interrupted debootstrap leaves mounted in its tree."""
    for each in ("proc", "sys"):
        if os.path.ismount(root / each):
            run(["umount", "--recursive", str(root / each)], what="the unfinished base image could not be taken apart")


def _scratch_folder() -> Path:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _debootstrap(program: str, suite: str, root: Path, say: Say) -> None:
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command = [program, *options, suite, str(root), *_mirror(suite)]
    stage, last = "", ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as popen:
        assert popen.stdout is not None
        try:
            for line in popen.stdout:
                last = line.strip() or last
                now = STAGES.get(last.removeprefix("I: ").partition(" ")[0], stage)
                if now != stage:
                    stage = now
                    say(f"  {stage}")
        except BaseException:
            popen.kill()
            raise
    if popen.returncode:
        raise HarnessError(f"the base image could not be made: debootstrap ended with {popen.returncode}: {last}")


def _mirror(suite: str) -> list[str]:
    """Return the mirror from which this machine gets its own packages of this suite. Return [] if apt knows none, so
    that debootstrap uses its default.
    """
    try:
        said = run(["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)"], what="apt-get")
    except HarnessError:
        return []
    lines = (line.split() for line in said.splitlines())
    return next(([words[2]] for words in lines if words[:2] == [suite, "main"]), [])


def _without_devices(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.isdev() and not entry.isfile() else entry
