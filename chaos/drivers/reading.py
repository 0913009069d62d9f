"""Runs a library's consumer in the driver program, and sends the records to the harness. A reader polls by itself; a
transactional producer polls on request.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from squall.chaos.drivers.library import (
    ClientLibrary,
    ConsumerAdapter,
    DriverConfig,
    OffsetOutOfRange,
    Place,
    ReadRecord,
)
from squall.workloads.payload import verify

POLL_S = 0.2
BOUNDS_EVERY_S = 0.5
BEGIN_S = 1.0
"""Limits, in seconds, how long a poll may look up the first and end offsets of partitions."""
EMPTY_EVERY_S = 0.5
"""Gives the interval, in seconds, at which it is reported that a partition has no new records."""


class MessageSink(Protocol):
    """Sends messages to the harness (`squall.chaos.drivers.__main__.HarnessPipe`)."""

    def send(self, *message: Any) -> None:
        """Send a message at once."""


def start_offset(beginning: str, low: int, high: int) -> int:
    """Return the offset at which a consumer begins. beginning: start, middle or end of the log; low, high: the log's
    bounds.
    """
    return {"start": low, "middle": (low + high) // 2, "end": high}[beginning]


class ConsumerWorker:
    """Runs a library's consumer: keeps its position in each partition, polls, and reports the records."""

    def __init__(
        self, library: ClientLibrary, config: DriverConfig, out: MessageSink, inbox: queue.SimpleQueue[list[Any]]
    ) -> None:
        self._library, self._config, self._out, self._inbox = library, config, out, inbox
        self._places = [(str(topic), int(index)) for topic, index in config.places]
        self._consumer: ConsumerAdapter = library.consumer(config)
        self._at: dict[Place, int] = {}
        self._empty_told: dict[Place, float] = {}

    def run(self) -> None:
        """Read from the log's start until any message arrives in the inbox."""
        self._out.send("up", self._library.version)
        while len(self._at) < len(self._places) and self._inbox.empty():
            missing = [place for place in self._places if place not in self._at]
            self._at.update({place: low for place, (low, _) in self._consumer.bounds(missing).items()})
            time.sleep(0 if len(self._at) == len(self._places) else BOUNDS_EVERY_S)
        self._consumer.assign(dict(self._at))
        self._out.send("a", [[*place, position] for place, position in self._at.items()])
        while self._inbox.empty():
            self._poll()
            time.sleep(self._config.poll_pause_ms / 1000)
        self._consumer.close()

    def poll_once(self, beginning: str) -> None:
        """Poll once. A partition without a position gets one first, if the cluster returns its first and end offsets.
        beginning: the place in the log for that position: start, middle or end.
        """
        missing, until = [place for place in self._places if place not in self._at], time.monotonic() + BEGIN_S
        for place in missing:
            found = self._consumer.bounds([place])
            self._at.update({each: start_offset(beginning, *bounds) for each, bounds in found.items()})
            if not found or time.monotonic() > until:
                break
        if missing and self._at:
            self._consumer.assign(dict(self._at))
            self._out.send("a", [[*place, position] for place, position in self._at.items()])
        if self._at:
            self._poll()

    def _poll(self) -> None:
        began_ns, at = time.monotonic_ns(), dict(self._at)
        try:
            records = self._consumer.poll(POLL_S)
        except OffsetOutOfRange as gone:
            self._recover(gone)
            return
        except Exception as error:  # libraries have no common base class of errors; polls continue after them
            self._out.send("e", f"{type(error).__name__}: {error}")
            time.sleep(POLL_S)
            return
        parts = self._parts(records)
        if parts:
            self._out.send("r", began_ns, [[*place, position] for place, position in at.items()], parts)

    def _parts(self, records: Sequence[ReadRecord]) -> list[list[Any]]:
        """Return the records of a poll by partition, with verified payloads. A partition without new records is in the
        result only every EMPTY_EVERY_S seconds.
        """
        found: dict[Place, tuple[list[Any], list[Any]]] = {}
        for record in records:
            pairs, bad = found.setdefault(record.place, ([], []))
            value, why = verify(record.value, record.key, record.headers, record.timestamp_ms)
            pairs.append([record.offset, value])
            if why:
                bad.append([record.offset, why])
            self._at[record.place] = record.offset + 1
        now = time.monotonic()
        for place in self._at:
            if place not in found and now - self._empty_told.get(place, 0.0) >= EMPTY_EVERY_S:
                self._empty_told[place] = now
                found[place] = ([], [])
        return [[*place, self._at[place], *pairs_and_bad] for place, pairs_and_bad in found.items()]

    def _recover(self, gone: OffsetOutOfRange) -> None:
        """Move positions that are out of range to the nearest valid offset."""
        bounds = self._consumer.bounds(gone.places)
        for place in gone.places:
            if place not in bounds:
                self._consumer.seek(place, self._at[place])  # the next poll finds it impossible again
                continue
            low, high = bounds[place]
            position = max(low, min(self._at[place], high))
            self._consumer.seek(place, position)
            if position != self._at[place]:
                self._at[place] = position
                self._out.send("k", *place, position, str(gone))


class TransactorConsumer:
    """Polls for a transactional producer, once for each request. The first poll makes the consumer. Each poll sends its
    records, then the message ["p"].
    """

    def __init__(self, library: Callable[[], ClientLibrary], config: DriverConfig, out: MessageSink) -> None:
        self._library, self._config, self._out = library, config, out
        self._reader: ConsumerWorker | None = None

    def poll(self) -> None:
        """Poll once. An error of the cluster or the library is sent, and never raised."""
        try:
            if self._reader is None:
                self._reader = ConsumerWorker(self._library(), self._config, self._out, queue.SimpleQueue())
            self._reader.poll_once(self._config.beginning)
        except Exception as error:  # libraries have no common base class of errors; the next poll tries again
            self._out.send("e", f"{type(error).__name__}: {error}")
        self._out.send("p")
