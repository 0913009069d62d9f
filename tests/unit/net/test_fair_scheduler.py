"""Clients together have a budget of the event loop; brokers, on a listener of their own, have their turn within it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.net.connection import PendingResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import BUDGET_S, give_way
from squall.broker.net.server import Route
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.schema.metadata import MetadataRequest
from tests.support.brokers.in_memory import MemoryBroker
from tests.support.brokers.memory_env import Pipe

INNER, OUTER = "INTERNAL", "CLIENT"
TWO = f"{INNER}://127.0.0.1:1,{OUTER}://127.0.0.1:2"
SLICE_MS = 6
"""One request takes a whole slice."""


class Loop:
    """Connections whose requests take `cost_ms` each, and a task that observes each pass of the event loop."""

    def __init__(self, nursery: trio.Nursery, cost_ms: int, listeners: str = TWO) -> None:
        self.broker = MemoryBroker(listeners=listeners)
        self.server: Any = self.broker.server
        self.server._nursery, self.nursery, self.cost_ms = nursery, nursery, cost_ms
        self.server.route({ApiKey.METADATA: Route(ApiKey.METADATA, plain=self._answer)}, {})
        self.served: list[str] = []
        """The connection of each served request, in order."""
        self.waits = False
        self.pieces = 0
        """In how many pieces, of `cost_ms` each, a task builds each answer; 0: the answer is known at once."""
        self.links: dict[str, Pipe] = {}

    def _answer(self, request: object, slot: PendingResponse) -> object:
        if self.pieces:
            return DeferredResponse(partial(self._in_pieces, slot.conn.link.peer), holds=True)
        self.broker.env.now_ms += self.cost_ms
        self.served.append(slot.conn.link.peer)
        return DeferredResponse(self._later, holds=True) if self.waits else b"answer"

    async def _in_pieces(self, who: str) -> bytes:
        for _ in range(self.pieces):
            await give_way()
            self.broker.env.now_ms += self.cost_ms
        self.served.append(who)
        return b"answer"

    async def _later(self) -> bytes:
        return b"answer"

    def come(self, who: str, requests: int = 1, listener: str = OUTER) -> None:
        """Open a connection that sends so many requests at once, to be served from the loop's next pass on."""
        there, _, serve_it = self.broker.accept(who, listener)
        for number in range(requests):
            there.data += encode_request(ApiKey.METADATA, 9, number, None, MetadataRequest(topics=[]).encode(9))
        self.links[who] = there
        self.nursery.start_soon(serve_it)

    def send(self, who: str) -> None:
        """One more request of a connection."""
        pipe = self.links[who]
        pipe.data += encode_request(ApiKey.METADATA, 9, 0, None, MetadataRequest(topics=[]).encode(9))
        pipe.change()

    async def passes_ms(self, requests: int) -> list[int]:
        """Return how long each pass of the loop lasted until so many requests were served, in ms."""
        found = []
        while len(self.served) < requests:
            before = self.broker.env.now_ms
            await trio.lowlevel.checkpoint()
            found.append(self.broker.env.now_ms - before)
            assert len(found) < 10_000
        return found

    def close(self, who: str) -> None:
        """The broker ends the connection (it was idle, or a task that answers failed)."""
        next(conn for conn in self.server._connections if conn.link.peer == who).close()


@pytest.mark.parametrize(("requests", "waits"), [(1, False), (5, False), (3, True)])
async def test_a_pass_of_the_loop_is_as_short_with_a_hundred_busy_clients_as_with_a_few(
    requests: int, waits: bool
) -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, SLICE_MS)
        loop.waits = waits
        for n in range(100):
            loop.come(f"c{n}:1", requests)
        passes = await loop.passes_ms(100 * requests)
        assert len(loop.served) == 100 * requests
        assert max(passes) <= 2 * (BUDGET_S * 1000 + SLICE_MS), "twice, where a round ends in the middle of a pass"
        nursery.cancel_scope.cancel()


