"""A broker whose group coordinator runs, with its peers, its clock and its controller played by the test."""

from __future__ import annotations

from typing import Any

import trio

from broker.coordinators.groups import records
from broker.coordinators.groups.ledger import Ledger
from broker.coordinators.groups.values import Commit, Committed, FetchOffsets, Join, Request, TxnCommit
from broker.log.markers import Marker, read_marker
from broker.protocol.errors import ErrorCode
from broker.protocol.records import decode_batch
from broker.replicas.coordinators.group_coordinator import TOPIC, GroupCoordinator
from tests.support.brokers.coordinator_log_room import CoordinatorLogRoom
from tests.support.brokers.in_memory import IDS
from tests.support.disks.memory_fs import MemoryFs

IDS.setdefault(TOPIC, bytes(14) + b"\xaa\x7e")
T0 = ("t", 0)
PID = 7


def commit(offset: int) -> Commit:
    """Of `T0`, by nobody in particular."""
    return Commit("g", -1, "", None, ((T0, Committed(offset)),))


def in_transaction(offset: int) -> TxnCommit:
    """The same, in a transaction of `PID`."""
    return TxnCommit("g", -1, "", None, ((T0, Committed(offset)),), PID, 0)


FETCH = FetchOffsets("g", (T0,), stable=True)
JOIN = Join("g", "", None, "c", "/h", 10_000, 30_000, "consumer", (("range", b"sub"),), "c-1", needs_id=False)


def told(answers: list[Any]) -> list[int | ErrorCode | None]:
    """The offset, or the error, in each answer to FETCH."""
    found = [answer.offsets[0] for answer in answers]
    return [error or (committed and committed.offset) for _, committed, error in found]


class GroupingBroker(CoordinatorLogRoom):
    """Broker 1, which may lead partition 0 of __consumer_offsets."""

    TOPIC = TOPIC

    def __init__(self, nursery: trio.Nursery, *, fs: MemoryFs | None = None, **settings: str) -> None:
        given = {
            "offsets_topic_num_partitions": "1",
            "group_initial_rebalance_delay_ms": "0",
            "transaction_partition_verification_enable": "false",  # nobody coordinates transactions here
            **settings,
        }
        super().__init__(fs=fs, **given)
        self.coordinator = GroupCoordinator(self.env, self.config, self.replicas)
        self.coordinator.bind(nursery.start_soon)

    def do(self, request: Request, epoch: int = 5) -> Any:
        """Hand a request in, and replicate what it has written."""
        answers = self.submit(request)
        if not answers:
            self.replicate(epoch)
        [answer] = answers
        return answer

    def replayed(self) -> Ledger:
        """What the log says."""
        made, log = Ledger(), self.log.log
        for header, batch in log.read_batches(log.log_start_offset, log.log_end_offset):
            view = memoryview(batch)
            if header.is_control:
                marker = read_marker(header, view)
                assert isinstance(marker, Marker)
                made.end_transaction(header.producer_id, marker.commit, header.last_offset)
                continue
            producer_id = header.producer_id if header.is_transactional else -1
            for record in decode_batch(header, view):
                assert record.key is not None
                written = records.decode(record.key, record.value)
                assert written is not None
                made.replay(written, record.offset, producer_id)
        return made
