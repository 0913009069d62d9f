"""The idempotent producer keeps its promises whatever the network and the brokers do.

The model broker checks sequence numbers as Kafka does, with Kafka's dangers: a leader without state of a producer
accepts any sequence number, uncommitted batches disappear with their leader, and requests of a broken connection arrive
late or never.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from squall.broker.protocol.errors import ErrorCode
from squall.workloads.client.accumulator import (
    ProducerBatch,
    ProducerRetired,
    QueuedRecord,
    RecordAccumulator,
    SettledBatch,
)
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.settings import ProducerSettings
from tests.support.effort import examples

WINDOW = 5


@dataclass
class Request:
    """A batch under way. A broker sees its sequence number and records, and not the producer's object."""

    sequence: int
    values: list[int]


@dataclass
class Log:
    """The partition's log, as its present leader has it."""

    entries: list[Request] = field(default_factory=list)
    committed: int = 0

    def append(self, request: Request) -> tuple[ErrorCode, int]:
        last = self.entries[-1] if self.entries else None
        offset = sum(len(entry.values) for entry in self.entries)
        if last is None or request.sequence == last.sequence + len(last.values):
            self.entries.append(request)
            return ErrorCode.NONE, offset
        for at in range(max(0, len(self.entries) - WINDOW), len(self.entries)):
            entry = self.entries[at]
            if (entry.sequence, len(entry.values)) == (request.sequence, len(request.values)):
                return ErrorCode.NONE, sum(len(earlier.values) for earlier in self.entries[:at])
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1

    def values(self) -> list[int]:
        return [value for entry in self.entries for value in entry.values]


class World:
    """One producer, one partition, two brokers that take turns as its leader."""

    def __init__(self) -> None:
        self.accumulator = RecordAccumulator(
            ProducerSettings(linger_ms=1, batch_size=60, delivery_timeout_ms=3000), random.Random(0)
        )
        self.now_ms = 0
        self.log = Log()
        self.leader = 0
        self.believed_leader = 0
        self.next_value = 0
        self.outcomes: dict[int, Outcome] = {}
        self.links: list[tuple[int, deque[tuple[ProducerBatch, Request]]]] = [(0, deque()), (1, deque())]
        self.answers: dict[int, deque[tuple[ProducerBatch, ErrorCode, int]]] = {0: deque(), 1: deque()}
        self.outstanding: dict[int, list[ProducerBatch]] = {0: [], 1: []}
        self.route = [0, 1]
        self.zombies: list[tuple[int, deque[tuple[ProducerBatch, Request]]]] = []

    def add(self, count: int) -> None:
        for _ in range(count):
            value = self.next_value
            try:
                self.accumulator.add("t", 0, self.record(value), self.now_ms)
            except ProducerRetired:
                return
            self.next_value += 1

    def record(self, value: int) -> QueuedRecord:
        return QueuedRecord(None, b"x" * 10, [(str(value), None)], 0, lambda outcome: None)

    def play(self, steps: list[tuple[str, object]]) -> None:
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
            self.send()

    def exchange(self, broker: int, times: int) -> None:
        """Deliver, commit and answer `times` requests without an error."""
        for _ in range(times):
            self.deliver(broker, ErrorCode.NONE)
            self.answer(broker)
            self.send()

    def send(self) -> None:
        broker = self.believed_leader
        while lanes := self.accumulator.sendable(self.now_ms):
            batch = self.accumulator.take(lanes[0], self.route[broker], self.now_ms)
            if batch is None:
                return
            request = Request(batch.sequence, [int(record.headers[0][0]) for record in batch.records])
            self.links[broker][1].append((batch, request))
            self.outstanding[broker].append(batch)

    def deliver(self, broker: int, answer: ErrorCode) -> None:
        """Deliver the next request to a broker. `answer` is its error, if the request would otherwise succeed."""
        _, wire = self.links[broker]
        if wire:
            batch, request = wire.popleft()
            self.answers[broker].append((batch, *self.handle(broker, request, answer)))

    def handle(self, broker: int, request: Request, answer: ErrorCode) -> tuple[ErrorCode, int]:
        if broker != self.leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if answer is ErrorCode.NOT_ENOUGH_REPLICAS:
            return answer, -1
        error, offset = self.log.append(request)
        if error is ErrorCode.NONE and answer is ErrorCode.NONE:
            self.log.committed = len(self.log.entries)
        return (answer if error is ErrorCode.NONE else error), offset

    def answer(self, broker: int) -> None:
        if self.answers[broker]:
            batch, error, offset = self.answers[broker].popleft()
            self.outstanding[broker].remove(batch)
            if error is ErrorCode.NONE:
                self.settle(self.accumulator.acked(batch, offset, -1))
            else:
                self.settle(self.accumulator.refused(batch, error, self.now_ms))

    def break_link(self, broker: int, late: bool) -> None:
        wire = self.links[broker][1]
        if late:
            self.zombies.append((broker, wire))
        self.links[broker] = (broker, deque())
        self.answers[broker].clear()
        lost, self.outstanding[broker] = self.outstanding[broker], []
        self.route[broker] += 2
        for batch in lost:
            self.settle(self.accumulator.lost(batch, "CONNECTION_LOST", self.now_ms, sent=True))

    def zombie_arrives(self) -> None:
        if self.zombies:
            broker, wire = self.zombies[0]
            if wire:
                self.handle(broker, wire.popleft()[1], ErrorCode.REQUEST_TIMED_OUT)
            if not wire:
                self.zombies.pop(0)

    def elect(self, truncate: int) -> None:
        self.leader = 1 - self.leader
        keep = max(self.log.committed, len(self.log.entries) - truncate)
        del self.log.entries[keep:]

    def refresh(self) -> None:
        self.believed_leader = self.leader
        self.accumulator.leader_moved("t", 0)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.settle(self.accumulator.expire(self.now_ms))

    def settle(self, settled: list[SettledBatch]) -> None:
        for one in settled:
            for record, outcome in one.outcomes():
                value = int(record.headers[0][0])
                assert value not in self.outcomes, "a record has one outcome"
                self.outcomes[value] = outcome

    def end(self) -> None:
        """Deliver every request under way to some broker, and close the producer."""
        self.settle(self.accumulator.abandon("closed"))
        while self.zombies:
            self.zombie_arrives()
        for broker in (0, 1):
            for _, request in self.links[broker][1]:
                self.handle(broker, request, ErrorCode.REQUEST_TIMED_OUT)


