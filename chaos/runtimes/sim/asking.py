"""One question to one broker over a connection of its own, in a simulated world. As `chaos.asking`, over an Env."""

from __future__ import annotations

from struct import Struct
from typing import Any

import trio

from broker.env import Env, Link
from broker.protocol.apis import response_class
from broker.protocol.errors import MalformedFrame
from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.schema.api_versions import ApiVersionsRequest
from broker.protocol.schema.metadata import MetadataRequest
from chaos.runtimes.contract import Probe

CLIENT_ID = "squall-probe"
METADATA_VERSION = 12
_SIZE = Struct(">i")


async def ask(env: Env, host: str, port: int, request: Any, version: int) -> Any:
    """The response to one request. OSError where the connection ends first. Waits for as long as it takes."""
    link = await env.connect(host, port)
    try:
        frame = memoryview(encode_request(request.API_KEY, version, 1, CLIENT_ID, request.encode(version)))
        while frame:
            frame = frame[link.send((frame,)) :]
            if frame:
                await link.wait_writable()
        (size,) = _SIZE.unpack(await _exactly(link, _SIZE.size))
        view = memoryview(await _exactly(link, size))
    finally:
        link.close()
    correlation_id, at = decode_response_header(view, request.API_KEY, version)
    if correlation_id != 1:
        raise MalformedFrame(f"an answer to request {correlation_id}, not to 1")
    response, _ = response_class(request.API_KEY).decode(view, at, version)
    return response


async def probe(env: Env, host: str, port: int, *, timeout_s: float) -> Probe:
    """Whether a broker answers ApiVersions there, and after how long. Never raises but for cancellation."""
    began = trio.current_time()
    error: str | None = "timed out"
    with trio.move_on_after(timeout_s):
        try:
            await ask(env, host, port, ApiVersionsRequest(), ApiVersionsRequest.MIN_VERSION)
            error = None
        except ConnectionRefusedError:
            error = "refused"
        except OSError as problem:
            error = f"ended: {problem}"
        except MalformedFrame as problem:
            error = f"malformed: {problem}"
    return Probe(error is None, (trio.current_time() - began) * 1000, error)


async def visible_brokers(env: Env, host: str, port: int) -> frozenset[int]:
    """Ids of the brokers that one broker's Metadata names. Raises what `ask` raises."""
    response = await ask(env, host, port, MetadataRequest(topics=[]), METADATA_VERSION)
    return frozenset(broker.node_id for broker in response.brokers)


async def _exactly(link: Link, count: int) -> bytes:
    data = bytearray(count)
    view, at = memoryview(data), 0
    while at < count:
        got = link.recv_into(view[at:])
        if got is None:
            await link.wait_readable()
        elif got == 0:
            raise ConnectionResetError("the connection was closed")
        else:
            at += got
    return bytes(data)
