"""Rows of the differential as data: requests in their order, with places for what earlier answers gave."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.wire import ZERO_UUID, Structure

T0 = 1_000_000_000_000
"""Timestamp of the records that rows produce."""


@dataclass(frozen=True)
class Ref:
    """A value of an earlier answer of the same broker: `Ref("init", "producer_id")`, or `default` without one.

    It is what makes the same row two different streams of bytes: ids and epochs are each broker's own.
    """

    step: str
    path: str
    default: Any = -1
    plus: int = 0
    """Added to the value: -1 is the epoch, the generation or the sequence before."""

    def __repr__(self) -> str:
        plus = f" {self.plus:+}" if self.plus else ""
        return f"<{self.step}.{self.path}{plus}>"


@dataclass(frozen=True)
class Next:
    """The sequence number that a producer owes a partition: behind its last batch that was taken in that epoch."""

    topic: str
    part: int = 0
    plus: int = 0

    def place(self, producer: int, epoch: int) -> str:
        """The key under which a player's answers have it."""
        return f"next of {producer}/{epoch} in {self.topic}-{self.part}"


@dataclass(frozen=True)
class Batch:
    """A record batch whose producer may be a `Ref`."""

    values: tuple[bytes, ...] = (b"v",)
    producer: Any = -1
    epoch: Any = -1
    sequence: Any = -1
    transactional: bool = False
    codec: int = 0
    key: bytes | None = b"k"

    def encode(self, producer: int, epoch: int, sequence: int) -> bytes:
        """The bytes, with the values that the references stand for."""
        records = [Record(number, T0 + number, self.key, value) for number, value in enumerate(self.values)]
        whole = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        return bytes(encode_batch(records, **whole, transactional=self.transactional, codec=self.codec))


@dataclass(frozen=True)
class Ask:
    """One request."""

    request: Any
    version: int
    name: str = ""
    """By which a `Ref` finds its answer, the last one without an error."""
    connection: str = "a"
    setup: bool = False
    """True: it only makes the state that the row is about, and is not counted."""
    pipelined: bool = False
    """True: it is sent in one write with the request before it on the same connection, which may leave something
    running that this one is to meet."""

    @property
    def api(self) -> int:
        """The API key."""
        return int(self.request.API_KEY)


@dataclass(frozen=True)
class Row:
    """One row of the table: requests in their order, each on one of the row's connections."""

    name: str
    steps: tuple[Ask, ...]
    seed: int | None = None
    """Of a random sequence."""
    again: Row | None = None
    """The same of other topics and ids, asked instead where this one has unexplained differences: what a request left
    running may be done at one of the brokers before the pipelined request is there.
    """

    @property
    def repeat(self) -> str:
        """The arguments of `python -m tests.differential` that play this row alone."""
        return f"--rows {shlex.quote(self.name)}" if self.seed is None else f"--sequence {self.seed}"


def topic_id(step: str) -> Ref:
    """The id that a CreateTopics step got for its only topic."""
    return Ref(step, "topics.0.topic_id", ZERO_UUID)


Answers = Mapping[str, Any]


def found(ref: Ref, answers: Answers) -> Any:
    """The value of a reference in these answers."""
    value = answers.get(ref.step)
    for part in ref.path.split("."):
        if value is None:
            return ref.default
        try:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
        except (IndexError, AttributeError):
            return ref.default
    return value + ref.plus if ref.plus else value


def resolved(value: Any, answers: Answers) -> Any:
    """A copy of a request, or of a part of one, in which every reference and every batch is a value."""
    if isinstance(value, Ref):
        return found(value, answers)
    if isinstance(value, Batch):
        producer, epoch = (resolved(part, answers) for part in (value.producer, value.epoch))
        sequence = value.sequence
        if isinstance(sequence, Next):
            sequence = max(0, answers.get(sequence.place(producer, epoch), 0) + sequence.plus)
        return value.encode(producer, epoch, sequence)
    if isinstance(value, list):
        return [resolved(each, answers) for each in value]
    if isinstance(value, Structure):
        return type(value)(**{name: resolved(getattr(value, name), answers) for name in value.__match_args__})
    return value
