"""Sends requests to other nodes, with correlation ids and several requests in flight on each connection.

On a connection, responses come in the order of the requests. A request that may wait long at the other side (a parked
Fetch of the metadata log) would delay a heartbeat behind it. So requests name a lane, and each (node, lane) has its own
connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Container
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from squall.broker.env import LinkClosed
from squall.broker.net.frames import LARGE, FrameReader, ReceiveMemoryLimit
from squall.broker.protocol.apis import ApiKey, response_class
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.header import decode_response_header, encode_request

if TYPE_CHECKING:
    from squall.broker.env import Env, Transport, WakeupSignal

MAX_RESPONSE = 100 << 20
Decode = Callable[[memoryview], Any]


class PeerTimeout(OSError):
    """Says that a node sent no response in time. The request may or may not have been carried out."""


class Unreachable(OSError):
    """Says that the address of a node is not known."""


class _PendingExchange:
    """Represents one request that waits for its response. A connection brings responses in the order of requests."""

    __slots__ = ("answer", "correlation_id", "decode", "done", "failure")

    def __init__(self, correlation_id: int, decode: Decode, done: WakeupSignal) -> None:
        self.correlation_id, self.decode, self.done = correlation_id, decode, done
        self.answer: Any = None
        self.failure: OSError | None = None


class _FastLock:
    """Implements a lock between tasks. Unlike `trio.Lock`, it lets no other task run when a free lock is acquired."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class _Channel:
    """Represents one connection to a node, for the requests of one lane: callers of `PeerClient` name a lane with each
    request. Responses come in order, so a slow request delays only the requests of its own lane. A channel that fails
    stays broken, and the next request opens another.
    """

    def __init__(self, env: Env, link: Transport, start: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        self._env, self._link, self._start = env, link, start
        self._frames = FrameReader(env, link, ReceiveMemoryLimit(1 << 62), MAX_RESPONSE, grows_to=LARGE)
        self._waiting: deque[_PendingExchange] = deque()
        self._unsent: deque[memoryview] = deque()
        self._next_id = 0
        self.broken = False

    def send(self, api_key: int, version: int, client_id: str, body: bytes, decode: Decode) -> _PendingExchange:
        """Queue a request, and send as much of it as the link takes now. A task sends the rest. Raises OSError if the
        link has ended.
        """
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        waiting = _PendingExchange(self._next_id, decode, self._env.signal())
        self._waiting.append(waiting)
        frame = encode_request(api_key, version, self._next_id, client_id, body)
        # Behind the rest of earlier requests: bytes of two frames must not mix.
        if self._unsent:
            self._unsent.append(memoryview(frame))
            return waiting
        try:
            taken = self._link.send((frame,))
        except OSError as error:
            self.close(str(error))
            raise
        if taken < len(frame):
            self._unsent.append(memoryview(frame)[taken:])
            self._start(self._send_rest)
        return waiting

    async def _send_rest(self) -> None:
        try:
            while self._unsent:
                await self._link.wait_writable()
                frame = self._unsent[0]
                taken = self._link.send((frame,))
                if taken < len(frame):
                    self._unsent[0] = frame[taken:]
                else:
                    self._unsent.popleft()
        except OSError as error:
            self.close(str(error))

    async def read(self) -> None:
        """Hand responses to the waiting requests until the link ends."""
        why = "closed"
        try:
            while True:
                for view in await self._frames.burst():
                    self._answer(view)
        except (OSError, MalformedFrame) as error:
            why = str(error)
        finally:
            self.close(why)

    def _answer(self, view: memoryview) -> None:
        if not self._waiting or len(view) < 4:
            raise MalformedFrame("an answer to no request")
        waiting = self._waiting[0]
        correlation_id = int.from_bytes(view[:4], "big", signed=True)
        if correlation_id != waiting.correlation_id:
            raise MalformedFrame(f"answer {correlation_id} where {waiting.correlation_id} was due")
        waiting.answer = waiting.decode(view)
        self._waiting.popleft()  # not earlier: if `decode` raises, `close` must fail this request, too
        waiting.done.set()

    def abandon(self) -> None:
        """Fail all outstanding requests. The link stays open, and their responses are ignored when they come."""
        for waiting in self._waiting:
            if waiting.answer is None and waiting.failure is None:
                waiting.failure = LinkClosed("the answer is not wanted any more")
                waiting.done.set()

    def close(self, why: str) -> None:
        """Close the link and fail all outstanding requests."""
        self.broken = True
        self._link.close()
        self._unsent.clear()
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.failure = LinkClosed(why)
            waiting.done.set()


class PeerClient:
    """Sends requests to other nodes. The task `run` must be running."""

    def __init__(self, env: Env, resolve: Callable[[int], tuple[str, int] | None], client_id: str) -> None:
        self._env, self._resolve, self._client_id = env, resolve, client_id
        self._channels: dict[tuple[int, str], _Channel] = {}
        self._opening: dict[tuple[int, str], _FastLock] = {}
        self._dialling: dict[trio.CancelScope, tuple[int, str]] = {}
        """Maps cancel scopes to (node id, lane), for requests whose connection is still being opened."""
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tasks that read responses, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def request(
        self,
        node_id: int,
        api_key: int,
        version: int,
        message: Any,
        timeout_ms: int,
        *,
        lane: str = "",
        left_s: float = inf,
    ) -> Any:
        """Send `message` to a node and return the response message. Requests with the same `lane` share a connection.

        Raises OSError if the node cannot be reached or the link ends first. Raises PeerTimeout if no response comes
        within `timeout_ms`, or within `left_s`, the seconds that the caller can still wait. The request may or may not
        have been carried out then. After `timeout_ms` the link is closed, too, because the overdue response would delay
        all later ones.
        """
        response = response_class(api_key)

        def decode(view: memoryview) -> Any:
            _, at = decode_response_header(view, api_key, version)
            return response.decode(view, at, version)[0]

        return await self.exchange(
            node_id, api_key, version, message.encode(version), decode, timeout_ms, lane=lane, left_s=left_s
        )

    async def exchange(
        self,
        node_id: int,
        api_key: int,
        version: int,
        body: bytes,
        decode: Decode,
        timeout_ms: int,
        *,
        lane: str = "",
        left_s: float = inf,
    ) -> Any:
        """Send a request with the encoded `body`, and return the result of `decode`. `decode` gets the whole response
        frame, header included, and must not keep the view. Requests with the same `lane` share a connection.

        Raises OSError if the node cannot be reached or the link ends first. Raises PeerTimeout if no response comes
        within `timeout_ms`, which also closes the link, or within `left_s` seconds, which leaves the link open.
        """
        patience_s = min(timeout_ms / 1000, left_s)
        give_up_at = self._env.mono() + patience_s
        channel = self._channels.get((node_id, lane))
        if channel is None or channel.broken:
            channel = None
            with self._env.timeout(patience_s) as scope:
                self._dialling[scope] = node_id, lane
                try:
                    channel = await self._channel(node_id, lane)
                finally:
                    del self._dialling[scope]
        if channel is not None:
            waiting = channel.send(api_key, version, self._client_id, body, decode)
            if await waiting.done.wait(max(0.0, give_up_at - self._env.mono())):
                if waiting.failure is not None:
                    raise waiting.failure
                return waiting.answer
            if patience_s < left_s:
                # Answers come in order, so the overdue answer would delay those of all later requests.
                channel.close("an answer was overdue")
        raise PeerTimeout(f"node {node_id} did not answer {ApiKey(api_key).name} within {1000 * patience_s:.0f} ms")

    async def _channel(self, node_id: int, lane: str) -> _Channel:
        place = (node_id, lane)
        lock = self._opening.setdefault(place, _FastLock())
        async with lock:
            channel = self._channels.get(place)
            if channel is not None and not channel.broken:
                return channel
            address = self._resolve(node_id)
            if address is None:
                raise Unreachable(f"no address of node {node_id} is known")
            assert self._nursery is not None, "PeerClient.run is not running"
            link = await self._env.connect(*address)
            channel = self._channels[place] = _Channel(self._env, link, self._nursery.start_soon)
            self._nursery.start_soon(channel.read)
            return channel

    def wait_only_for(self, node_id: int, lanes: Container[str]) -> None:
        """Fail the requests in `lanes` that wait for any other node than `node_id`. This is called when the controller
        changes: responses of any node but the new controller are useless then.
        """
        for (node, lane), channel in self._channels.items():
            if node != node_id and lane in lanes:
                channel.abandon()
        for scope, (node, lane) in self._dialling.items():
            if node != node_id and lane in lanes:
                scope.cancel()

    def forget(self, node_id: int) -> None:
        """Close the links to a node, so that the next request connects anew."""
        for (node, _), channel in list(self._channels.items()):
            if node == node_id:
                channel.close("dialled anew")
