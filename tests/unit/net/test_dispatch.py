"""Dispatch: what ends a connection, and what a connection's end ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.net.connection import Connection, PendingResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.server import Route
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.in_memory import LISTENER, MemoryBroker
from tests.support.brokers.memory_env import MemoryTransport, Pipe


def produce_frame(broker: MemoryBroker, topic: str, acks: int) -> bytes:
    data = PartitionProduceData(index=0, records=broker.batch())
    request = ProduceRequest(
        acks=acks, timeout_ms=100, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return encode_request(ApiKey.PRODUCE, 9, 1, "c", request.encode(9))


async def serve(broker: MemoryBroker, *frames: bytes) -> bool:
    """Return whether a connection that sends these frames in one piece, and ends, has been served to its end."""
    server: Any = broker.server
    server.route({ApiKey.PRODUCE: Route(ApiKey.PRODUCE, hot=broker.produce_api.handle)}, {})
    there, _, serve_it = broker.accept()
    there.data += b"".join(frames)
    there.ended = True
    with trio.fail_after(5):
        await serve_it()
    return not server._connections and not server._per_address


async def test_nothing_is_done_for_a_connection_that_was_closed_earlier_in_the_same_burst() -> None:
    broker = MemoryBroker()
    h = broker.give()
    assert await serve(broker, produce_frame(broker, "nobody", 0), produce_frame(broker, "t", 1))
    assert h.log.log_end_offset == 0


async def test_requests_of_one_burst_are_all_served_in_order() -> None:
    broker = MemoryBroker()
    h = broker.give()
    assert await serve(broker, produce_frame(broker, "t", 0), produce_frame(broker, "t", 1))
    assert h.log.log_end_offset == 2


async def test_an_api_that_is_not_served_ends_its_connection_only() -> None:
    broker = MemoryBroker()
    h = broker.give()
    assert await serve(broker, encode_request(ApiKey.METADATA, 9, 1, "c", b"\0\0\0\0"))
    assert await serve(broker, produce_frame(broker, "t", 1))
    assert h.log.log_end_offset == 1


async def test_a_plain_handler_may_answer_later_and_the_order_of_answers_stays() -> None:
    broker = MemoryBroker()
    server: Any = broker.server
    asked: list[int] = []

    async def wait() -> bytes:
        return b"later"

    def handler(request: object, slot: PendingResponse) -> object:
        asked.append(slot.correlation_id)
        return DeferredResponse(wait) if slot.correlation_id == 1 else b"now"

    there, back, serve_it = broker.accept()
    server.route({ApiKey.METADATA: Route(ApiKey.METADATA, plain=handler)}, {})
    for number in (1, 2):
        there.data += encode_request(ApiKey.METADATA, 9, number, "c", MetadataRequest(topics=[]).encode(9))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_it)
        await trio.testing.wait_all_tasks_blocked()
        assert (asked, bytes(back.data)) == ([1, 2], b""), "the first answer is due before the second one"
        for function, args in broker.started:
            await function(*args)
        assert [bytes(back.data).find(answer) for answer in (b"later", b"now")] == [9, 23]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_what_is_answered_later_is_not_encoded_for_a_connection_that_has_ended(is_closed: bool) -> None:
    """Four hundred clients that had gone cost as much as four hundred that read."""
    broker = MemoryBroker()
    server: Any = broker.server
    encoded: list[int] = []
    conn = broker.client()

    class Encoded:
        def encode(self, version: int) -> bytes:
            encoded.append(version)
            return b"all of it"

    async def wait() -> Encoded:
        if is_closed:
            conn.close()
        return Encoded()

    server.route({ApiKey.METADATA: Route(ApiKey.METADATA, plain=lambda request, slot: DeferredResponse(wait))}, {})
    slot = broker.slot(conn, ApiKey.METADATA, 9)
    server._handle(server._for_clients[ApiKey.METADATA], None, slot)
    for function, args in broker.started:
        await function(*args)
    assert encoded == ([] if is_closed else [9])
    sent: Any = conn.link
    assert (b"all of it" in sent.outgoing.data) != is_closed


async def test_an_answer_as_one_piece_as_pieces_and_as_a_list_of_one_is_the_same_on_the_wire() -> None:
    sent = []
    for body in (b"abcd", [b"abcd"], [b"ab", b"cd"], [memoryview(b"abcd")]):
        there, back = Pipe(1 << 30), Pipe(1 << 30)
        transport = MemoryTransport("client:1", there, back)
        conn = Connection(transport, LISTENER, lambda conn: conn.flush(), lambda *_: None)
        slot = PendingResponse(conn, 7, 9, True)
        conn.slots.append(slot)
        slot.reply(body)
        sent.append(bytes(back.data))
    assert set(sent) == {b"\0\0\0\x09\0\0\0\x07\0abcd"}


async def test_a_bug_in_what_answers_through_a_callback_ends_its_connection_and_not_the_broker() -> None:
    broker = MemoryBroker()
    server: Any = broker.server
    there, back = Pipe(1 << 30), Pipe(1 << 30)
    conn = Connection(MemoryTransport("client:1", there, back), LISTENER, server._mark_dirty, lambda *_: None)

    def fails(request: object, version: int, answer: object) -> None:
        raise LookupError("nothing there")

    server.answer_later(fails)(PendingResponse(conn, 7, 9, True), None)
    assert conn.closed


async def test_who_answers_through_a_callback_may_do_so_at_any_time_and_it_leaves_at_once() -> None:
    broker = MemoryBroker()
    server: Any = broker.server
    there, back = Pipe(1 << 30), Pipe(1 << 30)
    conn = Connection(MemoryTransport("client:1", there, back), LISTENER, server._mark_dirty, lambda *_: None)
    slot = PendingResponse(conn, 7, 9, True)
    conn.slots.append(slot)
    waiting: list[Any] = []
    server.answer_later(lambda request, version, answer: waiting.append((request, version, answer)))(slot, "asked")
    [(request, version, answer)] = waiting
    assert (request, version, bytes(back.data)) == ("asked", 9, b"")
    answer([b"abcd"])
    assert bytes(back.data).endswith(b"abcd")


ANSWER = bytes(1000)


async def plain_burst(
    broker: MemoryBroker, count: int, answer: Callable[[PendingResponse], bytes | DeferredResponse]
) -> tuple[Pipe, Any]:
    """A burst of Metadata requests, numbered from 0, that `answer` answers. What comes back, and who serves it."""
    server: Any = broker.server
    there, back, serve_it = broker.accept()
    server.route({ApiKey.METADATA: Route(ApiKey.METADATA, plain=lambda request, slot: answer(slot))}, {})
    for number in range(count):
        there.data += encode_request(ApiKey.METADATA, 9, number, None, MetadataRequest(topics=[]).encode(9))
    return back, serve_it


async def test_in_a_long_burst_others_have_a_turn_every_few_ms_and_get_to_see_what_is_answered() -> None:
    broker = MemoryBroker()
    served: list[int] = []

    def answer(slot: PendingResponse) -> bytes:
        broker.env.now_ms += 1
        served.append(slot.correlation_id)
        return ANSWER

    back, serve_it = await plain_burst(broker, 100, answer)
    seen: list[int] = []

    async def look() -> None:
        while len(served) < 100:
            seen.append(len(served))
            assert len(back.data) >= len(ANSWER) * len(served)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_it)
        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert served == list(range(100))
    assert max(after - before for before, after in pairwise([*seen, 100])) <= 12


async def test_a_burst_stops_while_more_is_parked_than_a_connection_may_have() -> None:
    broker = MemoryBroker(squall_connection_parked_max_requests="10")
    asked: list[int] = []
    known = trio.Event()

    async def wait() -> bytes:
        await known.wait()
        return ANSWER

    def answer(slot: PendingResponse) -> DeferredResponse:
        asked.append(slot.correlation_id)
        return DeferredResponse(wait)

    _, serve_it = await plain_burst(broker, 100, answer)
    async with trio.open_nursery() as nursery:
        broker.server._nursery = nursery
        nursery.start_soon(serve_it)
        await trio.testing.wait_all_tasks_blocked()
        assert asked == list(range(11))
        known.set()
        await trio.testing.wait_all_tasks_blocked()
        assert asked == list(range(100))
        nursery.cancel_scope.cancel()


async def test_a_burst_stops_while_more_is_unsent_than_a_connection_may_have() -> None:
    broker = MemoryBroker(squall_connection_parked_max_bytes="5000")
    served: list[int] = []

    def answer(slot: PendingResponse) -> bytes:
        served.append(slot.correlation_id)
        return ANSWER

    back, serve_it = await plain_burst(broker, 100, answer)
    back.capacity = 2000
    async with trio.open_nursery() as nursery:
        broker.server._nursery = nursery
        nursery.start_soon(serve_it)
        await trio.testing.wait_all_tasks_blocked()
        assert len(served) <= 8, "2,000 bytes are in the socket, and 5,000 may wait, and one more answer"
        back.capacity = 1 << 30
        back.change()
        await trio.testing.wait_all_tasks_blocked()
        assert served == list(range(100))
        nursery.cancel_scope.cancel()


async def test_answers_behind_one_that_is_not_known_count_as_unsent() -> None:
    broker = MemoryBroker(squall_connection_parked_max_bytes="5000")
    served: list[int] = []
    known = trio.Event()

    async def wait() -> bytes:
        await known.wait()
        return b""

    def answer(slot: PendingResponse) -> bytes | DeferredResponse:
        served.append(slot.correlation_id)
        return ANSWER if slot.correlation_id else DeferredResponse(wait)

    _, serve_it = await plain_burst(broker, 100, answer)
    async with trio.open_nursery() as nursery:
        broker.server._nursery = nursery
        nursery.start_soon(serve_it)
        await trio.testing.wait_all_tasks_blocked()
        assert served == list(range(6))
        known.set()
        await trio.testing.wait_all_tasks_blocked()
        assert served == list(range(100))
        nursery.cancel_scope.cancel()
