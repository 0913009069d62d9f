"""Represents one container of a run, which may be started and ended any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.docker.watch import ContainerExit, ContainerWatch
from squall.chaos.toolchain.engine import ContainerSpec, DockerEngine, EngineError

T = TypeVar("T")

POLL_S = 0.005
CONFLICT = 409
SETTLES_S = 2.0
"""Limits, in seconds, how long `Container.settled` waits for the engine to report the new state after a pause or
resume.
"""
LAST_WORDS_BYTES = 2000


class Container:
    """Represents a container of the engine. Its async methods make each call to the engine in a thread, so trio is not
    blocked.
    """

    def __init__(self, engine: DockerEngine, watch: ContainerWatch, spec: ContainerSpec) -> None:
        self.name = spec.name
        self.starts = 0
        self._spec = spec
        self._engine, self._watch = engine, watch
        self._id = ""

    async def create(self) -> None:
        """Create the container in the engine; `start` starts it."""
        self._id = await in_thread(self._engine.create, self._spec)

    async def made_of(self, image: str) -> Container:
        """Remove the container. Return a new container with the same options, but another image."""
        await in_thread(self._engine.remove, self._id)
        other = Container(self._engine, self._watch, replace(self._spec, image=image))
        await other.create()
        return other

    async def image(self) -> str:
        """Return the id of the container's image, as the engine reports it."""
        return await in_thread(self._engine.image_of, self._id)

    async def start(self) -> int:
        """Start the container. Returns the pid of its first process on this machine; 0 if that process has ended
        already.
        """
        # Without the engine's events the end of this start would never be noticed.
        self._watch.check()
        await in_thread(self._engine.start, self._id)
        self.starts += 1
        return int((await self.state())["Pid"])

    @property
    def death(self) -> ContainerExit | None:
        """Returns how the container's latest start ended; None while the container runs."""
        deaths = self._watch.deaths(self._id)
        return deaths[-1] if self.starts and len(deaths) >= self.starts else None

    async def died(self, timeout_s: float) -> ContainerExit | None:
        """Wait for the end of the container's latest start, and return how it ended. Returns None if the container
        still runs after `timeout_s`.
        """
        await until(lambda: self.death is not None, timeout_s, self._watch)
        return self.death

    async def signal(self, signal: str) -> None:
        """Send a signal to the container's first process."""
        await in_thread(self._engine.kill, self._id, signal)

    async def pause(self) -> dict[str, Any]:
        """Freeze the container. Returns its state after that."""
        return await self._freeze(self._engine.pause, frozen=True)

    async def unpause(self) -> dict[str, Any]:
        """End the container's freeze. Returns its state after that."""
        return await self._freeze(self._engine.unpause, frozen=False)

    async def _freeze(self, call: Callable[[str], None], frozen: bool) -> dict[str, Any]:
        try:
            await in_thread(call, self._id)
        except EngineError as error:
            if error.status != CONFLICT:
                raise
            # The engine has not noticed yet that the last pause or resume is over.
            await self.settled(not frozen)
            await in_thread(call, self._id)
        return await self.settled(frozen)

    async def settled(self, frozen: bool) -> dict[str, Any]:
        """Wait until the engine reports the container as frozen (or as not `frozen`), at most SETTLES_S. Return its
        last report.

        The engine's report can be wrong for a moment: a late event of an earlier pause or resume overwrites it, until
        the next event arrives. Meanwhile the engine also refuses a new pause.
        """
        state = await self.state()
        with trio.move_on_after(SETTLES_S):
            while state["Paused"] != frozen and state["Running"]:
                self.check_engine()
                await trio.sleep(POLL_S)
                state = await self.state()
        return state

    async def set_cpus(self, cpus: float) -> None:
        """Set how many CPUs the container may keep busy from now on, also after restarts."""
        await in_thread(self._engine.set_cpus, self._id, cpus)

    async def run(self, command: Sequence[str]) -> str:
        """Run a command in the container as root. Returns the output of the command."""
        return await in_thread(self._engine.run_in, self._id, command)

    async def cpu(self) -> tuple[float, int]:
        """Return the CPU seconds used since the container's start, and the number of periods in which its quota ran
        out.
        """
        return await in_thread(self._engine.cpu, self._id)

    async def state(self) -> dict[str, Any]:
        """Return the container's state, as the engine reports it."""
        return await in_thread(self._engine.state, self._id)

    def check_engine(self) -> None:
        """Raise HarnessError if the container engine no longer sends events."""
        self._watch.check()


async def until(condition: Callable[[], bool], timeout_s: float, watch: ContainerWatch) -> bool:
    """Wait for a condition, checking it often. Returns False if the condition does not hold within `timeout_s`.

    Raises HarnessError if the engine is gone: its events no longer arrive.
    """
    with trio.move_on_after(timeout_s):
        while not condition():
            watch.check()
            await trio.sleep(POLL_S)
        return True
    return condition()


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call the engine in a thread. A cancelled call still finishes, because the objects that it makes must later be
    removed.
    """
    return await trio.to_thread.run_sync(function, *arguments)


def ended_badly(what: str, death: ContainerExit, output: str) -> HarnessError:
    """Return the error for a container that ended too early. what: names it in the message. output: the last lines that
    it printed.
    """
    return HarnessError(f"{what} ended with {exit_text(death)}:\n{output}")


def exit_text(death: ContainerExit) -> str:
    """Return a container's exit code, and whether the container ran out of memory, in words."""
    return f"{death.code}" + (" (it was out of its container's memory)" if death.out_of_memory else "")


def last_words(log: Path) -> str:
    """Return the end of a container's output; empty if there was none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
