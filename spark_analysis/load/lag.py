"""Asks how far a load is behind the end of its topics, and which open transactions hold it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from squall.broker.protocol.timestamps import LATEST as LATEST_TIME
from squall.spark_analysis.load.batch import places_of
from squall.spark_analysis.load.clients import NoAnswer, run_with_client
from squall.spark_analysis.load.held_back import HoldingTransaction, open_transactions
from squall.spark_analysis.load.options import EARLIEST
from squall.spark_analysis.load.planning import bounds_of, chosen_topics
from squall.workloads.client.admin import list_offsets
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.fetched import READ_COMMITTED
from squall.workloads.load.reading import LoadError

if TYPE_CHECKING:
    from squall.spark_analysis.load.options import LoadOptions
    from squall.workloads.client.client import Client
    from squall.workloads.client.cluster import Place

ANSWER_S: Final = 2.0
"""Limits the time, in seconds, that a look may take: it is for people who watch, and a load continues without it."""


class OffsetsRead(NamedTuple):
    """Counts what a load has read of a partition."""

    first: int
    """Is the offset at which it began."""
    size: int
    """Counts the offsets."""


class LoadLag(NamedTuple):
    """Describes how far a load is behind."""

    behind: int
    """Counts the offsets that can be read and have not been."""
    open: tuple[HoldingTransaction, ...] = ()
    """Lists the first open transaction of each partition, for a load at read_committed."""


def look_behind(options: LoadOptions, read: Mapping[Place, OffsetsRead]) -> LoadLag | None:
    """Return how far a load is behind that has read `read`; None if brokers do not answer in time."""

    async def look(client: Client) -> LoadLag:
        places = places_of(await chosen_topics(client, options))
        bounds = await bounds_of(client, places, options.isolation)
        behind = 0
        for place, each in bounds.items():
            new = each.earliest if options.starting == EARLIEST else each.latest
            first, size = read.get(place, OffsetsRead(new, 0))
            behind += max(0, each.latest - first - size)
        if options.isolation != READ_COMMITTED:
            return LoadLag(behind)
        ends = await list_offsets(client, places, LATEST_TIME, timeout_s=ANSWER_S)
        spans = {place: (bounds[place].latest, listed.offset) for place, listed in ends.items() if not listed.error}
        return LoadLag(behind, tuple(await open_transactions(client, spans)))

    try:
        return run_with_client(options, look, ANSWER_S)
    except (RequestFailed, NoAnswer, LoadError):
        return None
