"""Sends requests to one broker over a new connection, in a simulated world: to measure a round trip, to see how a
connection ends, or to learn which brokers this broker knows.

For real clusters `squall.chaos.runtimes.real.inquiry` has the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import trio

from squall.broker.env import Env, Transport
from squall.broker.protocol.apis import response_class
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.chaos.runtimes.contract import ProbeResult
from squall.chaos.runtimes.real.inquiry import API_VERSIONS, IMPOSSIBLE, probe_frames, traffic_frame
from squall.chaos.runtimes.wire.frames import BrokerTrafficKind

CLIENT_ID = "squall-probe"
METADATA_VERSION = 12
Asked = tuple[bytes, int, int]
"""Is a request, as (frame, API key, version)."""
_SIZE = Struct(">i")


async def ask(env: Env, host: str, port: int, request: Any, version: int) -> Any:
    """Return the response to one request, without a time limit. Raises OSError if the connection ends first."""
    link = await env.connect(host, port)
    try:
        frame = encode_request(request.API_KEY, version, 1, CLIENT_ID, request.encode(version))
        return await _answer(link, frame, request.API_KEY, version, 1)
    finally:
        link.close()


async def _answer(link: Transport, frame: bytes, key: int, version: int, asked: int) -> Any:
    await _send(link, frame)
    (size,) = _SIZE.unpack(await _exactly(link, _SIZE.size))
    view = memoryview(await _exactly(link, size))
    correlation_id, at = decode_response_header(view, key, version)
    if correlation_id != asked:
        raise MalformedFrame(f"an answer to request {correlation_id}, not to {asked}")
    response, _ = response_class(key).decode(view, at, version)
    return response


async def _send(link: Transport, frame: bytes) -> None:
    left = memoryview(frame)
    while left:
        left = left[link.send((left,)) :]
        if left:
            await link.wait_writable()


async def probe_traffic(env: Env, host: str, port: int, traffic: BrokerTrafficKind, *, timeout_s: float) -> ProbeResult:
    """Open a connection and measure one round trip with a request between brokers: OffsetForLeaderEpoch if `traffic` is
    REPLICATION, FetchSnapshot if it is CONTROLLER. Faults on that kind of traffic act on this request.
    """
    return await _probe(env, host, port, [traffic_frame(traffic)], timeout_s)


async def probe(env: Env, host: str, port: int, *, timeout_s: float, pad_bytes: int = 0) -> ProbeResult:
    """Open a connection and measure one ApiVersions round trip. `pad_bytes`: how many bytes to add to the request. Many
    bytes are spread over several requests on the connection.
    """
    return await _probe(env, host, port, [(frame, API_VERSIONS, 0) for frame in probe_frames(pad_bytes)], timeout_s)


async def _probe(env: Env, host: str, port: int, asked: Sequence[Asked], timeout_s: float) -> ProbeResult:
    began = trio.current_time()
    error: str | None = "timed out"
    with trio.move_on_after(timeout_s):
        try:
            link = await env.connect(host, port)
            began = trio.current_time()  # a round trip is a request and its answer, without the connection's own
            await _all_answered(link, asked)
            error = None
        except ConnectionRefusedError:
            error = "refused"
        except OSError as problem:
            error = f"ended: {problem}"
        except MalformedFrame as problem:
            error = f"malformed: {problem}"
    return ProbeResult(error is None, (trio.current_time() - began) * 1000, error)


async def _all_answered(link: Transport, asked: Sequence[Asked]) -> None:
    try:
        for number, (frame, key, version) in enumerate(asked, 1):
            await _answer(link, frame, key, version, number)
    finally:
        link.close()


async def ending(
    env: Env, host: str, port: int, *, timeout_s: float, spoil: bool, opened: Callable[[], None]
) -> ProbeResult:
    """Open a connection, send a request, and measure how and when the connection ends. `ok` of the result is True if
    the connection ends within `timeout_s`; then `error` is "closed" or "ended: ...". Otherwise `error` is "still open",
    "refused" or "never open".

    `spoil`: after the first response, send a frame of an impossible size, for which the broker closes the connection,
    and measure from there. If that response never comes, `ok` is False and `error` begins with "no answer before the
    end". `opened`: called when the first response comes.
    """
    asked = began = trio.current_time()
    how, link = "never open", None
    with trio.move_on_after(timeout_s):
        try:
            link = await env.connect(host, port)
            how = "still open"
            await _answer(link, probe_frames(0)[0], API_VERSIONS, 0, 1)
            opened()
            if spoil:
                began = trio.current_time()
                await _send(link, IMPOSSIBLE)
            await _until_end(link)
            how = "closed"
        except ConnectionRefusedError:
            how = "refused"
        except OSError as problem:
            how = f"ended: {problem}" if how == "still open" else "never open"
    if link is not None:
        link.close()
    # The first answer never came, so no frame was sent that the broker could refuse.
    if spoil and began == asked:
        return ProbeResult(False, (trio.current_time() - asked) * 1000, f"no answer before the end: {how}")
    return ProbeResult(how == "closed" or how.startswith("ended"), (trio.current_time() - began) * 1000, how)


async def _until_end(link: Transport) -> None:
    view = memoryview(bytearray(65_536))
    while (got := link.recv_into(view)) != 0:
        if got is None:
            await link.wait_readable()


async def visible_brokers(env: Env, host: str, port: int) -> frozenset[int]:
    """Return the ids of the brokers that one broker's Metadata lists. Raises OSError if the connection ends first."""
    response = await ask(env, host, port, MetadataRequest(topics=[]), METADATA_VERSION)
    return frozenset(broker.node_id for broker in response.brokers)


async def _exactly(link: Transport, count: int) -> bytes:
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
