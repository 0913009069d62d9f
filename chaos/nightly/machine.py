"""Finds what this machine lacks for a run of a matrix, without fetching or building anything."""

from __future__ import annotations

import shlex
import shutil
from functools import cache
from pathlib import Path

from squall.chaos.nightly.axes import EXTERNAL
from squall.chaos.nightly.items import PlannedRun

SCRIPTS = (".py", ".java", ".jar", ".js", ".rb", ".sh")


def missing_for(item: PlannedRun, bootstrap: str) -> str:
    """Return in one line why this machine cannot play the run; empty if it can."""
    cell = item.cell
    if cell["runtime"] == EXTERNAL:
        return "" if bootstrap else 'no external cluster is named: bootstrap = "HOST:PORT" in the matrix'
    if cell["runtime"] == "sim":
        return ""
    found = [_client(name) for name in dict.fromkeys((cell.get("client", "squall"), *item.clients))]
    if command := cell.get("command", ""):
        found.append(_program(command))
    if cell["runtime"] == "docker":
        found.append(_engine())
    if cell["target"] == "kafka":
        found.append(_kafka())
    return "; ".join(filter(None, found))


def _program(command: str) -> str:
    """Return which program, or which script among its arguments, does not exist; empty if all exist. Relative paths are
    relative to the current folder.
    """
    first, *words = shlex.split(command)
    if shutil.which(first) is None:
        return f"the program {first} is not there"
    scripts = (word for word in words if Path(word).suffix in SCRIPTS and not word.startswith("-"))
    return next((f"{word} is not there" for word in scripts if not Path(word).exists()), "")


@cache
def _client(name: str) -> str:
    from squall.chaos.drivers.host import client_lacks

    return next((lack.what for lack in client_lacks(name)), "")


@cache
def _engine() -> str:
    from squall.chaos.toolchain.engine_lacks import engine_lacks

    return next((lack.what for lack in engine_lacks()), "")


@cache
def _kafka() -> str:
    from squall.chaos.toolchain.kafka import kafka_lacks

    return "; ".join(lack.what for lack in kafka_lacks())
