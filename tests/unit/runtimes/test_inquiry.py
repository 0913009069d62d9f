"""Asking one broker once: what is no answer, and why."""

from __future__ import annotations

import socket

import pytest
import trio

from squall.broker.protocol.errors import MalformedFrame
from squall.chaos.runtimes.real.inquiry import ask, probe, visible_brokers

APIS = bytes.fromhex("0000000a 00000001 0000 00000000")
"""An ApiVersions answer of version 0: correlation id 1, no error, no APIs."""


async def answering(nursery: trio.Nursery, answer: bytes) -> int:
    """The port of a server that reads something, sends `answer` to each connection and ends it."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    return int(listener.socket.getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (APIS, None),
        (b"", "ended: the connection was closed"),
        (APIS[:-1], "ended: the connection was closed"),
        (b"HTTP/1.1 400 Bad Request\r\n", "malformed: an answer of 1213486160 bytes"),
        (bytes.fromhex("00000002 0000"), "malformed: an answer of 2 bytes"),
        (bytes.fromhex("0000000a 00000007 0000 00000000"), "malformed: an answer to request 7, not to 1"),
    ],
)
async def test_a_probe_tells_an_answer_from_everything_else(
    nursery: trio.Nursery, answer: bytes, error: str | None
) -> None:
    found = await probe("127.0.0.1", await answering(nursery, answer), timeout_s=5)
    assert (found.ok, found.error) == (error is None, error)
    assert found.evidence() == {"ok": error is None, "round_trip_ms": found.evidence()["round_trip_ms"], "error": error}


async def test_a_port_where_nobody_listens_refuses() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = await probe("127.0.0.1", bound.getsockname()[1], timeout_s=5)
    assert found.error == "refused"


async def test_a_listener_that_never_accepts_times_out_after_the_time_given(autojump_clock: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = await probe("127.0.0.1", server.getsockname()[1], timeout_s=7)
    assert found.error == "timed out"
    assert found.round_trip_ms == pytest.approx(7000)


async def test_an_answer_that_lies_about_its_length_is_malformed(nursery: trio.Nursery) -> None:
    port = await answering(nursery, bytes.fromhex("0000000a 00000001 0000 7fffffff"))
    with pytest.raises(MalformedFrame):
        from squall.broker.protocol.schema.api_versions import ApiVersionsRequest

        await ask("127.0.0.1", port, ApiVersionsRequest(), 0)


async def test_brokers_are_those_that_metadata_names(nursery: trio.Nursery) -> None:
    from squall.broker.protocol.schema.metadata import MetadataResponse, MetadataResponseBroker

    brokers = [MetadataResponseBroker(node_id=node, host="h", port=1) for node in (3, 1)]
    body = bytes.fromhex("00000001 00") + MetadataResponse(brokers=brokers).encode(12)
    port = await answering(nursery, len(body).to_bytes(4, "big") + body)
    assert await visible_brokers("127.0.0.1", port) == {1, 3}
