"""Registers the OS processes and ports of each run, so that leftovers of an interrupted run can be found and ended.

Each run has one JSON file in the cache folder. An OS process is treated as part of a run only if its pid, start time
and boot are those in the run's file, and its environment names the run. So no other process is ever signalled.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from squall.chaos.runtimes.real.proc import ProcessId, environment, identify, is_alive, namespace
from squall.chaos.toolchain.cache import cache_folder

MARK = "SQUALL_RUN"
"""Names the environment variable that every OS process of a run has; its value is the run's id."""


@dataclass(frozen=True, slots=True)
class RegisteredProcess:
    """Describes a process of a run, as the run's registry file lists it."""

    what: str
    process: ProcessId


@dataclass(slots=True)
class RunRegistryFile:
    """Holds the content of a run's registry file. `folder` is the run directory; `ports` are reserved for the run for
    as long as its harness is alive.
    """

    run: str
    folder: str
    harness: ProcessId
    ports: list[int]
    processes: list[RegisteredProcess]
    hurt: list[str] = field(default_factory=list)
    """Names the containers of somebody else's cluster that the run has stopped or paused, and not yet restored."""
    namespace: str = ""
    """Names the pid namespace in which the pids are valid."""


@dataclass(frozen=True, slots=True)
class RegisteredRun:
    """Describes one run of the registry. `processes` are those that are still alive."""

    run: str
    folder: str
    harness_alive: bool
    processes: tuple[RegisteredProcess, ...]
    path: Path
    hurt: tuple[str, ...] = ()
    """Names the containers of somebody else's cluster that the run has stopped or paused, and not yet restored."""
    namespace: str = ""
    """Names the pid namespace of the run's processes: their pids are valid only there."""


class RunRegistration:
    """Maintains this run's registry file. Each change replaces the whole file, so a reader never sees half of it.

    The constructor first calls `sweep`, which ends the processes of earlier runs whose harness was killed.
    """

    def __init__(self, run: str, folder: Path) -> None:
        harness = identify(os.getpid())
        assert harness is not None, "this process is alive"
        sweep()
        self._file = RunRegistryFile(run, str(folder), harness, [], [], namespace=namespace())
        self._path = _runs_folder() / f"{run}.json"

    @property
    def run(self) -> str:
        """Returns the run's id."""
        return self._file.run

    def claim_ports(self, ports: list[int]) -> None:
        """Reserve these ports for this run. Call it within `locked()`, after checking that they are not among
        `claimed_ports`.
        """
        self._file.ports += ports
        self._write()

    def add(self, what: str, pid: int) -> None:
        """Note a process that was just started, and forget processes that have ended. what: its description, such as
        "broker 1".
        """
        noted = [each for each in self._file.processes if is_alive(each.process)]
        process = identify(pid)
        self._file.processes = [*noted, RegisteredProcess(what, process)] if process is not None else noted
        self._write()

    def hurt(self, container: str) -> None:
        """Note that a container that is not Squall's own is going to be stopped or paused. Call it before the act, so
        that `squall clean` can restore the container if the harness is killed.
        """
        self._file.hurt = sorted({*self._file.hurt, container})
        self._write()

    def healed(self, container: str) -> None:
        """Note that the container runs again."""
        self._file.hurt = [each for each in self._file.hurt if each != container]
        self._write()

    def close(self) -> None:
        """Remove the file: the run has ended and left nothing behind."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self._file))
        fresh.replace(self._path)


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock for choosing ports inside this block. One OS process at a time has it on this machine."""
    folder = _runs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def claimed_ports() -> set[int]:
    """Return the ports of every run whose harness is alive."""
    return {port for _, file in _files() if is_alive(file.harness) for port in file.ports}


def runs() -> list[RegisteredRun]:
    """Return every run that has a registry file."""
    found = []
    for path, file in _files():
        ours = tuple(noted for noted in file.processes if _is_ours(noted.process, file.run))
        hurt = tuple(file.hurt)
        found.append(RegisteredRun(file.run, file.folder, is_alive(file.harness), ours, path, hurt, file.namespace))
    return found


def end(run: RegisteredRun) -> list[str]:
    """Kill the processes that a run left behind, and forget the run. Returns the ended processes, each as "broker 1
    (pid 4711)".
    """
    assert not run.harness_alive, "a run that is under way ends its own processes"
    ended = []
    for noted in run.processes:
        # Asked again at the last moment: the pid may have become somebody else's since it was listed.
        if _is_ours(noted.process, run.run):
            os.kill(noted.process.pid, signal.SIGKILL)
            ended.append(f"{noted.what} (pid {noted.process.pid})")
    run.path.unlink(missing_ok=True)
    return ended


def sweep() -> list[str]:
    """End and forget the leftovers of runs whose harness was killed. Returns the ended processes, as `end` does.

    Two kinds of runs are left to `squall clean`: runs that have stopped or paused containers of somebody else's
    cluster, and runs of another pid namespace, because whether their harness runs cannot be checked here.
    """
    gone = [each for each in runs() if not each.harness_alive and not each.hurt and each.namespace == namespace()]
    return [ended for each in gone for ended in end(each)]


def _is_ours(process: ProcessId, run: str) -> bool:
    return is_alive(process) and environment(process.pid).get(MARK) == run


def _files() -> list[tuple[Path, RunRegistryFile]]:
    """Return every registry file, parsed. Skips a file that is being removed, or that this version cannot parse."""
    files = []
    for path in sorted(_runs_folder().glob("*.json")):
        try:
            files.append((path, msgspec.json.decode(path.read_bytes(), type=RunRegistryFile)))
        except (OSError, msgspec.DecodeError):
            continue
    return files


def _runs_folder() -> Path:
    return cache_folder() / "runs"
