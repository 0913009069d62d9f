"""A broker whose group coordinator runs, with its peers, its clock and its controller played by the test."""

from __future__ import annotations

from typing import Any

import trio

from broker.coordinators.groups import records
from broker.coordinators.groups.ledger import Ledger
from broker.coordinators.groups.values import Request
from broker.log.markers import Marker, read_marker
from broker.protocol.records import decode_batch
from broker.replicas.coordinators.group_coordinator import TOPIC, GroupCoordinator
from tests.support.brokers.coordinator_log_room import CoordinatorLogRoom
from tests.support.brokers.one_broker import IDS
from tests.support.disks.memory_fs import MemoryFs

IDS.setdefault(TOPIC, bytes(14) + b"\xaa\x7e")


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
