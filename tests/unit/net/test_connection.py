"""The sending side of a connection: order, joining, full sockets, limits."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from squall.broker.log.slices import FileSlice
from squall.broker.net.connection import Connection, PendingResponse
from tests.support.brokers.in_memory import answers
from tests.support.brokers.memory_env import MemoryTransport, Pipe
from tests.support.disks.memory_fs import MemoryFs


class Peer:
    """A connection with nothing behind it."""

    def __init__(self) -> None:
        self.link = MemoryTransport("client:1", Pipe(0), Pipe(1 << 40))
        self.dirty: list[Connection] = []
        self.tasks: list[Any] = []
        link: Any = self.link
        self.conn = Connection(link, "PLAINTEXT", self.dirty.append, self.tasks.append)

    def slots(self, count: int) -> list[PendingResponse]:
        made = [PendingResponse(self.conn, number, 0, False) for number in range(count)]
        self.conn.slots.extend(made)
        return made


def file_slice(content: bytes) -> FileSlice:
    fs = MemoryFs()
    file = fs.open("f", create=True)
    file.append(content)
    return FileSlice(file, 0, len(content))


def test_replies_leave_in_the_order_of_the_requests_however_they_are_completed() -> None:
    peer = Peer()
    first, second, third = peer.slots(3)
    third.reply(b"c")
    first.reply(b"a")
    peer.conn.flush()
    assert answers(peer.conn) == [(0, b"a")]
    second.reply(b"b")
    peer.conn.flush()
    assert answers(peer.conn) == [(1, b"b"), (2, b"c")]


def test_small_replies_are_sent_at_once_together() -> None:
    peer = Peer()
    for slot in peer.slots(5):
        slot.reply(b"x" * 10)
    peer.conn.flush()
    assert peer.link.sends == 1
    assert len(answers(peer.conn)) == 5


def test_file_slices_keep_their_place_between_bytes() -> None:
    peer = Peer()
    first, second = peer.slots(2)
    first.reply([b"<", file_slice(b"records"), b">"])
    second.reply(b"b")
    peer.conn.flush()
    assert answers(peer.conn) == [(0, b"<records>"), (1, b"b")]


def test_a_dropped_slot_holds_nobody_up() -> None:
    peer = Peer()
    first, second = peer.slots(2)
    second.reply(b"b")
    first.drop()
    peer.conn.flush()
    assert answers(peer.conn) == [(1, b"b")]


def test_only_the_first_reply_to_a_request_counts() -> None:
    peer = Peer()
    [slot] = peer.slots(1)
    slot.reply(b"a")
    slot.reply(b"z")
    peer.conn.flush()
    assert answers(peer.conn) == [(0, b"a")]


async def test_what_does_not_fit_is_sent_later_byte_by_byte_the_same() -> None:
    peer = Peer()
    peer.link.outgoing.capacity = 3
    first, second = peer.slots(2)
    first.reply([b"<", file_slice(b"records" * 20), b">"])
    peer.conn.flush()
    assert len(peer.tasks) == 1
    second.reply(b"b" * 50)
    peer.conn.flush()
    while peer.tasks:
        peer.link.outgoing.widen(7)
        await peer.tasks.pop()()
    assert answers(peer.conn) == [(0, b"<" + b"records" * 20 + b">"), (1, b"b" * 50)]
    assert peer.conn._out_bytes == 0


def test_a_full_socket_has_one_task_however_many_replies_come() -> None:
    peer = Peer()
    peer.link.outgoing.capacity = 0
    for slot in peer.slots(4):
        slot.reply(b"x")
        peer.conn.flush()
    assert len(peer.tasks) == 1


async def test_a_connection_with_too_much_parked_is_congested_until_replies_leave() -> None:
    peer = Peer()
    slots = peer.slots(3)
    assert peer.conn.congested(2, 1000)
    relaxed = []

    async def wait() -> None:
        await peer.conn.wait_uncongested(2, 1000)
        relaxed.append(len(peer.conn.slots))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not relaxed
        slots[0].reply(b"a")
        peer.conn.flush()
    assert relaxed == [2]


def test_unsent_bytes_congest_a_connection_too() -> None:
    peer = Peer()
    peer.link.outgoing.capacity = 0
    [slot] = peer.slots(1)
    slot.reply(b"x" * 100)
    peer.conn.flush()
    assert peer.conn.congested(10, 50)
    assert not peer.conn.congested(10, 500)


async def test_the_end_of_a_connection_frees_who_waits_for_it_to_relax() -> None:
    peer = Peer()
    peer.slots(3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.conn.wait_uncongested, 2, 1000)
        await trio.testing.wait_all_tasks_blocked()
        peer.conn.close()
    assert not peer.conn.slots


def test_a_broken_link_closes_the_connection_once_and_calls_back() -> None:
    peer = Peer()
    called = []
    peer.conn.on_close.append(lambda: called.append(True))
    first, second = peer.slots(2)
    peer.link.close()
    first.reply(b"a")
    peer.conn.flush()
    assert peer.conn.closed
    second.reply(b"b")
    peer.conn.close()
    assert called == [True]
    assert second.chunks is None


def test_a_connection_that_is_cut_is_reset_and_forgets_its_replies() -> None:
    peer = Peer()
    called = []
    peer.conn.on_close.append(lambda: called.append(True))
    peer.slots(2)
    peer.conn.abort()
    peer.conn.abort()
    assert (peer.link.outgoing.reset, peer.conn.closed, called) == (True, True, [True])
    assert not peer.conn.slots


def test_an_empty_piece_behind_a_large_slice_is_nothing_to_send() -> None:
    peer = Peer()
    [slot] = peer.slots(1)
    slot.reply([b"a", file_slice(b"x" * 100_000), b""])
    peer.conn.flush()
    assert answers(peer.conn) == [(0, b"a" + b"x" * 100_000)]


def test_small_slices_and_large_bytes_leave_in_one_call() -> None:
    peer = Peer()
    [slot] = peer.slots(1)
    slot.reply([b"a", file_slice(b"x" * 1000), b"b" * 100_000, b"c"])
    peer.conn.flush()
    assert peer.link.sends == 1
    assert answers(peer.conn) == [(0, b"a" + b"x" * 1000 + b"b" * 100_000 + b"c")]


async def test_of_what_nobody_reads_little_is_taken_into_memory() -> None:
    peer = Peer()
    peer.link.outgoing.capacity = 0
    slots = peer.slots(6)
    for slot in slots:
        slot.reply([file_slice(b"x" * 200_000)])
        peer.conn.flush()
    assert sum(len(chunk) for chunk in peer.conn._out if not isinstance(chunk, FileSlice)) < 1_000_000
    assert sum(isinstance(chunk, FileSlice) for chunk in peer.conn._out) == 3
    peer.link.outgoing.widen(1 << 40)
    await peer.tasks[0]()
    assert [len(body) for _, body in answers(peer.conn)] == [200_000] * 6


def test_a_connection_ends_where_an_announced_slice_cannot_be_read() -> None:
    peer = Peer()
    [slot] = peer.slots(1)
    whole = file_slice(b"x" * 1000)
    slot.reply([FileSlice(whole.file, 500, 1000)])
    peer.conn.flush()
    assert peer.conn.closed
    assert not peer.link.outgoing.data
