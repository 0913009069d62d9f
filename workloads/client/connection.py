"""Implements one connection to a broker: requests are pipelined, and responses come in the order of the requests.

A response is matched only to the oldest outstanding request: a response with another correlation id ends the
connection, so that a reordered or repeated response can never be taken for that of another request. When a request
times out the connection is closed, because anything sent on it may still take effect. When the connection ends, for
whatever reason, each outstanding request fails exactly once.

Requests are written at once to the link (the socket, or its simulation). Only bytes that it does not take now are
queued, and a task sends them later. Responses are passed on as views of the receive buffer, which are valid only during
the call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from struct import Struct
from typing import TypeVar

import trio

from squall.broker.env import Buffer, Env, LinkClosed, Transport
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode, MalformedFrame, name_of
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from squall.broker.protocol.wire import Message
from squall.workloads.client.outcomes import BAD_ANSWER, CONNECTION_LOST, TIMED_OUT
from squall.workloads.client.settings import ClientSettings

VERSION = "0.1"
"""Is the version of this client, as reported to brokers and in the history."""
FIRST_BUFFER = 64 * 1024
MAX_PIECES = 64
KEPT_BUFFER = 1024 * 1024
"""Limits the bytes of an empty receive buffer: a larger buffer is replaced once it is empty."""

_SIZE = Struct(">i")
_ERROR = Struct(">h")

R = TypeVar("R", bound=Message)
A = TypeVar("A")


class RequestFailed(Exception):
    """Reports that a request was not sent, got no response, or got an error as its response."""

    def __init__(self, why: str, *, sent: bool, detail: str = "") -> None:
        super().__init__(f"{why} {detail}".rstrip())
        self.why = why
        """Names the reason: an error of the client (for example TIMED_OUT or CONNECTION_LOST), or the Kafka error in
        the response.
        """
        self.sent = sent
        """Is True if some bytes of the request may have reached the broker."""


class UnsupportedApi(Exception):
    """Reports that client and broker have no common version of an API."""


Answer = Callable[[memoryview | None, RequestFailed | None], None]
"""Receives the outcome of one request: the body of its response, or its failure. The other argument is None.

A malformed body may raise MalformedFrame, but only before the call has any effect. A second call then passes the
failure BAD_ANSWER.
"""


@dataclass(slots=True, eq=False)
class _OutstandingRequest:
    api_key: int
    version: int
    correlation_id: int
    answer: Answer
    deadline: float
    starts_at: int
    """Gives the position of the request's first byte in all bytes that were ever passed to the connection."""


