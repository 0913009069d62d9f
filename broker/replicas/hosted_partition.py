"""A partition replica as this broker hosts it: its state machine, its log, and the requests parked on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.names import INTERNAL_TOPICS
from squall.broker.replicas.purgatory import ProducePurgatory

if TYPE_CHECKING:
    from squall.broker.log.log import Log
    from squall.broker.net.connection import Connection
    from squall.broker.net.wakeups import Woken
    from squall.broker.replicas.purgatory import DelayedDeleteRecords
    from squall.broker.replication.partition import Partition


class HostedPartition:
    """State, log and watchers of one replica. The watchers are ordered sets (dicts), so that wake-ups are
    deterministic.
    """

    __slots__ = (
        "consumers",
        "deletions",
        "flushing",
        "followers",
        "holding",
        "internal",
        "isr_size",
        "log",
        "name",
        "readers",
        "state",
        "uncommitted",
        "unflushed",
    )

    def __init__(self, state: Partition, log: Log) -> None:
        self.state, self.log = state, log
        self.name = log.topic.encode()
        self.internal = log.topic in INTERNAL_TOPICS
        """A coordinator's log: clients may read it, and not write it."""
        self.isr_size = (-1, 0)
        """Leader epoch and size of the ISR, as its changes were last counted."""
        self.uncommitted = ProducePurgatory()
        """Appends with acks=all that wait for the high watermark."""
        self.flushing = False
        """A flush is under way that the log's settings ask for."""
        self.holding = False
        """Nobody sees what is appended until that flush has ended."""
        self.unflushed = ProducePurgatory()
        """Appends with acks=1 that wait for it."""
        self.deletions: dict[DelayedDeleteRecords, None] = {}
        """DeleteRecords that wait for the low watermark."""
        self.followers: Woken = {}
        """Parked fetches of other brokers."""
        self.consumers: Woken = {}
        """Parked fetches of clients."""
        self.readers: dict[Connection, None] = {}
        """Connections that were sent bytes of this log's files. The kernel may still hold those very pages."""

    def first_unstable_offset(self) -> int | None:
        """Return the start of the oldest transaction not decided below the high watermark; None: all are (R5)."""
        producers = self.log.producers
        if producers.ongoing or producers.undecided:
            return producers.first_unstable_offset(self.state.high_watermark)
        return None

    def read_by(self, connection: Connection) -> None:
        """Note that a connection is being sent bytes of this log, until it closes."""
        readers = self.readers
        readers[connection] = None
        connection.on_close.append(lambda: readers.pop(connection, None))

    def cut_readers(self) -> None:
        """Reset connections that may still be sending bytes which a truncation is about to change under them."""
        for connection in list(self.readers):
            connection.abort()
