"""Finds what a run has left on the machine: processes, containers, networks, volumes, iptables rules, mounts, files,
entries in the registry of runs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.docker import labels
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.toolchain.engine import SOCKET, reach_engine

MARK = "SQUALL_SHOWN"
"""Environment variable of a run and of all processes that it starts. Its value is the run's folder."""
BRIDGE = re.compile(r"\bbr-[0-9a-f]{12}\b")
HALF_WRITTEN = (".reserve*", "*.new", ".writable-*", ".base-image-*")
POLL_S = 0.25


def left(
    folder: Path, temporary: Path, limit_s: float, socket: Path = Path(SOCKET), inside: Sequence[str] = ()
) -> list[str]:
    """Return what the run in `folder` has left. Waits up to `limit_s` until nothing is left, because watchdogs need
    time.

    temporary: the run's TMPDIR. socket: that of the Docker engine it used. inside: the prefix of commands that see its
    network namespace.
    """
    looks: tuple[Callable[[], list[str]], ...] = (
        lambda: processes(folder),
        lambda: registrations(folder),
        lambda: in_engine(folder, socket),
        lambda: packet_rules(inside),
        lambda: mounts(folder),
        lambda: files(folder, temporary),
    )
    deadline = time.monotonic() + limit_s
    while True:
        found = [each for look in looks for each in look()]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def processes(folder: Path) -> list[str]:
    """Return processes whose environment or command line names the folder, except this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = f"{MARK}={folder}".encode() in environment or f"{folder}/" in line
        if ours and int(entry.name) != os.getpid():
            found.append(f"process {entry.name}: {line[:120]}")
    return found


def registrations(folder: Path) -> list[str]:
    """Return entries of this folder in the registry of runs."""
    return [
        f"registration {each.path.name} with {len(each.processes)} processes"
        for each in registry.runs()
        if Path(each.folder).is_relative_to(folder)
    ]


def in_engine(folder: Path, socket: Path) -> list[str]:
    """Return containers, networks and volumes whose label names a folder below this one. Empty if no engine answers."""
    try:
        engine = reach_engine(f"unix://{socket}")
    except HarnessError:
        return []
    try:
        kinds = {
            "container": engine.containers(labels.RUN),
            "network": engine.networks(labels.RUN),
            "volume": engine.volumes(labels.RUN),
        }
    finally:
        engine.close()
    return [
        f"{kind} {_name(each)}"
        for kind, all_of_kind in kinds.items()
        for each in all_of_kind
        if Path(each["Labels"].get(labels.FOLDER, "/")).is_relative_to(folder)
    ]


def _name(listed: dict[str, object]) -> object:
    names = listed.get("Names")
    return names[0].lstrip("/") if isinstance(names, list) else listed["Name"]


def packet_rules(inside: Sequence[str]) -> list[str]:
    """Return iptables rules for the bridge of a network that no longer exists. Empty without root."""
    program = shutil.which("iptables-save")
    if program is None or os.geteuid() != 0:
        return []
    # Asked in this order: a network that comes meanwhile has its bridge before its rules.
    rules = subprocess.run([*inside, program], capture_output=True, text=True).stdout.splitlines()
    bridges = subprocess.run([*inside, "cat", "/proc/net/dev"], capture_output=True, text=True).stdout
    return [f"rule {line}" for line in rules if (bridge := BRIDGE.search(line)) and bridge[0] not in bridges]


def mounts(folder: Path) -> list[str]:
    """Return file systems mounted below the run directory, `runs/latest`. Mounts elsewhere belong to this test program.
    """
    lines = Path("/proc/mounts").read_text().splitlines()
    places = [line.split()[1] for line in lines]
    return [f"mount {place}" for place in places if Path(place).is_relative_to(folder / "runs" / "latest")]


def files(folder: Path, temporary: Path) -> list[str]:
    """Return half-written files of the run directory, and everything in its TMPDIR."""
    half = [path for pattern in HALF_WRITTEN for path in (folder / "runs").rglob(pattern)]
    return [f"file {path}" for path in (*sorted(half), *sorted(temporary.iterdir()))]
