"""Runs one client of a library as a driver program, `python -m squall.chaos.drivers CONFIG`: a producer, a reader, a
transactional producer or a group member.

CONFIG is the JSON of a `library.DriverConfig`. The harness sends requests as `frames` on standard input, and gets
replies on standard output. What a library prints goes to standard error, which the harness keeps.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from squall.chaos.drivers.frames import FrameCodec, frame
from squall.chaos.drivers.library import ClientLibrary, DriverConfig, load
from squall.chaos.drivers.members import contract as members
from squall.chaos.drivers.members.contract import MemberGeneration
from squall.chaos.drivers.members.member import OTHER_MEMBER, MemberWorker
from squall.chaos.drivers.reading import ConsumerWorker, TransactorConsumer
from squall.chaos.drivers.transactors import outcomes as transactors
from squall.chaos.drivers.transactors.calls import TransactionCalls

PUMP_S = 0.005
FINISH_SLACK_S = 10.0


class HarnessPipe:
    """Sends messages to the harness; any thread may call it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._turn = threading.Lock()
        self._outcomes: list[tuple[int, int, int, int, str]] = []

    def send(self, *message: Any) -> None:
        """Send a message at once."""
        data = frame(list(message))
        with self._turn:
            while data:
                data = data[os.write(self._file, data) :]

    def add_outcome(self, op: int, status: int, offset: int, timestamp_ms: int, error: str) -> None:
        """Keep the outcome of a record until `send_outcomes` is called, which sends all outcomes in one message."""
        with self._turn:
            self._outcomes.append((op, status, offset, timestamp_ms, error))

    def send_outcomes(self) -> None:
        """Send the outcomes that were added since the last call; nothing if there are none."""
        with self._turn:
            outcomes, self._outcomes = self._outcomes, []
        if outcomes:
            self.send("o", outcomes)


def main() -> None:
    """Run the driver until the harness sends "finish" or closes the pipe."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    config = msgspec.json.decode(sys.argv[1], type=DriverConfig)
    # Redirect stdout, so that output of a library does not get between the frames.
    out = HarnessPipe(os.dup(1))
    os.dup2(2, 1)
    inbox: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox, answers), daemon=True).start()
    try:
        if config.role == "member":
            attend(members.load(config.library), config, out, inbox, answers)
        elif config.role == "instance":
            instance(MemberWorker(members.load(config.library), config, out, answers), config, out, inbox)
        elif config.role == "transactor":
            transact(
                transactors.load(config.library),
                TransactorConsumer(lambda: load(config.library), config, out),
                config,
                out,
                inbox,
            )
        elif config.role == "producer":
            produce(load(config.library), config, out, inbox)
        else:
            ConsumerWorker(load(config.library), config, out, inbox).run()
    except Exception as trouble:
        logging.exception("the driver ends")
        out.send("x", f"{type(trouble).__name__}: {trouble}")
    sys.stderr.flush()
    # Do not return: a library's threads may wait forever for brokers that are gone.
    os._exit(0)


def _listen(inbox: queue.SimpleQueue[list[Any]], answers: queue.SimpleQueue[list[Any]]) -> None:
    """Read messages from the harness. Requests go to `inbox`, and replies to callbacks of members to `answers`. A
    separate queue is needed because a callback waits for its reply while requests in the inbox wait for the callback.
    """
    frames = FrameCodec()
    while data := os.read(0, 1 << 16):
        for message in frames.feed(data):
            (answers if message[0] == "now" else inbox).put(message)
    # The end of the input means that the harness has closed the pipe, or is gone.
    inbox.put(["f"])


def produce(
    library: ClientLibrary, config: DriverConfig, out: HarnessPipe, inbox: queue.SimpleQueue[list[Any]]
) -> None:
    """Hand the requested records over to the library, and send their outcomes."""
    producer = library.producer(config, out.add_outcome)
    out.send("up", library.version)
    for message in _messages(inbox):
        if message is not None:
            producer.send(*message[1:])
        producer.pump()
        out.send_outcomes()
    producer.finish(config.delivery_timeout_ms / 1000 + FINISH_SLACK_S)
    out.send_outcomes()


def transact(
    library: transactors.TransactionLibrary,
    polls: TransactorConsumer,
    config: DriverConfig,
    out: HarnessPipe,
    inbox: queue.SimpleQueue[list[Any]],
) -> None:
    """Make the requested transactional calls, one after the other, and hand records over. The producer is not closed at
    the end.
    """
    producer = library.transactor(config, out.add_outcome)
    calls = TransactionCalls(producer, out, config.delivery_timeout_ms / 1000)
    out.send("up", library.version)
    for message in _messages(inbox):
        if message is not None and message[0] == "s":
            producer.send(*message[1:])
        elif message is not None and message[0] == "poll":
            polls.poll()
        elif message is not None:
            calls.make(message[0])
        calls.pump()


def attend(
    library: members.MemberLibrary,
    config: DriverConfig,
    out: HarnessPipe,
    inbox: queue.SimpleQueue[list[Any]],
    answers: queue.SimpleQueue[list[Any]],
) -> None:
    """Run a group member: poll, commit and leave on request, one after the other."""
    member = MemberWorker(library, config, out, answers)
    out.send("up", library.version)
    while (message := inbox.get())[0] != "f":
        _of_member(member, message)


def _of_member(member: MemberWorker, message: list[Any]) -> None:
    """Let the member carry out one request of the harness, such as ["poll"]."""
    match message:
        case ["poll"]:
            member.poll()
        case ["offsets", member_id, generation, offsets]:
            member.commit(member_id, generation, offsets)
        case ["rewind"]:
            member.rewind()
        case ["leave"]:
            member.leave()
        case _:
            raise AssertionError(f"nobody says this to a member: {message!r}")


def instance(member: MemberWorker, config: DriverConfig, out: HarnessPipe, inbox: queue.SimpleQueue[list[Any]]) -> None:
    """Run a client that is a group member and a producer, transactional if it has a transactional id. Neither is closed
    at the end.
    """
    if config.transactional_id:
        library = transactors.load(config.library)
        transacting = library.transactor(config, out.add_outcome)
        producer, calls = transacting, TransactionCalls(transacting, out, config.delivery_timeout_ms / 1000)
        pump = calls.pump
    else:
        producer = load(config.library).producer(config, out.add_outcome)

        def pump() -> None:
            producer.pump()
            out.send_outcomes()

    out.send("up", config.library)
    for message in _messages(inbox):
        match message:
            case None:
                pass
            case ["s", *record]:
                producer.send(*record)
            case ["txn_offsets", member_id, generation, offsets]:
                taken = member.identity_of(MemberGeneration(member_id, generation))
                if taken is None:
                    calls.refuse(transactors.OFFSETS, OTHER_MEMBER)
                else:
                    at = {(topic, index): position for topic, index, position in offsets}
                    transacting.offsets = at, taken
                    calls.make(transactors.OFFSETS)
            case [call] if call in transactors.CALLS:
                calls.make(call)
            case _:
                _of_member(member, message)
        pump()


def _messages(inbox: queue.SimpleQueue[list[Any]]) -> Iterator[list[Any] | None]:
    """Yield each request until "finish". Yield None whenever no request came for PUMP_S seconds."""
    while True:
        try:
            message = inbox.get(timeout=PUMP_S)
        except queue.Empty:
            yield None
            continue
        if message[0] == "f":
            return
        yield message


if __name__ == "__main__":
    main()
