"""Kills a part of the harness at a chosen moment of a run.

The moment is recognised by files of the run directory, not by time, so that the kill always meets the same situation.
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
"""How long to wait for a moment. A first run may make an archive of classes or an image before, which takes minutes."""
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
    """The run ended before the moment came, or there was no part to kill."""


class Part(ABC):
    """A part of the harness, or of the machine, that a run needs."""

    flags: tuple[str, ...] = ()
    """Arguments of `squall run` with which a run uses this part."""
    moments: tuple[str, ...] = (STARTING, WARM_UP, LOAD, FAULT, FINAL_READS)

    def around(self, playing: Playing) -> AbstractContextManager[Mapping[str, str]]:
        """Provide the part for the duration of the run. Yields environment variables for the run."""
        return nullcontext({})

    @abstractmethod
    def kill(self, playing: Playing) -> None:
        """Kill the part. Raises Missed if it does not exist yet: then `kill` is called again."""

    def afterwards(self, playing: Playing) -> None:
        """After the run, do what a person would have to do before the machine can be used again."""
        del playing


class Program(Part):
    """A program that the harness starts: a process in the registry of runs, or a container with a name that ends like
    this.
    """

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
    """The OS process of `squall` itself."""

    moments = (STARTING, LOAD, FAULT, FINAL_READS, JUDGING)

    @override
    def kill(self, playing: Playing) -> None:
        assert playing.process is not None
        playing.process.kill()

    @override
    def afterwards(self, playing: Playing) -> None:
        """Start another run: it ends what the killed one left behind."""
        runtime = [each for each in playing.arguments if each in ("--runtime", "docker")]
        next_run = ("run", "--seed", "1", "--time", "1", "--warmup", "0", "--faults", "none", *runtime)
        playing.start(*next_run, "--runs", str(playing.folder / "next")).wait(MOMENT_S)


class Disk(Part):
    """The file system of the run directories: a small one, which `kill` fills up."""

    moments = (WARM_UP, LOAD, FAULT, FINAL_READS, JUDGING)

    @override
    @contextmanager
    def around(self, playing: Playing) -> Iterator[Mapping[str, str]]:
        """Mount the small file system for the run. The run directory is kept after it."""
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
    """The Docker engine. It is private to this run, because no container can be ended after the kill."""

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
        """Start the engine again, and run the clean-up command that `squall` printed."""
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
    """Return `times` runs in which the part `name` is killed, each at the next of its moments."""
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
    """Wait for the moment, and kill the part. Raises Missed if the run ends before."""
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
