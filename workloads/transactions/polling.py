"""Implements the consumer of a transactional process: its polls are micro-operations of the transactions.

The consumer has connections of its own, as in applications: brokers answer the requests of a connection one after the
other, so a waiting Fetch on the producer's connection would delay records.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from squall.workloads.background_reader import recover
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.counters import LoadCounters
from squall.workloads.libraries import ConsumingTransactionalSender, record
from squall.workloads.reader import RecordedReader
from squall.workloads.recorder import Recorder
from squall.workloads.start_positions import Beginning, positions_at

POLL_LIMIT_S = 0.2
"""Limits in seconds how long a poll inside a transaction waits for records."""
LIST_LIMIT_S = 1.0


class TransactionPoller:
    """Polls all partitions inside a process's transactions with Squall's own client. Positions are kept between
    transactions.

    The first poll assigns the partitions. `beginning` says at which offsets: at the start, the middle or the end of
    each log. A partition without a leader is assigned by a later poll.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        client: Client,
        reader: RecordedReader,
        places: Sequence[Place],
        beginning: Beginning,
    ) -> None:
        self._nursery, self._client, self._reader = nursery, client, reader
        self._places, self._beginning = places, beginning
        self._runs = False

    async def poll(self, txn: int) -> None:
        """Poll once, and record the poll in the history as a part of the transaction with operation id `txn`. Never
        raises for the cluster's errors.
        """
        if not self._runs:
            self._runs = True
            await self._nursery.start(self._client.run)
        await self._assign()
        if not self._reader.consumer.positions:
            return
        polled = await self._reader.poll("poll", POLL_LIMIT_S, txn=txn)
        for event in polled.events:
            await recover(self._reader, event)

    def close(self) -> None:
        """Close the consumer's client."""
        if self._runs:
            self._client.close()

    async def _assign(self) -> None:
        positions = self._reader.consumer.positions
        missing = [place for place in self._places if place not in positions]
        found = await positions_at(self._reader, missing, self._beginning, LIST_LIMIT_S) if missing else {}
        if found:
            self._reader.assign({**positions, **found})


class LibraryTransactionPoller:
    """Polls inside transactions with a client library's consumer, and records the polls as those of `process`, an id in
    the history. The consumer runs in the same OS process as the library's producer.
    """

    def __init__(
        self, producer: ConsumingTransactionalSender, recorder: Recorder, counters: LoadCounters, process: int
    ) -> None:
        self._producer, self._recorder, self._counters, self._process = producer, recorder, counters, process

    async def poll(self, txn: int) -> None:
        """Poll once, and record the poll in the history as a part of the transaction with operation id `txn`."""
        for said in await self._producer.poll():
            record(said, self._recorder, self._counters, self._process, txn)
        self._recorder.flush()

    def close(self) -> None:
        """Do nothing: the consumer ends with its producer."""