BROKER = st.integers(0, 1)
ANSWERS = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
]
STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 4)),
    st.tuples(st.just("exchange"), BROKER, st.integers(1, 3)),
    st.tuples(st.just("deliver"), BROKER, st.sampled_from(ANSWERS)),
    st.tuples(st.just("answer"), BROKER),
    st.tuples(st.just("break_link"), BROKER, st.booleans()),
    st.tuples(st.just("zombie_arrives")),
    st.tuples(st.just("elect"), st.integers(0, 3)),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("wait"), st.sampled_from([1, 200, 1200, 3500])),
)


@settings(max_examples=examples(1000))
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_order_uniqueness_and_every_outcome_hold_whatever_happens(steps: list[tuple[str, object]]) -> None:
    world = World()
    world.play(steps)
    world.end()
    log = world.log.values()
    assert log == sorted(set(log)), "no duplicates, in the order handed over"
    assert not world.log.entries or world.log.entries[0].sequence == 0, "nothing gets in before the first batch"
    assert set(world.outcomes) == set(range(world.next_value)), "every record has an outcome"
    for value, outcome in world.outcomes.items():
        if outcome.status is OperationStatus.OK:
            assert log[outcome.offset] == value, "acknowledged where it is"
        if outcome.status is OperationStatus.FAIL:
            assert value not in log, "failed is never in the log"
    assert world.accumulator.buffered_bytes == 0


@settings(max_examples=examples(100))
@given(st.lists(STEPS, max_size=60))
def test_a_producer_that_is_left_in_peace_delivers_what_it_took(steps: list[tuple[str, object]]) -> None:
    world = World()
    world.play(steps)
    stopped = world.accumulator.retired
    for _ in range(200):
        world.refresh()
        world.send()
        for broker in (0, 1):
            world.deliver(broker, ErrorCode.NONE)
            world.answer(broker)
        world.wait(1)
    assert world.accumulator.idle
    if not stopped and not world.accumulator.retired:
        assert len(world.log.values()) == sum(o.status is OperationStatus.OK for o in world.outcomes.values())
