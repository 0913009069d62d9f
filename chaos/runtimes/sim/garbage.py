"""When a process that simulates collects garbage: between two simulations, never during one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_simulated_before = False


@contextmanager
def garbage_waits() -> Iterator[None]:
    """Inside, garbage is collected only where a simulation begins. Also a decorator.

    During a simulation, memory use would decide when a finaliser runs. Around many simulations it saves time: a
    collection behind each one would search everything that the results so far still hold.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect_what_was_left() -> None:
    """Collect the garbage of earlier simulations; called where one begins. Objects older than the first one are never
    searched.
    """
    global _simulated_before
    if _simulated_before:
        gc.collect()
    else:
        gc.freeze()
    _simulated_before = True
