"""Decides when a process that runs simulations collects Python's garbage: between two simulations or never, but not
during one.
"""

# After a simulation the collector would walk over the whole result; half a gigabyte costs less than a collection for
# each seed. So a batch collects nothing, and its processes end after 25 seeds.

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager

ROOM_MIB = 1024
"""Limits the effect of `garbage_stays`: once a process has used this much memory, in MiB, it collects garbage between
simulations all the same.
"""

_simulated_before = _stays = False


@contextmanager
def garbage_waits() -> Iterator[None]:
    """Collect garbage inside the block, or the decorated function, only when a simulation begins.

    A collection during a simulation would run finalisers at a moment that depends on memory use, not on the seed. If
    the block runs many simulations, this also saves time: a collection after each one would search all objects that the
    earlier results still hold.
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
    """Do not collect garbage inside the block, not even between simulations, in a process that ends before memory runs
    out. From `ROOM_MIB` on, garbage is collected between simulations all the same.
    """
    global _stays
    before, _stays = _stays, True
    try:
        with garbage_waits():
            yield
    finally:
        _stays = before


def collect_what_was_left() -> None:
    """Collect the garbage of earlier simulations; the simulator calls this when a simulation begins. Objects that are
    older than the first simulation are never searched.
    """
    global _simulated_before
    if _simulated_before:
        if not _stays or _most_mib() >= ROOM_MIB:
            gc.collect()
    else:
        gc.freeze()
    _simulated_before = True


def _most_mib() -> float:
    """Return the largest memory use of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
