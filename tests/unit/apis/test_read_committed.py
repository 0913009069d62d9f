"""Readers at read_committed: how far they read, which records they must drop, and what wakes a waiting fetch (R5)."""

from __future__ import annotations

from squall.broker.net.connection import Connection
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.timestamps import LATEST, MAX_TIMESTAMP
from tests.support.brokers.in_memory import MemoryBroker, answers, fetched, listed, marked

PID = 7
COMMITTED = 1


class LedBroker(MemoryBroker):
    """A broker that leads topic t. Its followers get everything at once unless said otherwise."""

    def __init__(self, **properties: str) -> None:
        super().__init__(transaction_partition_verification_enable="false", **properties)
        self.h = self.give()
        self.sequences: dict[int, int] = {}

    def send(self, pid: int = -1, count: int = 1, *, replicated: bool = True) -> None:
        """Append a batch; with a producer id, in a transaction."""
        seq = self.sequences.get(pid, 0)
        fields = {} if pid < 0 else {"pid": pid, "epoch": 0, "seq": seq, "transactional": True}
        self.sequences[pid] = seq + count
        self.produce(self.client(), ("t", 0, self.batch(count, **fields)), acks=1)
        if replicated:
            self.replicate()

    def finish(self, pid: int, *, commit: bool, replicated: bool = True) -> None:
        """Append the marker that ends the producer's transaction."""
        conn = self.client()
        self.end(conn, pid, 0, commit=commit)
        if replicated:
            self.replicate()
            assert marked(conn) == [ErrorCode.NONE]

    def replicate(self, end: int | None = None) -> None:
        for replica in (2, 3):
            self.follower_has(replica, self.h.log.log_end_offset if end is None else end)

    def reader(self, offset: int = 0, *, isolation: int = COMMITTED, **how: int) -> Connection:
        conn = self.client()
        self.fetch(conn, ("t", offset), isolation=isolation, **how)  # type: ignore[arg-type]
        return conn


def records_to(conn: Connection) -> int:
    """Return the offset after the last batch that the reader got; -1 if it got none."""
    part = fetched(conn)
    assert part.error == 0
    view, at, end = memoryview(bytes(part.records)), 0, -1
    while at < len(view):
        base, length = int.from_bytes(view[at : at + 8], "big"), int.from_bytes(view[at + 8 : at + 12], "big")
        end = base + int.from_bytes(view[at + 23 : at + 27], "big") + 1
        at += 12 + length
    return end


def test_committed_data_is_read_up_to_the_oldest_open_transaction() -> None:
    broker = LedBroker()
    broker.send(count=2)
    broker.send(PID)
    broker.send(count=2)
    part = fetched(broker.reader())
    assert (part.high_watermark, part.last_stable_offset) == (5, 2)
    assert records_to(broker.reader()) == 2
    assert records_to(broker.reader(isolation=0)) == 5


def test_followers_read_everything() -> None:
    broker = LedBroker()
    broker.send(PID, replicated=False)
    conn = broker.client()
    broker.fetch(conn, ("t", 0), replica=2, epoch=5, max_wait_ms=0)
    assert records_to(conn) == 1


def test_aborted_transactions_are_told_with_the_data_that_has_them() -> None:
    broker = LedBroker()
    broker.send(PID)
    broker.send(8)
    broker.finish(PID, commit=False)
    broker.finish(8, commit=True)
    assert fetched(broker.reader()).aborted == [(PID, 0)]
    assert fetched(broker.reader(isolation=0)).aborted is None
    assert fetched(broker.reader(3)).aborted == []


def test_only_those_aborts_are_told_that_the_returned_batches_need() -> None:
    broker = LedBroker()
    for _ in range(3):
        broker.send(PID)
        broker.finish(PID, commit=False)
    first = fetched(broker.reader(part_max_bytes=1))
    assert first.aborted == [(PID, 0)]
    assert fetched(broker.reader()).aborted == [(PID, 0), (PID, 2), (PID, 4)]


def test_a_transaction_whose_marker_is_not_committed_still_holds_readers_back() -> None:
    broker = LedBroker()
    broker.send(PID)
    broker.finish(PID, commit=True, replicated=False)
    assert fetched(broker.reader(max_wait_ms=0)).last_stable_offset == 0
    broker.replicate(1)
    assert records_to(broker.reader(max_wait_ms=0)) == -1
    broker.replicate(2)
    assert records_to(broker.reader(max_wait_ms=0)) == 2


def test_a_long_poll_of_committed_data_is_not_woken_by_what_is_above_the_last_stable_offset() -> None:
    broker = LedBroker()
    broker.send(PID)
    conn = broker.reader(max_wait_ms=10_000)
    broker.send(count=3)
    broker.send(PID)
    assert answers(conn) == []
    broker.finish(PID, commit=True, replicated=False)
    assert answers(conn) == []
    broker.replicate()
    assert records_to(conn) == 6


def test_a_long_poll_of_committed_data_keeps_its_isolation_and_its_list_of_aborts() -> None:
    """KAFKA-5355, KAFKA-5376."""
    broker = LedBroker()
    broker.send(PID)
    conn = broker.reader(max_wait_ms=10_000)
    broker.finish(PID, commit=False)
    part = fetched(conn)
    assert part.aborted == [(PID, 0)]
    assert (part.last_stable_offset, part.high_watermark) == (2, 2)


def test_a_long_poll_for_many_bytes_counts_those_below_the_last_stable_offset_only() -> None:
    broker = LedBroker()
    broker.send(PID)
    broker.send(count=30)
    conn = broker.reader(max_wait_ms=10_000, min_bytes=200)
    broker.send(count=30)
    assert answers(conn) == []
    broker.pass_ms(11_000)
    assert records_to(conn) == -1


def test_latest_is_the_last_stable_offset_for_readers_of_committed_data() -> None:
    broker = LedBroker()
    broker.send(count=2)
    broker.send(PID)
    assert listed(broker, LATEST).offset == 3
    assert listed(broker, LATEST, isolation=COMMITTED).offset == 2
    broker.finish(PID, commit=False)
    assert listed(broker, LATEST, isolation=COMMITTED).offset == 4


def test_timestamps_are_looked_up_below_the_last_stable_offset() -> None:
    broker = LedBroker()
    broker.send()
    broker.env.now_ms += 100
    broker.send(PID)
    now = broker.env.wall_ms()
    assert listed(broker, now).offset == 1
    assert listed(broker, now, isolation=COMMITTED).offset == -1
    assert listed(broker, MAX_TIMESTAMP).offset == 1
    assert listed(broker, MAX_TIMESTAMP, isolation=COMMITTED).offset == 0


def test_what_was_deleted_of_an_open_transaction_holds_nobody_before_the_logs_start() -> None:
    broker = LedBroker()
    broker.send(PID)
    broker.send(PID)
    broker.replicas.delete_records(broker.h, 1)
    assert fetched(broker.reader(1, max_wait_ms=0)).last_stable_offset == 1
