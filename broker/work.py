"""Units of work that the event loop has done, counted where long work is cut into pieces that give way to others.

On a busy machine the time of a step says little; whether a step did more than one piece, its units say on any machine.
Only the event loop counts, so that a plain addition is enough. Nothing in the broker depends on these numbers:
`turn_meter` takes them after each step of a task if it is switched on.
"""

from __future__ import annotations


class WorkCounters:
    """Units since they were last taken."""

    __slots__ = ("bytes", "entries", "records", "steps")

    def __init__(self) -> None:
        self.bytes = 0
        """Of requests and responses read and written on the event loop (Produce and Fetch excepted), and of batches
        searched there."""
        self.entries = 0
        """Partitions, logs, groups, positions, settings and others of which a request may name thousands; a unit is
        what the piece of work around it is measured in."""
        self.records = 0
        """In batches searched on the event loop."""
        self.steps = 0
        """Of searches by a regular expression."""


DONE = WorkCounters()
"""Of this process. (In a simulation, that of all nodes.)"""
