"""Records which other programs used the CPU during a measurement, and which Python ran it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from squall.chaos.toolchain.interpreter import optimised_here

MAX_NAMED = 3
"""Limits how many other programs `usage_report` names. It names those that used the CPU most."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Holds the parent, the name and the used CPU seconds of a process, from /proc."""

    parent: int
    name: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class CpuSnapshot:
    """Holds CPU use at one moment: that of every process by pid, and the CPU seconds so far of the whole machine and of
    this process with its ended children.
    """

    at_s: float
    busy_s: float
    own_s: float
    processes: Mapping[int, ProcessUsage]


def snapshot() -> CpuSnapshot:
    """Take a snapshot of all processes and of the CPU seconds used so far."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        fields = rest.split()
        used = (int(fields[11]) + int(fields[12])) / TICKS
        found[int(path.parent.name)] = ProcessUsage(int(fields[1]), head.partition("(")[2], used)
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:8])
    own = sum(each.ru_utime + each.ru_stime for each in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))
    return CpuSnapshot(time.monotonic(), (user + nice + system + sum(interrupts)) / TICKS, own, found)


def others(before: CpuSnapshot, after: CpuSnapshot, own: int) -> list[tuple[str, float]]:
    """Return the programs that are no descendants of `own`, as (name, cores used between two snapshots), highest first.
    Programs that began and ended between the snapshots are missing.
    """
    took = max(after.at_s - before.at_s, 1e-3)
    used: dict[str, float] = {}
    for pid, process in after.processes.items():
        if _descends(pid, own, after.processes):
            continue
        earlier = before.processes.get(pid)
        spent = process.cpu_s - (earlier.cpu_s if earlier is not None and earlier.name == process.name else 0.0)
        used[process.name] = used.get(process.name, 0.0) + spent / took
    return sorted(used.items(), key=lambda item: -item[1])


def _descends(pid: int, ancestor: int, processes: Mapping[int, ProcessUsage]) -> bool:
    while pid and pid != ancestor:
        process = processes.get(pid)
        pid = process.parent if process is not None else 0
    return pid == ancestor


def usage_report(before: CpuSnapshot, after: CpuSnapshot, own: int) -> str:
    """Return two lines of text: the Python of the measurement, and the CPU use of other programs."""
    found = others(before, after, own)
    used = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    busy = max(used / max(after.at_s - before.at_s, 1e-3), sum(cores for _, cores in found))
    built = "built with optimisation" if optimised_here() else "no optimised build"
    most = ", ".join(f"{name} {cores:.2f}" for name, cores in found[:MAX_NAMED] if cores >= 0.01)
    return (
        f"Measured with Python {platform.python_version()} ({built}) on {os.cpu_count()} cores.\n"
        f"Other programs used {busy:.2f} cores meanwhile{f': {most}' if most else ''}."
    )
