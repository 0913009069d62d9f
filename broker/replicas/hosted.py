"""A partition replica as this broker hosts it: its state machine, its log, and the requests parked on it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.apis.delete_records import Deletion
    from broker.apis.fetch import DelayedFetch
    from broker.apis.produce import DelayedProduce
    from broker.log.log import Log
    from broker.net.connection import Connection
    from broker.replication.partition import Partition


class Hosted:
    """State, log and watchers of one replica. The watchers are ordered sets (dicts), so that wake-ups are
    deterministic.
    """

    __slots__ = (
        "_given_up",
        "consumers",
        "deletions",
        "flushing",
        "followers",
        "holding",
        "log",
        "name",
        "readers",
        "state",
        "unflushed",
        "waiting",
    )

    def __init__(self, state: Partition, log: Log) -> None:
        self.state, self.log = state, log
        self.name = log.topic.encode()
        self.waiting: deque[tuple[int, DelayedProduce, list[object]]] = deque()
        """Appends that wait for the high watermark: (offset it must reach, request, the partition's result)."""
        self._given_up = 0
        self.flushing = False
        """A flush is under way that the log's settings ask for."""
        self.holding = False
        """What is appended is told to nobody until that flush has ended."""
        self.unflushed: deque[tuple[int, DelayedProduce, list[object]]] = deque()
        """Appends with acks=1 that wait for it, as in `waiting`: (offset that must be durable, request, result)."""
        self.deletions: dict[Deletion, None] = {}
        """DeleteRecords that wait for the low watermark."""
        self.followers: dict[DelayedFetch, None] = {}
        self.consumers: dict[DelayedFetch, None] = {}
        self.readers: dict[Connection, None] = {}
        """Connections that were sent bytes of this log's files. The kernel may still hold those very pages."""

    def give_up(self) -> None:
        """One of those in `waiting` waits no more. While the high watermark stands still nothing else takes them out:
        they are swept as soon as they are the half, so that none costs more than its share.
        """
        self._given_up += 1
        if 2 * self._given_up > len(self.waiting):
            still = [item for item in self.waiting if item[1].owed]
            self.waiting.clear()
            self.waiting.extend(still)
            self._given_up = 0

    def read_by(self, connection: Connection) -> None:
        """Note that a connection is being sent bytes of this log, until it closes."""
        readers = self.readers
        readers[connection] = None
        connection.on_close.append(lambda: readers.pop(connection, None))

    def cut_readers(self) -> None:
        """Reset connections that may still be sending bytes which a truncation is about to change under them."""
        for connection in list(self.readers):
            connection.abort()