class BrokerConnection:
    """Sends requests over one connection and matches the responses. Responses arrive only while `run` runs."""

    def __init__(
        self,
        env: Env,
        link: Transport,
        settings: ClientSettings,
        serial: int,
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self.serial = serial
        """Identifies the connection among the connections of one client."""
        self._env = env
        self._link = link
        self._settings = settings
        self._start = start
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._outstanding: deque[_OutstandingRequest] = deque()
        self._next_correlation = 0
        self._unsent: deque[memoryview] = deque()
        self._when_sent: deque[tuple[int, Callable[[bool], None]]] = deque()
        self._accepted = 0
        self._handed = 0
        self._flushing = False
        self._why = ""
        self._ended = False
        self._buffer = bytearray(FIRST_BUFFER)
        self._fill = 0

    @property
    def peer(self) -> str:
        """Return the broker's address, "host:port"."""
        return self._link.peer

    @property
    def closed(self) -> bool:
        """Return whether nothing more can be sent. Outstanding requests may not have failed yet."""
        return bool(self._why) or self._ended

    @property
    def idle(self) -> bool:
        """Return whether no response is outstanding."""
        return not self._outstanding

    @property
    def unsent_bytes(self) -> int:
        """Return the number of bytes that were passed to this connection but not yet to the link."""
        return self._accepted - self._handed

    @property
    def congested(self) -> bool:
        """Return whether too many bytes are unsent: then send nothing now."""
        return self.unsent_bytes > self._settings.max_unsent_bytes

    def version(self, api_key: int, ours_max: int, ours_min: int = 0) -> int:
        """Return the highest version that both sides support. Raises UnsupportedApi."""
        lowest, highest = self._versions.get(api_key, (0, -1))
        if api_key in self._settings.newest_versions:
            ours_max = min(ours_max, self._settings.newest_versions[api_key])
        version = ours_max if ours_max < highest else highest
        if version < lowest or version < ours_min:
            ours, theirs = f"{ours_min} to {ours_max}", f"{lowest} to {highest}"
            raise UnsupportedApi(f"{ApiKey(api_key).name}: {self.peer} speaks {theirs}, this client {ours}")
        return version

    def submit(self, api_key: int, version: int, body: bytes, answer: Answer, timeout_s: float) -> None:
        """Send a request. `answer` is called once, later, and never from within this call.

        Raises RequestFailed (not sent) on a closed connection; `answer` is then not called.
        """
        if self.closed:
            raise RequestFailed(self._why or CONNECTION_LOST, sent=False)
        correlation_id = self._next_correlation
        # An int32 that must not become negative.
        self._next_correlation = (correlation_id + 1) & 0x7FFFFFFF
        deadline = self._env.mono() + timeout_s
        waiting = _OutstandingRequest(api_key, version, correlation_id, answer, deadline, self._accepted)
        self._outstanding.append(waiting)
        self._send(encode_request(api_key, version, correlation_id, self._settings.client_id, body))

    def post(self, api_key: int, version: int, body: bytes, when_sent: Callable[[bool], None]) -> None:
        """Send a request that has no response (Produce with acks=0).

        `when_sent` is called once, later: with True when the link has all bytes, or False if the link ended first.
        """
        if self.closed:
            raise RequestFailed(self._why or CONNECTION_LOST, sent=False)
        correlation_id = self._next_correlation
        self._next_correlation = (correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(api_key, version, correlation_id, self._settings.client_id, body)
        self._when_sent.append((self._accepted + len(frame), when_sent))
        self._send(frame)
        # The flush task calls `when_sent`, never `post` itself, whose caller is still changing its own state.
        self._flush_soon()

    async def request(self, request: Message, response: type[R], version: int, timeout_s: float) -> R:
        """Send a request and return its decoded response. Raises RequestFailed."""
        return await self.exchange(request, version, timeout_s, lambda body: response.decode(body, 0, version)[0])

    async def negotiate(self, timeout_s: float) -> None:
        """Learn which API versions the broker supports (KIP-35, KIP-511). Raises RequestFailed."""
        request = ApiVersionsRequest(client_software_name="squall", client_software_version=VERSION)
        error = ErrorCode.UNSUPPORTED_VERSION.value
        for version in (ApiVersionsRequest.MAX_VERSION, 0):
            error, spoken = await self.exchange(request, version, timeout_s, partial(_versions_of_response, version))
            if error == ErrorCode.NONE:
                self._versions = spoken
                return
            if error != ErrorCode.UNSUPPORTED_VERSION:
                break
            request = ApiVersionsRequest()
        self.close(BAD_ANSWER)
        raise RequestFailed(BAD_ANSWER, sent=True, detail=f"ApiVersions: {name_of(error)}")

    async def exchange(self, request: Message, version: int, timeout_s: float, decode: Callable[[memoryview], A]) -> A:
        """Send a request and return what `decode` makes of the response's body, which is valid only during that call.
        Raises RequestFailed.
        """
        found: list[A | RequestFailed] = []
        done = trio.Event()

        def answer(body: memoryview | None, failure: RequestFailed | None) -> None:
            if body is not None:
                found.append(decode(body))
            elif failure is not None:
                found.append(failure)
            done.set()

        self.submit(request.API_KEY, version, request.encode(version), answer, timeout_s)
        await done.wait()
        (result,) = found
        if isinstance(result, RequestFailed):
            raise result
        return result

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of the outstanding requests, in seconds of env.mono(); None if there are none.
        """
        # Time-outs differ, so the oldest request need not be the first to expire.
        return min((waiting.deadline for waiting in self._outstanding), default=None)

    def expire(self, now: float) -> None:
        """Close the connection if a request's time-out has passed."""
        deadline = self.next_deadline()
        if deadline is not None and deadline <= now:
            self.close(TIMED_OUT)

    def close(self, why: str = CONNECTION_LOST) -> None:
        """End the connection; `run` then fails the outstanding requests. A second call has no effect."""
        self._why = self._why or why
        self._link.close()

    async def run(self) -> None:
        """Receive until the connection ends; then fail all outstanding requests."""
        try:
            while not self._why:
                await self._link.wait_readable()
                self._receive()
        except LinkClosed:
            self.close(CONNECTION_LOST)
        except MalformedFrame:
            self.close(BAD_ANSWER)
        finally:
            self.close()
            self._end()

    def _receive(self) -> None:
        view = memoryview(self._buffer)
        received = self._link.recv_into(view[self._fill :])
        if received is None:
            return
        if received == 0:
            raise LinkClosed(f"{self.peer} closed the connection")
        self._fill = fill = self._fill + received
        at = 0
        # An answer may close the connection. Responses behind it are not delivered: `_end` fails their requests.
        while fill - at >= 4 and not self._why:
            (size,) = _SIZE.unpack_from(view, at)
            if not 4 <= size <= self._settings.max_response_bytes:
                raise MalformedFrame(f"a response of {size} bytes")
            end = at + 4 + size
            if end > fill:
                break
            self._dispatch(view[at + 4 : end])
            at = end
        self._make_room(view, at)

    def _make_room(self, view: memoryview, at: int) -> None:
        """Move an incomplete frame to the front of the buffer, or into a larger buffer if it does not fit."""
        left = self._fill - at
        if not left and len(self._buffer) <= KEPT_BUFFER:
            self._fill = 0
            return
        needed = FIRST_BUFFER
        if left >= 4:
            needed = max(needed, _SIZE.unpack_from(view, at)[0] + 4)
        if len(self._buffer) < needed or (left < FIRST_BUFFER and len(self._buffer) > KEPT_BUFFER >= needed):
            # A new buffer, because a bytearray cannot be resized while `view` exists.
            larger = bytearray(needed)
            larger[:left] = view[at : self._fill]
            self._buffer = larger
        elif at:
            view[:left] = bytes(view[at : self._fill])
        self._fill = left

    def _dispatch(self, frame: memoryview) -> None:
        if not self._outstanding:
            raise MalformedFrame("an answer that nothing waits for")
        waiting = self._outstanding.popleft()
        try:
            correlation_id, body_at = decode_response_header(frame, waiting.api_key, waiting.version)
            if correlation_id != waiting.correlation_id:
                raise MalformedFrame(f"answer {correlation_id}, expected {waiting.correlation_id}")
            waiting.answer(frame[body_at:], None)
        except MalformedFrame as problem:
            # It is off the queue, so `_end` will not fail it.
            waiting.answer(None, RequestFailed(BAD_ANSWER, sent=True, detail=str(problem)))
            raise

    def _send(self, frame: Buffer) -> None:
        self._accepted += len(frame)
        # Behind bytes that wait: sent now, the frame would overtake them.
        if self._unsent:
            self._unsent.append(memoryview(frame))
            return
        try:
            taken = self._link.send((frame,))
        except LinkClosed:
            self.close()
            return
        self._handed += taken
        if taken < len(frame):
            self._unsent.append(memoryview(frame)[taken:])
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._start(self._flush)

    async def _flush(self) -> None:
        try:
            self._report_sent()
            while self._unsent:
                await self._link.wait_writable()
                self._push()
                self._report_sent()
        except LinkClosed:
            self.close()
        finally:
            self._flushing = False

    def _push(self) -> None:
        """Pass as many unsent bytes to the link as it takes now."""
        taken = self._link.send(list(islice(self._unsent, MAX_PIECES)))
        self._handed += taken
        while taken:
            first = self._unsent[0]
            if taken < len(first):
                self._unsent[0] = first[taken:]
                return
            taken -= len(first)
            self._unsent.popleft()

    def _report_sent(self) -> None:
        while self._when_sent and self._when_sent[0][0] <= self._handed:
            self._when_sent.popleft()[1](True)

    def _end(self) -> None:
        # First: an answer that sends again must get RequestFailed, or its request would join the queue being emptied.
        self._ended = True
        self._unsent.clear()
        while self._outstanding:
            waiting = self._outstanding.popleft()
            waiting.answer(None, RequestFailed(self._why, sent=self._handed > waiting.starts_at))
        self._report_sent()
        while self._when_sent:
            self._when_sent.popleft()[1](False)


def _versions_of_response(version: int, body: memoryview) -> tuple[int, Mapping[int, tuple[int, int]]]:
    """Return the error of an ApiVersions response, and for each API key its lowest and highest version."""
    if len(body) < 2:
        raise MalformedFrame("an ApiVersions answer without error code")
    # A broker that does not support the requested version answers in version 0.
    known = _ERROR.unpack_from(body)[0] != ErrorCode.UNSUPPORTED_VERSION
    return _decoded_versions(version if known else 0, bytes(body))


@lru_cache(maxsize=64)
def _decoded_versions(version: int, body: bytes) -> tuple[int, Mapping[int, tuple[int, int]]]:
    # Cached, because a broker gives the same response to each new connection.
    answer, _ = ApiVersionsResponse.decode(memoryview(body), 0, version)
    return answer.error_code, {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
