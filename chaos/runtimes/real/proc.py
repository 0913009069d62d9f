"""Reads the kernel's reports of an OS process, and identifies a process uniquely although pids are reused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies one OS process of this machine uniquely. A pid alone does not, because it is used again; together with
    the start time and the boot's id it does.
    """

    pid: int
    start_ticks: int
    """Counts clock ticks from boot to the process's start: field 22 of /proc/PID/stat."""
    boot: str
    """Names the kernel's boot, by its boot_id: after a reboot, another process may have the same pid and start time."""


def boot_id() -> str:
    """Return the id of this boot of the kernel."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def namespace() -> str:
    """Return the id of this OS process's pid namespace. In another namespace (a container) the same pid means another
    process.
    """
    try:
        return os.readlink(PROC / "self/ns/pid")
    except OSError:
        return ""


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this pid now. None if there is none, or only a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return ProcessId(pid, int(fields[19]), boot_id())


def is_alive(process: ProcessId) -> bool:
    """Return True while exactly this process runs or is stopped."""
    return identify(process.pid) == process


def run_state(pid: int) -> str | None:
    """Return the kernel's letter for the process: R running, S sleeping, D waiting for a device, T stopped, Z zombie.
    None if the process is gone.
    """
    fields = _stat(pid)
    return None if fields is None else fields[0]


def environment(pid: int) -> dict[str, str]:
    """Return the process's environment at its start; empty if the process is gone or belongs to another user."""
    try:
        data = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (the state) on. The second field, the name, may contain blanks
    and brackets.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
