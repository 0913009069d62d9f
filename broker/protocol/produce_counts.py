"""Counts Produce requests by their producers' settings (client id, acks, idempotence, transactional id, codec), and
traces the counts: they show what was sent, not only what was configured.

The first request with new settings is traced at once, so `kill -9` can lose the newest counts, but no settings. Each
further line follows when the count has grown by a quarter, so frequent settings fill few lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from squall.broker.protocol.records import CODEC_MASK, HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.protocol.hot import ProduceIn

EVENT: Final = "produce_requests"
MOST_SETTINGS: Final = 256
"""Limits how many combinations of settings have a count of their own. Requests with further combinations share one
count, so that no client can fill the trace.
"""
LONGEST_NAME: Final = 128
"""Limits the characters of a client id or transactional id that are traced."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")
_MAGIC_AT, _ATTRIBUTES_AT, _PRODUCER_ID_AT = 16, 22, 43
_FORMAT = 2
_MANY: Final = 16
"""Is the least number of requests between two trace lines about the same settings."""

Settings = tuple[str | None, int, bool, str | None, int]
"""Holds a producer's settings: client id, acks, whether there is a producer id, transactional id, codec."""


class ProducerSettingsCount:
    """Counts the Produce requests with the same producer settings. `in_flight` is the largest number of them that one
    connection had without a response. `requests_due` is the number of requests at which the next line is traced.
    """

    __slots__ = ("in_flight", "is_traced", "requests", "requests_due")

    def __init__(self) -> None:
        self.requests = self.in_flight = 0
        self.requests_due = 1
        self.is_traced = False
        """Is True if the last trace line of these settings includes every request counted so far."""


class ProducerSettingsCounter:
    """Counts Produce requests by client id, acks and the other `Settings`, and traces the counts. `trace` writes a
    trace line with an event's name and fields.
    """

    def __init__(self, trace: Callable[..., None]) -> None:
        self._trace = trace
        self._counts: dict[Settings | None, ProducerSettingsCount] = {}

    def count(self, client_id: str | None, request: ProduceIn, unanswered: Callable[[], int], most: int) -> None:
        """Count a request by its `Settings`, some of which are read from the header of its first batch. A request
        without a readable batch is not counted.

        `unanswered` returns how many Produce requests of this connection have no response, this request included. The
        counter stores the largest such number. The call is slow, and `most` is an upper limit of its result, so it is
        called only if `most` is above the stored number. With acks=0, which has no responses, `unanswered` and `most`
        are ignored.
        """
        records = _first_batch(request)
        if records is None:
            return
        acks = request.acks
        # A producer id is negative if there is none.
        is_idempotent, codec = records[_PRODUCER_ID_AT] < 0x80, records[_ATTRIBUTES_AT] & CODEC_MASK
        settings: Settings | None = (client_id, acks, is_idempotent, request.transactional_id, codec)
        found = self._counts.get(settings)
        if found is None:
            settings = settings if len(self._counts) < MOST_SETTINGS else None
            found = self._counts.setdefault(settings, ProducerSettingsCount())
        found.requests += 1
        found.is_traced = False
        is_due = found.requests >= found.requests_due
        if acks and most > found.in_flight and (count := unanswered()) > found.in_flight:
            is_due = is_due or 4 * count >= 5 * found.in_flight
            found.in_flight = count
        if is_due:
            self._trace_count(settings, found)

    def trace_changed(self) -> None:
        """Trace the counts of those settings that had requests since their last line."""
        for settings, found in self._counts.items():
            if not found.is_traced:
                self._trace_count(settings, found)

    def _trace_count(self, settings: Settings | None, found: ProducerSettingsCount) -> None:
        found.is_traced = True
        found.requests_due = found.requests + max(_MANY, found.requests // 4)
        if settings is None:
            self._trace(EVENT, others=True, requests=found.requests, in_flight=found.in_flight)
            return
        client_id, acks, is_idempotent, transactional_id, codec = settings
        self._trace(
            EVENT,
            client_id=_short(client_id),
            acks=acks,
            idempotent=is_idempotent,
            transactional_id=_short(transactional_id),
            compression=CODECS[codec],
            requests=found.requests,
            in_flight=found.in_flight,
        )


def _first_batch(request: ProduceIn) -> memoryview | None:
    """Return the request's first batch in format 2, or None."""
    for _, parts in request.topics:
        for _, records in parts:
            if records is not None and len(records) >= HEADER_SIZE and records[_MAGIC_AT] == _FORMAT:
                return records
    return None


def _short(name: str | None) -> str | None:
    return name if name is None or len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
