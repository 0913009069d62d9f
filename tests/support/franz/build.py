"""Builds `main.go`, a consumer group member that uses the Go client franz-go, with the Go on PATH."""

from __future__ import annotations

import hashlib
import shutil
from functools import cache
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.cache import installed, remove, run
from tests.support.lacks import without

HERE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go")
NEEDS_GO = "Go 1.24 or newer, and Go's modules"
GET_GO = "put one on PATH, from go.dev/dl"


class NoModulesError(Exception):
    """Go is too old, or the Go modules of the member cannot be fetched."""


@cache
def franz_member() -> Path | str:
    """Return the program, built once into the cache folder. If it cannot be built here, return the reason to skip the
    test.

    Raises HarnessError if everything is here and the program does not compile.
    """
    go = shutil.which("go")
    if go is None:
        return without(NEEDS_GO, GET_GO)
    digest = hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in SOURCES)).hexdigest()
    try:
        return installed(f"franz-member-{digest[:16]}", lambda folder: _build(go, folder)) / "member"
    except NoModulesError as why:
        return without(f"{NEEDS_GO} ({str(why).splitlines()[-1]})", GET_GO)


def _build(go: str, folder: Path) -> None:
    scratch = folder / "scratch"
    environment = {
        "CGO_ENABLED": "0",
        "GOPATH": str(scratch / "path"),
        "GOCACHE": str(scratch / "cache"),
        "GOFLAGS": "-modcacherw -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    try:
        run([go, "-C", str(HERE), "mod", "download"], what="go mod download", env=environment, timeout_s=120)
    except HarnessError as error:
        raise NoModulesError(str(error)) from error
    run([go, "-C", str(HERE), "build", "-o", str(folder / "member"), "."], what="go build", env=environment)
    remove(scratch)
