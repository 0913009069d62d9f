"""Chooses where in a log a reader starts: at the log's start, in its middle, or at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from squall.broker.protocol.timestamps import EARLIEST, LATEST

if TYPE_CHECKING:
    from squall.workloads.client.cluster import Place
    from squall.workloads.reader import RecordedReader

Beginning = Literal["start", "middle", "end"]
BEGINNINGS: tuple[Beginning, ...] = ("start", "middle", "end")


async def positions_at(
    reader: RecordedReader, places: Sequence[Place], beginning: Beginning, limit_s: float
) -> dict[Place, int]:
    """Return the offset at which to start in each partition: the log's start, its end, or the mean of both (`middle`),
    as `beginning` says. A partition is left out if its leader did not answer each request within `limit_s`.

    The log's end is the high watermark, or the last stable offset for a reader at read_committed.
    """
    # The middle is the mean of both ends: the sum of all bounds, divided by their number.
    found = dict.fromkeys(places, 0)
    bounds = {"start": (EARLIEST,), "middle": (EARLIEST, LATEST), "end": (LATEST,)}[beginning]
    for bound in bounds:
        listed = await reader.list_offsets(list(found), bound, limit_s)
        found = {place: sum_ + listed[place].offset for place, sum_ in found.items() if not listed[place].error}
    return {place: sum_ // len(bounds) for place, sum_ in found.items()}
