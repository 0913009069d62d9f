"""A group's member by franz-go, built by the Go on PATH; `main.go` is it."""

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
    """Go is too old, or what the member is built of cannot be fetched."""


@cache
def franz_member() -> Path | str:
    """The program, built once into the cache folder; where it cannot be had, the reason to skip its test.

    Raises HarnessError where everything is here and the program does not compile.
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
