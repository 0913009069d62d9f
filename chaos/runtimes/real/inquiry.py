"""Sends one request to one broker over a connection of its own. It is used for probes, and to wait until a cluster is
up.

It is much simpler than the workloads' client: without retries, caches and redirects, it measures only the link and the
broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any
from zlib import crc32

import trio

from squall.broker.protocol.apis import response_class
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import ProbeResult
from squall.chaos.runtimes.wire.frames import BrokerTrafficKind

CLIENT_ID = "squall-probe"
METADATA_VERSION = 12
MAX_ANSWER_BYTES = 16 * 1024 * 1024
API_VERSIONS = 18
SPEAKS_S = 5.0
PAD_BYTES = 30_000
"""Limits the bytes that one probe request is lengthened by. A probe with more padding sends several requests."""
IMPOSSIBLE = b"\xff\xff\xff\xff"
"""Is the size field of a frame of -1 bytes, for which a broker closes the connection."""
_SIZE = Struct(">i")


async def ask(host: str, port: int, request: Any, version: int) -> Any:
    """Return the response to one request. Raises OSError if the connection ends first, MalformedFrame if the response
    is invalid.

    Waits without limit: the caller sets the timeout.
    """
    key = request.API_KEY
    frame = encode_request(key, version, 1, CLIENT_ID, request.encode(version))
    async with _connected(host, port) as stream:
        await stream.send_all(frame)
        return _decoded(await _frame(stream), key, version, 1)


@asynccontextmanager
async def _connected(host: str, port: int) -> AsyncIterator[trio.SocketStream]:
    """Open a connection. Every failure of the connection is raised as an OSError."""
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as problem:
        # Trio raises an error of its own, and hangs a group of each address's error below it.
        said = problem.__cause__
        raise said.exceptions[0] if isinstance(said, ExceptionGroup) else problem from None
    async with stream:
        try:
            yield stream
        except trio.BrokenResourceError as problem:
            raise ConnectionResetError(_cause(problem)) from problem


async def _frame(stream: trio.SocketStream) -> memoryview:
    (size,) = _SIZE.unpack(await _exactly(stream, _SIZE.size))
    # A response has at least its correlation id. A proxy's fault may tear frames, and a wrong size must fill no memory.
    if not 4 <= size <= MAX_ANSWER_BYTES:
        raise MalformedFrame(f"an answer of {size} bytes")
    return memoryview(await _exactly(stream, size))


def _decoded(view: memoryview, key: int, version: int, asked: int) -> Any:
    correlation_id, at = decode_response_header(view, key, version)
    if correlation_id != asked:
        raise MalformedFrame(f"an answer to request {correlation_id}, not to {asked}")
    response, _ = response_class(key).decode(view, at, version)
    return response


def probe_frames(pad_bytes: int) -> list[bytes]:
    """Return ApiVersions requests whose client ids are padded with `pad_bytes` bytes in total. Each request gets at
    most PAD_BYTES of these; at least one request is returned.
    """
    from squall.broker.protocol.schema.api_versions import ApiVersionsRequest

    key, version = ApiVersionsRequest.API_KEY, ApiVersionsRequest.MIN_VERSION
    whole, rest = divmod(pad_bytes, PAD_BYTES)
    pads = [*[PAD_BYTES] * whole, *([rest] if rest or not whole else [])]
    return [
        encode_request(key, version, number, CLIENT_ID + "-" * pad, ApiVersionsRequest().encode(version))
        for number, pad in enumerate(pads, 1)
    ]


def traffic_frame(traffic: BrokerTrafficKind) -> tuple[bytes, int, int]:
    """Return a request of one kind of broker traffic, as (frame, API key, version): OffsetForLeaderEpoch for
    REPLICATION, FetchSnapshot for CONTROLLER. The request changes nothing in the broker.
    """
    from squall.broker.protocol.schema.fetch_snapshot import FetchSnapshotRequest
    from squall.broker.protocol.schema.offset_for_leader_epoch import OffsetForLeaderEpochRequest

    # A broker refuses the second one at once: it names another cluster, and nothing of it is forwarded.
    asked: Any = (
        OffsetForLeaderEpochRequest() if traffic is BrokerTrafficKind.REPLICATION else FetchSnapshotRequest(CLIENT_ID)
    )
    version = asked.MAX_VERSION
    return encode_request(asked.API_KEY, version, 1, CLIENT_ID, asked.encode(version)), asked.API_KEY, version


async def probe_traffic(host: str, port: int, traffic: BrokerTrafficKind, *, timeout_s: float) -> ProbeResult:
    """Open a connection to a broker, and time its answer to one request of this kind of broker traffic (see
    `traffic_frame`), so that faults on that traffic act on it. Raises nothing except cancellation.
    """
    return await _probe(host, port, [traffic_frame(traffic)], timeout_s)


async def probe(host: str, port: int, *, timeout_s: float, pad_bytes: int = 0) -> ProbeResult:
    """Open a connection to a broker, and time its answer to ApiVersions. pad_bytes: how many bytes to add to the
    request; many bytes are spread over several requests, and their total time is measured. Raises nothing except
    cancellation.
    """
    return await _probe(host, port, [(frame, API_VERSIONS, 0) for frame in probe_frames(pad_bytes)], timeout_s)


async def _probe(host: str, port: int, asked: Sequence[tuple[bytes, int, int]], timeout_s: float) -> ProbeResult:
    began = trio.current_time()
    error: str | None = "timed out"
    with trio.move_on_after(timeout_s):
        try:
            async with _connected(host, port) as stream:
                began = trio.current_time()
                for number, (frame, key, version) in enumerate(asked, 1):
                    await stream.send_all(frame)
                    _decoded(await _frame(stream), key, version, number)
            error = None
        except ConnectionRefusedError:
            error = "refused"
        except OSError as problem:
            error = f"ended: {problem.strerror or problem}"
        except MalformedFrame as problem:
            error = f"malformed: {problem}"
    return ProbeResult(error is None, (trio.current_time() - began) * 1000, error)


async def ending(host: str, port: int, *, timeout_s: float, spoil: bool, opened: Callable[[], None]) -> ProbeResult:
    """Open a connection, send a request, and measure how and when the connection ends. The result's `ok` is True if it
    ends within `timeout_s`; `error` says how, such as "closed" or "still open".

    opened: called when the response comes. spoil: after the response, send a frame of an impossible size, for which a
    broker closes the connection, and measure the time from there.
    """
    asked = began = trio.current_time()
    how = "never open"
    with trio.move_on_after(timeout_s):
        try:
            async with _connected(host, port) as stream:
                how = "still open"
                await stream.send_all(probe_frames(0)[0])
                await _frame(stream)
                opened()
                if spoil:
                    began = trio.current_time()
                    await stream.send_all(IMPOSSIBLE)
                while await stream.receive_some():
                    pass
                how = "closed"
        except ConnectionRefusedError:
            how = "refused"
        except OSError as problem:
            how = f"ended: {problem.strerror or problem}" if how == "still open" else "never open"
    # The first answer never came, so no frame was sent that the broker could refuse.
    if spoil and began == asked:
        return ProbeResult(False, (trio.current_time() - asked) * 1000, f"no answer before the end: {how}")
    return ProbeResult(how == "closed" or how.startswith("ended"), (trio.current_time() - began) * 1000, how)


async def speaks(host: str, port: int) -> dict[str, Any]:
    """Return what a broker reports about itself in ApiVersions: the number of its APIs, a digest of their versions, and
    the newest levels of its features. Brokers with different versions of any API have different digests. Raise
    HarnessError if the broker does not answer within 5 s.
    """
    from squall.broker.protocol.schema.api_versions import ApiVersionsRequest

    try:
        with trio.fail_after(SPEAKS_S):
            answer = await ask(host, port, ApiVersionsRequest("squall", "1"), 3)
    except (OSError, MalformedFrame, trio.TooSlowError) as trouble:
        raise HarnessError(f"{host}:{port} does not answer ApiVersions: {str(trouble) or 'it is silent'}") from None
    apis = sorted((api.api_key, api.min_version, api.max_version) for api in answer.api_keys)
    levels = {each.name: each.max_version for each in answer.supported_features}
    return {"apis": len(apis), "versions": f"{crc32(repr(apis).encode()):08x}", "features": levels}


async def visible_brokers(host: str, port: int) -> frozenset[int]:
    """Return the ids of the brokers that one broker's Metadata lists. Raises OSError if the connection ends first,
    MalformedFrame if the response is invalid.
    """
    from squall.broker.protocol.schema.metadata import MetadataRequest

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
