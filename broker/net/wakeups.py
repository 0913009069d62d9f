"""Collects the parked requests that a change must wake.

A parked request watches one partition or several. The code that changes a partition (an append, a high watermark, a
role) adds the requests that watch it to a `WakeableSet`. Each is answered once, when the burst of requests that made
the change is over (`Server.settle`). Responses in the middle of a burst would be one small response for each batch.
"""

from __future__ import annotations

from typing import Protocol


class Wakeable(Protocol):
    """Represents a parked request that watches partitions, such as a Fetch that waits for new records."""

    def wake(self) -> None:
        """Send the response if a watched partition's change completes this request (a Fetch has enough bytes, for
        example), else wait on. Do nothing if the request was answered.
        """


WakeableSet = dict[Wakeable, None]
"""Is an ordered set (a dict with None values), because wake-ups must be deterministic."""
