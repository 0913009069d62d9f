"""Hears from the engine that containers of the run ended.

The engine's events are the one truth about ends: each is told once, with its exit code, and an end that comes while
nobody asks is not missed. A thread reads them, because the stream has no end of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Any

from chaos.errors import HarnessError
from chaos.toolchain.engine import Engine


@dataclass(frozen=True, slots=True)
class Death:
    """A container's end. `code` is negative for a signal."""

    code: int
    t_ns: int
    """When it was heard, by the harness's monotonic clock."""
    out_of_memory: bool


class Watch:
    """Deaths of containers by id, in order, since this was made."""

    def __init__(self, engine: Engine, label: str) -> None:
        self._engine = engine.second()
        # Asked for here and not in the thread: what happens after this constructor is heard.
        self._events = self._engine.events(label)
        self._deaths: dict[str, list[Death]] = {}
        self._short_of_memory: set[str] = set()
        self._lost: str | None = None
        self._closed = False
        self._turn = threading.Lock()
        threading.Thread(target=self._listen, name="docker-events", daemon=True).start()

    def deaths(self, container: str) -> list[Death]:
        """Of one container: as many as its ends so far."""
        with self._turn:
            return list(self._deaths.get(container, ()))

    def check(self) -> None:
        """HarnessError once the engine does not tell any more."""
        if self._lost is not None:
            raise HarnessError(self._lost)

    def close(self) -> None:
        """Hear no more."""
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
            why = f"{type(error).__name__}: {error}"
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
                self._deaths.setdefault(container, []).append(Death(code, time.monotonic_ns(), short))


def signed(code: int) -> int:
    """Of what the engine calls 128 + N, -N: ended by signal N, as `subprocess` has it."""
    return 128 - code if 128 < code < 128 + 65 else code
