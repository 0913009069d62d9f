"""Requests that wait for something to move, and those of them for which it has moved.

Whoever moves something (an append, a high watermark, a role) puts the requests that watch it among the woken; they are
answered once, when the burst that moved it is over (`Server.settle`). An answer in the middle of a burst would send as
many small replies as there are batches in it.
"""

from __future__ import annotations

from typing import Protocol


class Wakeable(Protocol):
    """A parked request that watches something."""

    def wake(self) -> None:
        """What it watches has moved: answer if that is enough, else wait on. No error if it has been answered."""


Woken = dict[Wakeable, None]
"""An ordered set: wake-ups must be deterministic."""
