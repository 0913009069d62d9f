"""Checks that replies that are not read have a limit, all connections of clients together."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.log.slices import FileSlice
from squall.broker.net.connection import Connection
from squall.broker.protocol.apis import ApiKey
from tests.support.brokers.in_memory import LISTENER, MemoryBroker
from tests.support.disks.memory_fs import MemoryFs

MIB = 1 << 20


class UnreadBroker(MemoryBroker):
    """A broker that answers with replies of any size, and clients that read only when the test says so."""

    def __init__(self, limit: int = 4 * MIB) -> None:
        super().__init__(squall_replies_max_bytes=str(limit))

    def reads_nothing(self, listener: str = LISTENER) -> Connection:
        conn = self.client(listener)
        sent(conn).capacity = 0
        return conn

    def reply(self, conn: Connection, body: Any) -> None:
        self.slot(conn, ApiKey.METADATA, 0).reply(body)
        self.server.settle()


def sent(conn: Connection) -> Any:
    return conn.link.outgoing  # type: ignore[attr-defined]


@pytest.fixture
def broker() -> UnreadBroker:
    return UnreadBroker()


def test_those_that_leave_most_unread_are_ended_and_others_are_not(broker: UnreadBroker) -> None:
    most, much, little = broker.reads_nothing(), broker.reads_nothing(), broker.reads_nothing()
    broker.reply(little, bytes(MIB // 2))
    broker.reply(much, bytes(MIB))
    broker.reply(most, bytes(2 * MIB))
    assert not most.closed
    broker.reply(much, bytes(MIB // 2 - 1000))
    assert not most.closed, "no more than the limit"
    broker.reply(little, bytes(MIB))
    assert (sent(most).reset, much.closed, little.closed) == (True, False, False)
    assert [(event, fields["bytes"] >> 20) for event, fields in broker.env.traces if event == "replies_dropped"] == [
        ("replies_dropped", 2)
    ]
    broker.reply(little, bytes(MIB // 2))
    assert (much.closed, little.closed) == (False, False), "what is gone counts no more"


def test_what_is_read_counts_no_more(broker: UnreadBroker) -> None:
    reads, other = broker.reads_nothing(), broker.reads_nothing()
    for _ in range(20):
        broker.reply(reads, bytes(3 * MIB))
        sent(reads).widen(1 << 30)
        reads._blocked = False
        reads.flush()
        sent(reads).capacity = 0
    broker.reply(other, bytes(3 * MIB))
    assert not reads.closed
    assert not other.closed


def test_replies_behind_one_that_is_not_known_count_too(broker: UnreadBroker) -> None:
    """Behind a Fetch that waits, any number of answers could gather."""
    waits, other = broker.reads_nothing(), broker.reads_nothing()
    broker.slot(waits, ApiKey.FETCH, 4)
    broker.reply(waits, bytes(3 * MIB))
    broker.reply(other, bytes(2 * MIB))
    assert waits.closed
    assert not other.closed


def test_records_that_are_still_in_their_files_take_no_memory(broker: UnreadBroker) -> None:
    file = MemoryFs().open("f", create=True)
    file.append(bytes(8 * MIB))
    conns = [broker.reads_nothing() for _ in range(3)]
    for conn in conns:
        broker.reply(conn, [b"head", FileSlice(file, 0, 8 * MIB)])
        assert conn.kept_bytes < 100
    assert not any(conn.closed for conn in conns)
    sent(conns[0]).capacity = 3 * MIB
    conns[0]._blocked = False
    conns[0].flush()
    assert conns[0].kept_bytes == 0
    sent(conns[0]).capacity = 1 << 30
    conns[0]._blocked = False
    conns[0].flush()
    assert conns[0].kept_bytes == 0
    assert len(sent(conns[0]).data) > 8 * MIB


def test_brokers_do_not_count() -> None:
    broker = UnreadBroker()
    server: Any = broker.server
    server._inner = frozenset({"INTERNAL"})
    of_a_broker, client = broker.reads_nothing("INTERNAL"), broker.reads_nothing()
    broker.reply(of_a_broker, bytes(8 * MIB))
    broker.reply(client, bytes(3 * MIB))
    assert not of_a_broker.closed
    assert not client.closed
