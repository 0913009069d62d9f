"""Serves a node's metrics over HTTP: one request for each connection, few connections, and short time-outs.

A malformed, slow or oversized request ends its connection and nothing else. Scrapes never make clients wait for long:
the text is written in pieces (`NodeMetrics.write`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.env import LinkClosed
from squall.broker.metrics import http
from squall.broker.metrics.text import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from squall.broker.env import Env, Listener, Transport

MOST_CONNECTIONS = 8
"""Limits the connections at a time. Further connections are closed at once."""
MOST_BYTES = 8192
"""Limits the bytes of a request's head. A scraper sends a few hundred."""
REQUEST_S, RESPONSE_S = 5.0, 10.0
"""Limit, in seconds, how long a request may take to arrive, and its response to leave."""
BACK_OFF_S = 0.05


class MetricsEndpoint:
    """Answers HTTP requests with the text that the function `write` returns. `start_soon` starts a task."""

    def __init__(self, env: Env, write: Callable[[], Awaitable[bytes]], start_soon: Callable[..., None]) -> None:
        self._env, self._write, self._start_soon = env, write, start_soon
        self._connections = 0

    async def listen(self, host: str, port: int) -> None:
        """Open the port, and start a task that serves it. Raises OSError if the port is taken. The trace event
        `metrics_ready` has the port.
        """
        listener = await self._env.listen(host, port)
        self._env.trace("metrics_ready", port=listener.port)
        self._start_soon(self._accept, listener)

    async def _accept(self, listener: Listener) -> None:
        while True:
            try:
                link = await listener.accept()
            except LinkClosed:
                return
            except OSError as error:
                self._env.trace("accept_failed", listener="metrics", error=str(error))
                await self._env.sleep(BACK_OFF_S)
                continue
            if self._connections >= MOST_CONNECTIONS:
                link.close()
                continue
            self._connections += 1
            self._start_soon(self._serve, link)

    async def _serve(self, link: Transport) -> None:
        try:
            status, has_body = http.TIMED_OUT, True  # stays if the time-out ends the read
            with self._env.timeout(REQUEST_S):
                status, has_body = await _read(link)
            with self._env.timeout(RESPONSE_S):
                if status == http.OK:
                    answer = http.response(status, await self._write(), CONTENT_TYPE, has_body=has_body)
                else:
                    answer = http.refusal(status, has_body=has_body)
                await _send(link, answer)
        except LinkClosed:
            pass
        finally:
            self._connections -= 1
            link.close()


async def _read(link: Transport) -> tuple[int, bool]:
    """Read the head of a request. Return the HTTP status, and whether the response has a body (not for HEAD). Raises
    LinkClosed if the peer closes before the head is complete.
    """
    buffer, size = bytearray(MOST_BYTES), 0
    while size < MOST_BYTES:
        received = link.recv_into(memoryview(buffer)[size:])
        if received is None:
            await link.wait_readable()
            continue
        if received == 0:
            raise LinkClosed("left before its request was whole")
        size += received
        end = buffer.find(http.END, 0, size)
        if end >= 0:
            return http.status_of(bytes(buffer[:end]))
    return http.TOO_LARGE, True


async def _send(link: Transport, data: bytes) -> None:
    left = memoryview(data)
    while left:
        sent = link.send((left,))
        left = left[sent:]
        if left:
            await link.wait_writable()