async def test_a_connection_between_brokers_waits_for_two_passes_at_most_however_many_clients_queue() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, SLICE_MS)
        loop.come("broker:1", 1, INNER)
        for n in range(100):
            loop.come(f"c{n}:1", 5)
        await loop.passes_ms(50)
        for _ in range(10):  # in memory, one pass finds the bytes and the next one serves them
            began_ms, before = loop.broker.env.now_ms, loop.served.count("broker:1")
            loop.send("broker:1")
            while loop.served.count("broker:1") == before:
                await trio.lowlevel.checkpoint()
            assert loop.broker.env.now_ms - began_ms <= 2 * (BUDGET_S * 1000 + SLICE_MS) + SLICE_MS
        assert len(loop.served) < 500
        nursery.cancel_scope.cancel()


async def test_answers_that_tasks_work_on_in_pieces_take_of_the_same_budget() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, SLICE_MS)
        loop.pieces = 3
        for n in range(100):
            loop.come(f"c{n}:1", 2)
        passes = await loop.passes_ms(200)
        assert max(passes) <= 2 * (BUDGET_S * 1000 + SLICE_MS)
        assert sum(passes) >= 600 * SLICE_MS
        await trio.testing.wait_all_tasks_blocked()
        assert not loop.server._turns._queue
        nursery.cancel_scope.cancel()


async def test_who_came_first_is_served_first() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, 30)
        loop.come("busy:1")
        await loop.passes_ms(1)
        for n in range(20):
            loop.come(f"c{n}:1")
            await trio.lowlevel.checkpoint()
        await loop.passes_ms(21)
        assert loop.served == ["busy:1", *(f"c{n}:1" for n in range(20))]
        nursery.cancel_scope.cancel()


async def test_requests_of_one_connection_keep_their_order_and_none_is_lost_where_they_queue() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, 2)
        for n in range(30):
            loop.come(f"c{n}:1", 7)
        await loop.passes_ms(210)
        await trio.testing.wait_all_tasks_blocked()
        assert {who: loop.served.count(who) for who in loop.links} == dict.fromkeys(loop.links, 7)
        assert not loop.server._turns._queue
        nursery.cancel_scope.cancel()


async def test_one_that_closes_while_it_queues_leaves_the_queue_at_once_and_is_not_served() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, 30)
        for n in range(20):
            loop.come(f"c{n}:1", 2)
        await loop.passes_ms(1)
        await trio.lowlevel.checkpoint()
        queue = loop.server._turns._queue
        waiting = [conn.link.peer for conn in queue]
        assert len(waiting) > 10
        gone, before = waiting[5], len(queue)
        loop.close(gone)
        assert len(queue) == before - 1
        await loop.passes_ms(38)
        await trio.testing.wait_all_tasks_blocked()
        assert gone not in loop.served
        assert gone not in loop.server._per_address
        assert len(loop.served) == 38
        nursery.cancel_scope.cancel()


async def test_those_that_are_cancelled_while_they_queue_leave_nothing() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, 30)
        for n in range(20):
            loop.come(f"c{n}:1", 2)
        await loop.passes_ms(1)
        await trio.lowlevel.checkpoint()
        assert loop.server._turns._queue
        nursery.cancel_scope.cancel()
    assert not loop.server._turns._queue
    assert not loop.server._connections


async def test_a_few_busy_clients_never_queue() -> None:
    """The loop comes round between their bursts: that takes no task and no event."""
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, SLICE_MS)
        started: list[Any] = []
        loop.server._turns._start_task = started.append
        for n in range(3):
            loop.come(f"c{n}:1", 50)
        await loop.passes_ms(150)
        assert loop.server._turns.rounds > 30
        assert not started
        nursery.cancel_scope.cancel()


async def test_on_an_only_listener_nobody_queues_because_brokers_cannot_be_told_apart() -> None:
    async with trio.open_nursery() as nursery:
        loop = Loop(nursery, SLICE_MS, listeners=f"{INNER}://127.0.0.1:1")
        for n in range(20):
            loop.come(f"c{n}:1", 1, INNER)
        await trio.lowlevel.checkpoint()
        assert sum(await loop.passes_ms(20)) <= 20 * SLICE_MS
        assert loop.server._turns.rounds == 0
        nursery.cancel_scope.cancel()
