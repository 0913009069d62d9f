"""Registers the processes and ports of each run, so that what an interrupted run left behind can be found and ended.

There is one JSON file a run in the cache folder. A process is ours if its pid, its start time and the boot are those
noted, and its environment names the run: nothing else is ever signalled.
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
"""Environment variable of every process of a run; its value is the run's id."""


@dataclass(frozen=True, slots=True)
class RegisteredProcess:
    """A process of a run, as its file has it."""

    what: str
    process: ProcessId


@dataclass(slots=True)
class RunRegistryFile:
    """A run's file. `folder` is the run directory; `ports` are held by the run for as long as its harness is alive."""

    run: str
    folder: str
    harness: ProcessId
    ports: list[int]
    processes: list[RegisteredProcess]
    hurt: list[str] = field(default_factory=list)
    """Containers of somebody else's that it has down or paused."""
    namespace: str = ""
    """In which the pids are these processes."""


@dataclass(frozen=True, slots=True)
class RegisteredRun:
    """One run of the registry. `processes` are those that are still alive."""

    run: str
    folder: str
    harness_alive: bool
    processes: tuple[RegisteredProcess, ...]
    path: Path
    hurt: tuple[str, ...] = ()
    """As `RunRegistryFile.hurt`."""
    namespace: str = ""
    """As `RunRegistryFile.namespace`."""


class RunRegistration:
    """This run's file. Written whole at each change, so that a reader never sees half of it.

    Making one ends and forgets what killed harnesses left (`sweep`).
    """

    def __init__(self, run: str, folder: Path) -> None:
        harness = identify(os.getpid())
        assert harness is not None, "this process is alive"
        sweep()
        self._file = RunRegistryFile(run, str(folder), harness, [], [], namespace=namespace())
        self._path = _runs_folder() / f"{run}.json"

    @property
    def run(self) -> str:
        """The run's id."""
        return self._file.run

    def claim_ports(self, ports: list[int]) -> None:
        """Note that these are ours. Call it within `locked()`, with what `claimed_ports` says taken into account."""
        self._file.ports += ports
        self._write()

    def add(self, what: str, pid: int) -> None:
        """Note a process that was just started, and forget those that have ended."""
        noted = [each for each in self._file.processes if is_alive(each.process)]
        process = identify(pid)
        self._file.processes = [*noted, RegisteredProcess(what, process)] if process is not None else noted
        self._write()

    def hurt(self, container: str) -> None:
        """Note, before it is done, that somebody else's container is going to be down or paused."""
        self._file.hurt = sorted({*self._file.hurt, container})
        self._write()

    def healed(self, container: str) -> None:
        """It runs again."""
        self._file.hurt = [each for each in self._file.hurt if each != container]
        self._write()

    def close(self) -> None:
        """The run has ended and left nothing."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self._file))
        fresh.replace(self._path)


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock for choosing ports, which one process at a time has on this machine."""
    folder = _runs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def claimed_ports() -> set[int]:
    """Ports of every run whose harness is alive."""
    return {port for _, file in _files() if is_alive(file.harness) for port in file.ports}


def runs() -> list[RegisteredRun]:
    """Every run of the registry, by its id."""
    found = []
    for path, file in _files():
        ours = tuple(noted for noted in file.processes if _is_ours(noted.process, file.run))
        hurt = tuple(file.hurt)
        found.append(RegisteredRun(file.run, file.folder, is_alive(file.harness), ours, path, hurt, file.namespace))
    return found


def end(run: RegisteredRun) -> list[str]:
    """Kill what a run left behind and forget the run. Returns what was ended, as "what (pid N)"."""
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
    """End and forget what runs left whose harness was killed. Returns what was ended, as `end` does.

    Left to `squall clean`: runs that hurt somebody else's containers, and those of another namespace of processes, of
    whose harness nothing is known here.
    """
    gone = [each for each in runs() if not each.harness_alive and not each.hurt and each.namespace == namespace()]
    return [ended for each in gone for ended in end(each)]


def _is_ours(process: ProcessId, run: str) -> bool:
    return is_alive(process) and environment(process.pid).get(MARK) == run


def _files() -> list[tuple[Path, RunRegistryFile]]:
    """Every file that can be read: one that is being removed, or is not ours to understand, is passed over."""
    files = []
    for path in sorted(_runs_folder().glob("*.json")):
        try:
            files.append((path, msgspec.json.decode(path.read_bytes(), type=RunRegistryFile)))
        except (OSError, msgspec.DecodeError):
            continue
    return files


def _runs_folder() -> Path:
    return cache_folder() / "runs"
