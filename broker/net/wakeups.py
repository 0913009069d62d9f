"""Parked requests that watch something, and the set of those that have been woken because it moved.

Whoever moves something (an append, a high watermark, a role) adds the requests that watch it to the woken ones. Each is
answered once, when the burst that moved it is over (`Server.settle`). Answers in the middle of a burst would be one
small reply for each batch.
"""

from __future__ import annotations

from typing import Protocol


class Wakeable(Protocol):
    """A parked request that watches something."""

    def wake(self) -> None:
        """Something that this request watches moved: answer if that is enough, else wait on. No error if answered."""


Woken = dict[Wakeable, None]
"""An ordered set: wake-ups must be deterministic."""
