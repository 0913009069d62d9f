"""The form of rows: a list of requests with references to earlier answers."""

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
    """A reference to a value of an earlier answer: `Ref("init", "producer_id")`. It is `default` if there is no such
    answer.

    So the same row fits both brokers, though each has its own ids and epochs.
    """

    step: str
    path: str
    default: Any = -1
    plus: int = 0
    """Is added to the value: with -1 it is the previous epoch, generation or sequence number."""

    def __repr__(self) -> str:
        plus = f" {self.plus:+}" if self.plus else ""
        return f"<{self.step}.{self.path}{plus}>"


@dataclass(frozen=True)
class Next:
    """A reference to the producer's next sequence number for a partition, after its last appended batch in that epoch.
    """

    topic: str
    part: int = 0
    plus: int = 0

    def place(self, producer: int, epoch: int) -> str:
        """Return the key of that sequence number among a player's answers."""
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
        """Return the bytes of the batch, with the values of its references."""
        records = [Record(number, T0 + number, self.key, value) for number, value in enumerate(self.values)]
        whole = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        return bytes(encode_batch(records, **whole, transactional=self.transactional, codec=self.codec))


@dataclass(frozen=True)
class Ask:
    """One request of a row."""

    request: Any
    version: int
    name: str = ""
    """The name by which a `Ref` refers to its answer. Of several, the last answer without an error counts."""
    connection: str = "a"
    setup: bool = False
    """Whether it only prepares the state that the row is about; then it is not counted."""
    pipelined: bool = False
    """Whether it is sent in one write with the request before it on the same connection, to arrive while that one's
    background work is not done.
    """

    @property
    def api(self) -> int:
        """The API key."""
        return int(self.request.API_KEY)


@dataclass(frozen=True)
class Row:
    """One row: requests in order, each on one of the row's connections."""

    name: str
    steps: tuple[Ask, ...]
    seed: int | None = None
    """The seed, if the row is a random one."""
    again: Row | None = None
    """The same row with other topics and ids, to be played if this one has unexplained differences. They may be chance:
    one broker may finish its background work before the pipelined request arrives.
    """

    @property
    def repeat(self) -> str:
        """Return the arguments of `python -m tests.differential` that play this row alone."""
        return f"--rows {shlex.quote(self.name)}" if self.seed is None else f"--sequence {self.seed}"


def topic_id(step: str) -> Ref:
    """Return a reference to the id of the topic that a CreateTopics step created."""
    return Ref(step, "topics.0.topic_id", ZERO_UUID)


Answers = Mapping[str, Any]


def found(ref: Ref, answers: Answers) -> Any:
    """Return the value of a reference."""
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
    """Return a copy of a request, or of a part of one, with the values of all references and batches."""
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
