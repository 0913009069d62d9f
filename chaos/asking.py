"""One question to one broker over a connection of its own: for probes and for waiting until a cluster is up.

Not the workloads' client: nothing is retried, kept or followed, so that what is measured is the way and the broker.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import trio

from broker.protocol.apis import response_class
from broker.protocol.errors import MalformedFrame
from broker.protocol.header import decode_response_header, encode_request
from chaos.runtimes.contract import Probe

CLIENT_ID = "squall-probe"
METADATA_VERSION = 12
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_SIZE = Struct(">i")


async def ask(host: str, port: int, request: Any, version: int) -> Any:
    """The response to one request. OSError where the connection ends first, MalformedFrame where the answer is wrong.

    Waits for as long as it takes: the caller sets the limit.
    """
    key = request.API_KEY
    try:
        view = await _exchange(host, port, encode_request(key, version, 1, CLIENT_ID, request.encode(version)))
    except trio.BrokenResourceError as problem:
        raise ConnectionResetError(_cause(problem)) from problem
    correlation_id, at = decode_response_header(view, key, version)
    if correlation_id != 1:
        raise MalformedFrame(f"an answer to request {correlation_id}, not to 1")
    response, _ = response_class(key).decode(view, at, version)
    return response


async def _exchange(host: str, port: int, frame: bytes) -> memoryview:
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as problem:
        # Trio tells what each address said as a group below an error of its own.
        said = problem.__cause__
        raise said.exceptions[0] if isinstance(said, ExceptionGroup) else problem from None
    async with stream:
        await stream.send_all(frame)
        (size,) = _SIZE.unpack(await _exactly(stream, _SIZE.size))
        if not 4 <= size <= MAX_ANSWER_BYTES:
            raise MalformedFrame(f"an answer of {size} bytes")
        return memoryview(await _exactly(stream, size))


async def probe(host: str, port: int, *, timeout_s: float) -> Probe:
    """Whether a broker answers ApiVersions there, and after how long. Never raises but for cancellation."""
    from broker.protocol.schema.api_versions import ApiVersionsRequest

    began = trio.current_time()
    error: str | None = "timed out"
    with trio.move_on_after(timeout_s):
        try:
            await ask(host, port, ApiVersionsRequest(), ApiVersionsRequest.MIN_VERSION)
            error = None
        except ConnectionRefusedError:
            error = "refused"
        except OSError as problem:
            error = f"ended: {problem.strerror or problem}"
        except MalformedFrame as problem:
            error = f"malformed: {problem}"
    return Probe(error is None, (trio.current_time() - began) * 1000, error)


async def visible_brokers(host: str, port: int) -> frozenset[int]:
    """Ids of the brokers that one broker's Metadata names. Raises what `ask` raises."""
    from broker.protocol.schema.metadata import MetadataRequest

    response = await ask(host, port, MetadataRequest(topics=[]), METADATA_VERSION)
    return frozenset(broker.node_id for broker in response.brokers)


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = await stream.receive_some(count - len(data))
        if not more:
            raise ConnectionResetError("the connection was closed")
        data += more
    return bytes(data)


def _cause(problem: BaseException) -> str:
    cause = problem.__cause__ or problem
    return getattr(cause, "strerror", None) or str(cause)
