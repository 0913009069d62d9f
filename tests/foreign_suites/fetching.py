"""Downloads a suite from the registry where its authors publish it, by that registry's own client, into the cache."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.cache import remove, run

SOURCE = "source"
"""Folder of the suite's files, as published."""
PROGRAM = "suite.test"
"""File name of a compiled Go suite."""
SERVICE = Path(__file__).parent / "supplied/service.py"


def go_lacks() -> str:
    """Return why this machine cannot run a Go suite; empty if it can."""
    return "" if shutil.which("go") else "needs Go (go.dev/dl) on PATH"


def go_suite(module: str, version: str, package: str, folder: Path) -> None:
    """Fetch a Go module and compile the tests of one of its packages. Raises HarnessError if that is not possible.

    Go's client checks the module against the public checksum database, and its dependencies against its own go.sum.
    """
    scratch = folder / "scratch"
    environment = {
        "GOPATH": str(scratch / "path"),
        "GOFLAGS": "-modcacherw -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    said = run(["go", "mod", "download", "-json", f"{module}@{version}"], what="go mod download", env=environment)
    shutil.copytree(json.loads(said)["Dir"], folder / SOURCE)
    # kafka-go's go.mod is not tidy, and Go would change it: what it changes is a copy.
    for name in ("go.mod", "go.sum"):
        shutil.copy(folder / SOURCE / name, scratch / name)
    flags = ["-mod=mod", f"-modfile={scratch / 'go.mod'}", "-o", str(folder / PROGRAM)]
    run(
        ["go", "-C", str(folder / SOURCE / package), "test", "-c", *flags, "."],
        what="go test -c",
        env=environment,
    )
    remove(scratch)


def kafka_python(package: str, version: str, folder: Path) -> None:
    """Fetch a suite as `python_suite` does, and add two files that the distribution omits: the tests' `__init__.py` and
    one module.
    """
    python_suite(package, version, folder)
    tests = folder / SOURCE / "test"
    for name, content in (("__init__.py", ""), ("service.py", SERVICE.read_text())):
        assert not (tests / name).exists(), f"{package} {version} has a {name} of its own"
        (tests / name).write_text(content)


def python_suite(package: str, version: str, folder: Path) -> None:
    """Download and unpack the package's source distribution. Raises HarnessError if that is not possible."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    distribution = ["--no-deps", "--no-binary", package, f"{package}=={version}"]
    run([*pip, "download", "--dest", str(folder), *distribution], what="pip download")
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder / "unpacked")
    (only,) = (folder / "unpacked").iterdir()
    only.rename(folder / SOURCE)
    (folder / "unpacked").rmdir()
    if not any((folder / SOURCE).glob("test*/**/test_*.py")):
        raise HarnessError(f"{package} {version} is published without its tests")
