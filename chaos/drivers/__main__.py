"""`python -m chaos.drivers ORDER`: one producer, reader or transactional producer, driven by `frames` on its pipes.

ORDER is JSON of `library.Order`. What a library prints goes to standard error, which the harness keeps.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from chaos.drivers.frames import Unframed, frame
from chaos.drivers.library import Consuming, Impossible, Library, Order, Place, ReadRecord, load
from chaos.drivers.transactors import outcomes as transactors
from chaos.drivers.transactors.calls import Calls
from workloads.payload import verify

PUMP_S = 0.005
POLL_S = 0.2
BOUNDS_EVERY_S = 0.5
EMPTY_EVERY_S = 0.5
"""Of a partition without records, one empty poll in this time is reported."""
FINISH_SLACK_S = 10.0


class Out:
    """Messages to the harness, from any thread."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._turn = threading.Lock()
        self._outcomes: list[tuple[int, int, int, int, str]] = []

    def say(self, *message: Any) -> None:
        """At once."""
        data = frame(list(message))
        with self._turn:
            while data:
                data = data[os.write(self._file, data) :]

    def answer(self, op: int, status: int, offset: int, timestamp_ms: int, error: str) -> None:
        """Keep an outcome until `tell` sends it with others."""
        with self._turn:
            self._outcomes.append((op, status, offset, timestamp_ms, error))

    def tell(self) -> None:
        """Outcomes that have come."""
        with self._turn:
            outcomes, self._outcomes = self._outcomes, []
        if outcomes:
            self.say("o", outcomes)


def main() -> None:
    """Until the harness says so, or is gone."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    order = msgspec.json.decode(sys.argv[1], type=Order)
    # Whatever a library prints must not get between the frames.
    out = Out(os.dup(1))
    os.dup2(2, 1)
    inbox: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox,), daemon=True).start()
    try:
        if order.role == "transactor":
            transact(transactors.load(order.library), order, out, inbox)
        elif order.role == "producer":
            produce(load(order.library), order, out, inbox)
        else:
            Reader(load(order.library), order, out, inbox).run()
    except Exception as trouble:
        logging.exception("the driver ends")
        out.say("x", f"{type(trouble).__name__}: {trouble}")
    sys.stderr.flush()
    # Not by returning: a library's threads may be waiting for brokers that are gone.
    os._exit(0)


def _listen(inbox: queue.SimpleQueue[list[Any]]) -> None:
    frames = Unframed()
    while data := os.read(0, 1 << 16):
        for message in frames.feed(data):
            inbox.put(message)
    inbox.put(["f"])


def produce(library: Library, order: Order, out: Out, inbox: queue.SimpleQueue[list[Any]]) -> None:
    """Hand over what comes in, tell what came of it."""
    producer = library.producer(order, out.answer)
    out.say("up", library.version)
    for message in _messages(inbox):
        if message is not None:
            producer.send(*message[1:])
        producer.pump()
        out.tell()
    producer.finish(order.delivery_timeout_ms / 1000 + FINISH_SLACK_S)
    out.tell()


def transact(library: transactors.Library, order: Order, out: Out, inbox: queue.SimpleQueue[list[Any]]) -> None:
    """Make the calls that come in, one after the other, and hand records over. It ends without a word."""
    producer = library.transactor(order, out.answer)
    calls = Calls(producer, out, order.delivery_timeout_ms / 1000)
    out.say("up", library.version)
    for message in _messages(inbox):
        if message is not None and message[0] == "s":
            producer.send(*message[1:])
        elif message is not None:
            calls.make(message[0])
        calls.pump()


def _messages(inbox: queue.SimpleQueue[list[Any]]) -> Iterator[list[Any] | None]:
    """Each send, None where there was none for a while, until "finish"."""
    while True:
        try:
            message = inbox.get(timeout=PUMP_S)
        except queue.Empty:
            yield None
            continue
        if message[0] == "f":
            return
        yield message


class Reader:
    """A consumer at work: where it is, partition by partition, and what it tells of it."""

    def __init__(self, library: Library, order: Order, out: Out, inbox: queue.SimpleQueue[list[Any]]) -> None:
        self._library, self._order, self._out, self._inbox = library, order, out, inbox
        self._places = [(str(topic), int(index)) for topic, index in order.places]
        self._consumer: Consuming = library.consumer(order)
        self._at: dict[Place, int] = {}
        self._empty_told: dict[Place, float] = {}

    def run(self) -> None:
        """Read from the log's start until the order to finish."""
        self._out.say("up", self._library.version)
        while len(self._at) < len(self._places) and self._inbox.empty():
            missing = [place for place in self._places if place not in self._at]
            self._at.update({place: low for place, (low, _) in self._consumer.bounds(missing).items()})
            time.sleep(0 if len(self._at) == len(self._places) else BOUNDS_EVERY_S)
        self._consumer.assign(dict(self._at))
        self._out.say("a", [[*place, position] for place, position in self._at.items()])
        while self._inbox.empty():
            self._poll()
            time.sleep(self._order.poll_pause_ms / 1000)
        self._consumer.close()

    def _poll(self) -> None:
        began_ns, at = time.monotonic_ns(), dict(self._at)
        try:
            records = self._consumer.poll(POLL_S)
        except Impossible as gone:
            self._recover(gone)
            return
        except Exception as error:  # a library's errors are of many roots; it goes on after those that it raises here
            self._out.say("e", f"{type(error).__name__}: {error}")
            time.sleep(POLL_S)
            return
        parts = self._parts(records)
        if parts:
            self._out.say("r", began_ns, [[*place, position] for place, position in at.items()], parts)

    def _parts(self, records: Sequence[ReadRecord]) -> list[list[Any]]:
        """What a poll brought, partition by partition, payloads verified; now and then also that nothing came."""
        found: dict[Place, tuple[list[Any], list[Any]]] = {}
        for record in records:
            pairs, bad = found.setdefault(record.place, ([], []))
            value, why = verify(record.value, record.key, record.headers)
            pairs.append([record.offset, value])
            if why:
                bad.append([record.offset, why])
            self._at[record.place] = record.offset + 1
        now = time.monotonic()
        for place in self._at:
            if place not in found and now - self._empty_told.get(place, 0.0) >= EMPTY_EVERY_S:
                self._empty_told[place] = now
                found[place] = ([], [])
        return [[*place, self._at[place], *told] for place, told in found.items()]

    def _recover(self, gone: Impossible) -> None:
        """Give positions that became impossible the nearest ones that are possible."""
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
                self._out.say("k", *place, position, str(gone))


if __name__ == "__main__":
    main()
