"""Decides when a process that simulates collects garbage: between two simulations or not at all, never during one."""

# After a simulation the collector would walk over the whole result; half a gigabyte costs less than a collection for
# each seed. So a batch collects nothing, and its processes end after 25 seeds.

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager

ROOM_MIB = 1024
"""Of memory that a process may have filled before garbage that stays is collected nevertheless."""

_simulated_before = _stays = False


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


@contextmanager
def garbage_stays() -> Iterator[None]:
    """Keep garbage uncollected between simulations, too, and otherwise do as `garbage_waits`. It is for processes that
    end before memory runs out. From `ROOM_MIB` on they collect between simulations after all.
    """
    global _stays
    before, _stays = _stays, True
    try:
        with garbage_waits():
            yield
    finally:
        _stays = before


def collect_what_was_left() -> None:
    """Collect the garbage of earlier simulations; called where one begins. Objects older than the first one are never
    searched.
    """
    global _simulated_before
    if _simulated_before:
        if not _stays or _most_mib() >= ROOM_MIB:
            gc.collect()
    else:
        gc.freeze()
    _simulated_before = True


def _most_mib() -> float:
    """The most memory that this process ever had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
