"""Listens to the container engine's events, and reports when containers of the run have ended.

Container ends are known from these events alone: each end is reported once, with its exit code, even while no task
waits for it. A thread reads the events, because the stream does not end by itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from squall.chaos.errors import HarnessError, error_message
from squall.chaos.toolchain.engine import DockerEngine


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """Records a container's end. `code` is negative for a signal."""

    code: int
    t_ns: int
    """Is the time at which the engine's event arrived, by the harness's monotonic clock."""
    out_of_memory: bool


class ContainerWatch:
    """Collects the exits of containers by container id, in order, beginning when this object is made."""

    def __init__(self, engine: DockerEngine, label: str) -> None:
        self._engine = engine.second()
        # Subscribed here, before the thread starts, so that no event after this constructor is missed.
        self._events = self._engine.events(label)
        self._deaths: dict[str, list[ContainerExit]] = {}
        self._short_of_memory: set[str] = set()
        self._lost: str | None = None
        self._closed = False
        self._turn = threading.Lock()
        threading.Thread(target=self._listen, name="docker-events", daemon=True).start()

    def deaths(self, container: str) -> list[ContainerExit]:
        """Return the exits of one container so far: one for each time that it ended."""
        with self._turn:
            return list(self._deaths.get(container, ()))

    def check(self) -> None:
        """Raise HarnessError once the engine sends no more events."""
        if self._lost is not None:
            raise HarnessError(self._lost)

    def close(self) -> None:
        """Stop listening to the engine's events."""
        self._closed = True
        # The stream may have ended by itself just now.
        with contextlib.suppress(Exception):
            self._events.close()
        self._engine.close()

    def _listen(self) -> None:
        why = "its events ended"
        try:
            for event in self._events:
                self._hear(event)
        except Exception as error:  # Whatever the SDK's stream may raise: this thread has nobody else to tell.
            why = error_message(error)
        if not self._closed:
            self._lost = f"the Docker engine is gone: {why}"

    def _hear(self, event: dict[str, Any]) -> None:
        container, action = event.get("id", ""), event.get("Action", "")
        with self._turn:
            if action == "oom":
                self._short_of_memory.add(container)
            elif action == "die":
                code = signed(int(event["Actor"]["Attributes"].get("exitCode", "0")))
                short = container in self._short_of_memory
                self._short_of_memory.discard(container)
                self._deaths.setdefault(container, []).append(ContainerExit(code, time.monotonic_ns(), short))


def signed(code: int) -> int:
    """Return the engine's exit code 128 + N as -N, for an end by signal N, as in `subprocess`."""
    return 128 - code if 128 < code < 128 + 65 else code
