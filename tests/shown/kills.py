"""Parts of the harness that are killed in the middle of a run, and when.

Each kill waits for its moment by what the run directory says, so no clock decides what it meets.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from squall.broker.overriding import override
from squall.chaos.runtimes.docker import labels
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.toolchain.engine import reach_engine
from tests.shown.case import Case
from tests.shown.private_engine import PrivateEngine
from tests.shown.row import JUDGING
from tests.shown.words import begun_faults, phases

if TYPE_CHECKING:
    from tests.shown.playing import Playing

POLL_S = 0.02
MOMENT_S = 900
"""For a moment to come: what is made once (an archive of classes, an image) may take minutes first."""
STARTING, WARM_UP, LOAD, FAULT, FINAL_READS = (
    "while the cluster starts",
    "while the load warms up",
    "under load",
    "while a fault is on",
    "in the final reads",
)
PHASES = {STARTING: "start the cluster", WARM_UP: "warm-up", LOAD: "load with faults", FINAL_READS: "final reads"}
SHORT = ("--time", "20")
SMALL_DISK = "400m"


class Missed(Exception):
    """The run was over before the moment came, or there was nothing to kill."""


class Part(ABC):
    """Something that a run cannot do without."""

    flags: tuple[str, ...] = ()
    """Of the runs, so that they have it."""
    moments: tuple[str, ...] = (STARTING, WARM_UP, LOAD, FAULT, FINAL_READS)

    def around(self, playing: Playing) -> AbstractContextManager[Mapping[str, str]]:
        """Provide what is there during the run only. Gives environment variables of the run."""
        return nullcontext({})

    @abstractmethod
    def kill(self, playing: Playing) -> None:
        """Kill it. Missed where there is none yet: it is asked again."""

    def afterwards(self, playing: Playing) -> None:
        """Do what a person has to do before the machine can be used again. The run has ended."""
        del playing


class Program(Part):
    """A process that the harness runs, or with containers a container, by what it is called there."""

    def __init__(self, what: str, container: str, *flags: str) -> None:
        self._what, self._container, self.flags = what, container, flags

    @override
    def kill(self, playing: Playing) -> None:
        for run in registry.runs():
            for noted in run.processes:
                if Path(run.folder).is_relative_to(playing.folder) and noted.what == self._what:
                    os.kill(noted.process.pid, signal.SIGKILL)
                    return
        self._kill_container(playing)

    def _kill_container(self, playing: Playing) -> None:
        if not Path("/var/run/docker.sock").exists():
            raise Missed(f"no {self._what} runs")
        engine = reach_engine()
        try:
            for each in engine.containers(labels.RUN):
                ours = Path(each["Labels"].get(labels.FOLDER, "/")).is_relative_to(playing.folder)
                if ours and each["State"] == "running" and each["Names"][0].endswith(self._container):
                    engine.kill(each["Id"], "SIGKILL")
                    return
        finally:
            engine.close()
        raise Missed(f"no {self._what} runs")


class Harness(Part):
    """`squall` itself."""

    moments = (STARTING, LOAD, FAULT, FINAL_READS, JUDGING)

    @override
    def kill(self, playing: Playing) -> None:
        assert playing.process is not None
        playing.process.kill()

    @override
    def afterwards(self, playing: Playing) -> None:
        """The next run, which ends what the killed one left."""
        runtime = [each for each in playing.arguments if each in ("--runtime", "docker")]
        next_run = ("run", "--seed", "1", "--time", "1", "--warmup", "0", "--faults", "none", *runtime)
        playing.start(*next_run, "--runs", str(playing.folder / "next")).wait(MOMENT_S)


class Disk(Part):
    """The file system of the run directories: a small one, that is full from one moment on."""

    moments = (WARM_UP, LOAD, FAULT, FINAL_READS, JUDGING)

    @override
    @contextmanager
    def around(self, playing: Playing) -> Iterator[Mapping[str, str]]:
        """Mount the disk for the run. What the run left on it is kept."""
        disk = playing.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "none", str(disk)], check=True)
        playing.runs = disk / "runs"
        try:
            yield {}
        finally:
            kept = playing.folder / "runs"
            if playing.runs.exists():
                shutil.copytree(playing.runs, kept, symlinks=True)
            playing.runs = kept
            subprocess.run(["umount", "--lazy", str(disk)], check=True)
            disk.rmdir()

    @override
    def kill(self, playing: Playing) -> None:
        with (playing.runs.parent / "fill").open("wb", buffering=0) as file:
            block = b"\0" * (1 << 20)
            while len(block):
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]


class EngineOfContainers(Part):
    """The Docker engine, with which no container can be ended any more: one of its own, for this run only."""

    flags = ("--runtime", "docker")

    @override
    def around(self, playing: Playing) -> AbstractContextManager[Mapping[str, str]]:
        self._engine = PrivateEngine.shared()
        playing.inside = self._engine.inside
        playing.socket = self._engine.socket
        return nullcontext({"DOCKER_HOST": f"unix://{self._engine.socket}"})

    @override
    def kill(self, playing: Playing) -> None:
        self._engine.kill()

    @override
    def afterwards(self, playing: Playing) -> None:
        """Start it again, and run the command that `squall` printed."""
        self._engine.start()
        playing.start("clean", DOCKER_HOST=f"unix://{self._engine.socket}").wait(120)


PARTS: Mapping[str, Part] = {
    "toxiproxy": Program("toxiproxy", "-toxiproxy"),
    "relay": Program("frame relay", "-frame-relay", "--faults", "protocol"),
    "engine": EngineOfContainers(),
    "disk": Disk(),
    "harness": Harness(),
}


def kills_of(name: str, times: int, first_seed: int, extra: tuple[str, ...] = ()) -> list[Case]:
    """`times` runs in which a part is killed, at its moments in turn."""
    part = PARTS[name]
    group = f"kill {name}" + (" of containers" if "docker" in extra and name != "engine" else "")
    return [
        Case(
            group,
            number + 1,
            (*SHORT, *part.flags, *extra),
            first_seed + number,
            name,
            part.moments[number % len(part.moments)],
        )
        for number in range(times)
    ]


def kill_at(moment: str, part: Part, playing: Playing) -> None:
    """Wait for the moment, and kill. Missed where the run ends before."""
    deadline = time.monotonic() + MOMENT_S
    why = f"the moment never came: {moment}"
    while time.monotonic() < deadline:
        assert playing.process is not None
        if playing.process.poll() is not None:
            break
        if _has_come(moment, playing):
            try:
                part.kill(playing)
            except Missed as missed:
                why = str(missed)
            else:
                return
        time.sleep(POLL_S)
    raise Missed(why)


def _has_come(moment: str, playing: Playing) -> bool:
    if moment == JUDGING:
        return "] judge" in playing.said()
    if moment == FAULT:
        return begun_faults(playing.latest) > 0
    return PHASES[moment] in phases(playing.latest)
