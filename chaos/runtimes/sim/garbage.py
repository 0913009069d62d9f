"""When garbage is collected in a process that simulates: never while a simulation runs, and best only between two."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_simulated_before = False


@contextmanager
def garbage_waits() -> Iterator[None]:
    """Inside, garbage is collected where a simulation begins, and nowhere else. Also a decorator.

    A finaliser must not run at a moment of a simulation that memory decides. And around many of them: what is collected
    in passing, behind each of them, is looked for among all that its result still holds.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def collect_what_was_left() -> None:
    """By earlier simulations: called where one begins. What was there before the first one is never looked at."""
    global _simulated_before
    if _simulated_before:
        gc.collect()
    else:
        gc.freeze()
    _simulated_before = True
