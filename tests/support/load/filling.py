"""Fills topics with what a load has to tell apart: records without a transaction, and in committed and aborted ones."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
PIECE = 500
"""Is the most records of a transaction, and of what is sent before the producers change."""
ABORTED = (2, 7, 13)
"""Lists which pieces of 15 are aborted: a fifth of all records. Each third piece is without a transaction."""


class FilledTopic(NamedTuple):
    """Counts what was written to a topic."""

    written: int
    committed: int
    """Counts the records that read_committed gives."""


def fill(
    bootstrap: str, topic: str, records: int, size: int, codec: str, *, transactions: bool = True, **config: str
) -> FilledTopic:
    """Create a topic with `config`, and write records with values of `size` bytes: with `transactions`, a third of them
    without a transaction, and a fifth of all in aborted ones. Some have headers, no key or no value.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)]).values():
        done.result()
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "log_level": 0}
    plain, transactional = Producer(settings), Producer({**settings, "transactional.id": f"fill-{topic}"})
    transactional.init_transactions()
    rng, committed = Random(topic), 0
    for piece, first in enumerate(range(0, records, PIECE)):
        numbers = range(first, min(first + PIECE, records))
        in_transaction = transactions and piece % 3 > 0
        aborts = in_transaction and piece % 15 in ABORTED
        producer = transactional if in_transaction else plain
        if in_transaction:
            producer.begin_transaction()
        for number in numbers:
            _send(producer, topic, number, size, rng)
        producer.flush()
        if aborts:
            producer.abort_transaction()
        elif in_transaction:
            producer.commit_transaction()
        committed += 0 if aborts else len(numbers)
    return FilledTopic(records, committed)


def _send(producer: Producer, topic: str, number: int, size: int, rng: Random) -> None:
    producer.produce(
        topic,
        # Hexadecimal digits: a codec makes something of them, but not all.
        value=None if number % 101 == 0 else rng.randbytes(-(-size // 2)).hex().encode()[:size],
        key=None if number % 11 == 0 else b"k%d" % number,
        partition=number % PARTITIONS,
        headers=[("h", b"%d" % number), ("h", b""), ("none", None)] if number % 7 == 0 else None,
    )
