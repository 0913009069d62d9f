"""What trio does in every pass of its scheduler, as far as a simulation has no use for it.

Nothing in a simulation waits for a file descriptor, nobody instruments it, and most passes have one task. So it is
spared the system call, six lookups in a `UserDict`, and the shuffling of single tasks. The order in which tasks run is
the same with and without this.

Private to trio, as the scheduler's seed in `kernel.py` is: trio is pinned, and a test holds it to this.
"""

from __future__ import annotations

import random
from typing import Any

import trio._core._run as _trio_run

LISTEN_EVERY = 256
"""Passes between two looks at file descriptors: by one of them trio learns of a signal that it could not act on."""


class Schedule(random.Random):
    """trio's generator for the order of tasks. Draws as `random.Random` does, and nothing for one task alone."""

    def shuffle(self, x: Any) -> None:
        """As `random.Random.shuffle`."""
        if len(x) > 1:
            super().shuffle(x)


class _SeldomListening:
    """trio's I/O manager, asked in one of LISTEN_EVERY passes."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._passes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def get_events(self, timeout: float) -> Any:
        """As the manager's."""
        self._passes += 1
        if self._passes < LISTEN_EVERY and timeout == 0:
            return ()
        self._passes = 0
        return self._manager.get_events(timeout)

    def process_events(self, events: Any) -> None:
        """As the manager's."""
        if events:
            self._manager.process_events(events)


def make_lean() -> None:
    """From here on the run of trio that this is called in does less in every pass."""
    runner: Any = _trio_run.GLOBAL_RUN_CONTEXT.runner
    assert not any(runner.instruments.values()), "a simulation cannot be instrumented"
    runner.instruments = {}
    runner.io_manager = _SeldomListening(runner.io_manager)
