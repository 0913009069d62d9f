"""Counts units of work that the event loop has done, in code that cuts long work into pieces and lets other tasks run
in between.

The time of a task's step depends on the load of the machine. The units in a step do not: they show whether the code let
other tasks run after each piece. Only the event loop counts, so a plain addition is enough. Nothing in the broker
depends on these numbers: `turn_meter` takes them after each step of a task if it is switched on.
"""

from __future__ import annotations


class WorkCounters:
    """Counts units of work (bytes, entries, records, search steps) since the counters were last reset."""

    __slots__ = ("bytes", "entries", "records", "steps")

    def __init__(self) -> None:
        self.bytes = 0
        """Counts bytes of requests and responses that are read and written on the event loop (Produce and Fetch
        excepted), and of batches that ListOffsets searches there.
        """
        self.entries = 0
        """Counts items of which one request may name thousands, such as partitions, groups and settings. Each piece of
        code counts its own kind of item.
        """
        self.records = 0
        """Counts records of batches that ListOffsets searches for a timestamp on the event loop."""
        self.steps = 0
        """Counts steps of matching names against a client's regular expression: at least one for each character."""


DONE = WorkCounters()
"""Counts the units of work done in this OS process (in a simulation, by all nodes together). The turn meter, if it is
on, resets the counts after each step of a task.
"""
