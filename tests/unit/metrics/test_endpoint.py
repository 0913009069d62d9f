"""The endpoint of a broker's metrics: what it answers, and which requests end their connection and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.metrics import endpoint, http
from squall.broker.metrics.endpoint import MetricsEndpoint
from tests.support.brokers.memory_env import FakeEnv, MemoryNetwork, MemoryTransport

PORT = 9404
GET = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
TEXT = b"# EOF\n"


class Scraper:
    """An endpoint in memory, and those who ask it."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.env: Any = FakeEnv(self.network, name="broker-1")
        self.text = TEXT

    async def write(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.text

    def connect(self) -> MemoryTransport:
        return self.network.connect("h", PORT)

    async def ask(self, request: bytes) -> bytes:
        """All that the endpoint sends until it ends the connection."""
        link = self.connect()
        link.send((request,))
        return await self.rest(link)

    async def rest(self, link: MemoryTransport) -> bytes:
        with trio.fail_after(60):
            found = bytearray()
            while not link.incoming.ended or link.incoming.data:
                found += link.incoming.data
                link.incoming.data.clear()
                link.incoming.change()
                if not link.incoming.ended:
                    await link.incoming.changed.wait()
            return bytes(found)


@asynccontextmanager
async def scraper() -> AsyncIterator[Scraper]:
    made = Scraper()
    async with trio.open_nursery() as nursery:
        await MetricsEndpoint(made.env, made.write, nursery.start_soon).listen("127.0.0.1", PORT)
        yield made
        assert (await made.ask(GET)).endswith(made.text), "whatever came before, it serves"
        nursery.cancel_scope.cancel()


async def test_a_scrape_gets_the_text_and_the_connection_ends() -> None:
    async with scraper() as made:
        head, _, body = (await made.ask(GET)).partition(http.END)
        lines = head.decode().split("\r\n")
        assert lines[0] == "HTTP/1.1 200 OK"
        assert "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8" in lines
        assert f"Content-Length: {len(body)}" in lines
        assert "Connection: close" in lines
        assert body == TEXT


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics?name=x HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\nHost: h\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\nHost: h\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\nHost: h\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * endpoint.MOST_BYTES, 431),
    ],
)
async def test_each_request_has_a_status(request_: bytes, status: int) -> None:
    async with scraper() as made:
        answer = await made.ask(request_)
        assert int(answer.split()[1]) == status
        assert (TEXT in answer) == (status == 200)


async def test_a_head_has_the_length_and_no_body() -> None:
    async with scraper() as made:
        answer = await made.ask(b"HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert answer.endswith(b"Connection: close\r\n\r\n")
        assert b"Content-Length: 6" in answer


async def test_a_request_may_come_byte_by_byte(autojump_clock: trio.testing.MockClock) -> None:
    async with scraper() as made:
        link = made.connect()
        for at in range(len(GET)):
            link.send((GET[at : at + 1],))
            await trio.sleep(endpoint.REQUEST_S / len(GET) / 2)
        assert (await made.rest(link)).endswith(TEXT)


async def test_a_request_that_does_not_end_is_ended(autojump_clock: trio.testing.MockClock) -> None:
    async with scraper() as made:
        link = made.connect()
        link.send((GET[:-1],))
        assert (await made.rest(link)).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() == pytest.approx(endpoint.REQUEST_S)


async def test_who_does_not_read_is_left(autojump_clock: trio.testing.MockClock) -> None:
    async with scraper() as made:
        link = made.connect()
        link.incoming.capacity = 10
        link.send((GET,))
        await trio.sleep(endpoint.RESPONSE_S + 1)
        assert link.incoming.ended
        assert len(link.incoming.data) == 10


async def test_who_leaves_before_the_answer_harms_nobody() -> None:
    async with scraper() as made:
        for request in (b"", GET[:5], GET):
            link = made.connect()
            if request:
                link.send((request,))
            link.close()
        await trio.testing.wait_all_tasks_blocked()


async def test_more_connections_than_there_may_be_are_closed_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with scraper() as made:
        links = [made.connect() for _ in range(endpoint.MOST_CONNECTIONS + 2)]
        await trio.testing.wait_all_tasks_blocked()
        assert [link.incoming.ended for link in links] == [False] * endpoint.MOST_CONNECTIONS + [True] * 2
        await trio.sleep(endpoint.REQUEST_S + 1)


async def test_the_trace_says_which_port_it_is() -> None:
    async with scraper() as made:
        assert made.env.events("metrics_ready") == [{"port": PORT}]
