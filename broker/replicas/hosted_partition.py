"""Defines a partition replica as this broker hosts it: its state machine, its log, and the requests that wait on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.names import INTERNAL_TOPICS
from squall.broker.replicas.purgatory import ProducePurgatory

if TYPE_CHECKING:
    from squall.broker.log.log import Log
    from squall.broker.net.connection import Connection
    from squall.broker.net.wakeups import WakeableSet
    from squall.broker.replicas.purgatory import DelayedDeleteRecords
    from squall.broker.replication.partition import Partition


class HostedPartition:
    """Holds the state machine, the log and the waiting requests of one replica. Waiting requests are in ordered sets
    (dicts), so that wake-ups are deterministic.
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
        """Is True for a coordinator's log, which clients may read but not write."""
        self.isr_size = (-1, 0)
        """Holds the leader epoch and the size of the committed ISR as of the newest `IsrChanged` effect."""
        self.uncommitted = ProducePurgatory()
        """Holds the appends with acks=all that wait for the high watermark."""
        self.flushing = False
        """Is True while a flush runs that the log's settings ask for."""
        self.holding = False
        """Is True if new records are invisible until the running flush has ended."""
        self.unflushed = ProducePurgatory()
        """Holds the appends with acks=1 that wait for the running flush."""
        self.deletions: dict[DelayedDeleteRecords, None] = {}
        """Holds the DeleteRecords that wait for the low watermark."""
        self.followers: WakeableSet = {}
        """Holds the parked fetches of other brokers."""
        self.consumers: WakeableSet = {}
        """Holds the parked fetches of clients."""
        self.readers: dict[Connection, None] = {}
        """Holds the connections to which bytes of this log's files were sent. The kernel may still send from the same
        pages of the files, so a truncation has to reset these connections.
        """

    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest transaction that is open, or whose marker the high watermark has not
        passed. Return None if there is no such transaction (mechanism R5).
        """
        producers = self.log.producers
        # Nearly always there is neither, and this runs for each consumer's fetch of each partition.
        if producers.ongoing or producers.undecided:
            return producers.first_unstable_offset(self.state.high_watermark)
        return None

    def read_by(self, connection: Connection) -> None:
        """Remember that bytes of this log's files are being sent on this connection, until the connection closes."""
        readers = self.readers
        readers[connection] = None
        connection.on_close.append(lambda: readers.pop(connection, None))

    def cut_readers(self) -> None:
        """Reset the connections that may still be sending bytes that a truncation is about to change."""
        for connection in list(self.readers):
            connection.abort()
