"""Runs the listeners and dispatches requests: frames in, responses out, in order.

A malformed frame, an unsupported version of anything but ApiVersions, or an oversized length closes its connection and
nothing else. Limits (connections in all and per address, frame size, receive memory, parked requests, unsent bytes,
idle time) are settings.
"""

# A request has no task, channel or cancel scope of its own: on small machines a wake-up costs 100 to 180 us, a task 5
# to 15 us. The code that completes a reply sends it, and a task starts only if the socket is full; each burst has one
# `settle`. The next Produce is appended while earlier ones wait for replicas (Kafka mutes the connection instead):
# with batches of 16 KB this gives 6 to 9 times the throughput, and replies keep their order.

from __future__ import annotations

from functools import partial
from struct import Struct
from struct import error as struct_error
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import trio

from squall.broker.env import LinkClosed
from squall.broker.net.connection import Connection, PendingResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import FairScheduler, ResponseTask
from squall.broker.net.frames import FrameReader, ReceiveMemoryLimit
from squall.broker.net.large import LARGE, LargeRequestCodec
from squall.broker.protocol.apis import APIS, ApiKey, request_class
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from squall.broker.config import BrokerConfig
    from squall.broker.env import Env, Listener, Transport
    from squall.broker.net.request_metrics import RequestMetrics
    from squall.broker.net.wakeups import WakeableSet

_HEADER = Struct(">hhih").unpack_from
_HEADER_SIZE = 10
_IDLE_SWEEP_S = 5.0
_MUCH_KEPT = 64 << 10
"""Connections with no more unsent response bytes than this do not count for `squall.replies.max.bytes`."""
_TURN_S = 0.005
"""Limits the time, in s, for which the requests of one connection are served before other tasks run."""
_QUIET_MS = 10_000
"""Gives the ms of silence after which a connection between brokers may be closed to make room for another."""
FIRST_PRODUCE = 3
_NEVER = 1 << 15
"""Is above every version: the first flexible version of an API that has none."""
OUR_BUGS = (ValueError, TypeError, LookupError, AttributeError, struct_error)


class Route:
    """Serves one API: its versions, and a handler of one of three types. A hot handler gets raw bytes. A plain handler
    gets the message, and returns the response, a `DeferredResponse`, or None if it replies later. A waiting handler
    runs in a task; later requests of the connection wait for its end.
    """

    __slots__ = ("flexible_from", "hot", "key", "max_version", "min_version", "plain", "tagged_from", "waits")

    def __init__(
        self,
        key: int,
        *,
        hot: Callable[[PendingResponse, memoryview, int], None] | None = None,
        plain: Callable[[Any, PendingResponse], Any] | None = None,
        waits: Callable[[Any, PendingResponse], Awaitable[Any]] | None = None,
    ) -> None:
        api = APIS[key]
        # Produce 0 to 2 are listed for old clients' sake (KAFKA-18659), and refused like any unserved version.
        self.min_version = max(api.min_version, FIRST_PRODUCE) if key == ApiKey.PRODUCE else api.min_version
        self.key, self.max_version = key, api.max_version
        self.flexible_from = api.flexible_from if api.flexible_from is not None else _NEVER
        self.tagged_from = self.flexible_from if key != ApiKey.API_VERSIONS else _NEVER
        """Is the first version whose response has tagged fields in its header."""
        self.hot, self.plain, self.waits = hot, plain, waits


class Server:
    """Accepts connections on the listeners of a broker, and gives each request to the handler of its API."""

    def __init__(self, env: Env, config: BrokerConfig, woken: WakeableSet, nursery: trio.Nursery) -> None:
        self._env, self._config, self._woken, self._nursery = env, config, woken, nursery
        self._large = LargeRequestCodec(env, config)
        self._memory = ReceiveMemoryLimit(config.queued_max_request_bytes)
        self._max_frame = config.socket_request_max_bytes
        self._max_fetch = config.squall_fetch_request_max_bytes
        self._max_parked = config.squall_connection_parked_max_requests
        self._max_unsent = config.squall_connection_parked_max_bytes
        self._connections: dict[Connection, FrameReader] = {}
        names = {endpoint.name for endpoint in config.bind_listeners}
        # If clients have no listener of their own, they share that of the brokers, and their limits apply to it.
        shared = set() if names - config.node_listeners else {config.inter_broker_listener}
        self._inner = config.node_listeners - shared
        """Names the listeners that only nodes use. Limits of clients, such as `max.connections`, do not apply there."""
        self._of_brokers: dict[Connection, None] = {}
        """Holds the connections of the listeners that only nodes use (`_inner`)."""
        self._turns = FairScheduler(lambda task: self._nursery.start_soon(task))
        """Schedules the connections of listeners outside `_inner`. Unused if brokers and clients share a listener."""
        self._per_address: dict[str, int] = {}
        self._dirty: dict[Connection, None] = {}
        self._heavy: dict[Connection, None] = {}
        """Holds client connections that had more than `_MUCH_KEPT` bytes of unsent responses at their last flush."""
        self._max_kept = config.squall_replies_max_bytes
        self._listeners: list[Listener] = []
        self._for_clients: dict[int, Route] = {}
        self._for_nodes: dict[int, Route] = {}
        self._ready = trio.Event()
        self.in_force: Callable[[], BrokerConfig] = lambda: config
        """Returns the configuration with the settings altered at run time. It is called for each new connection."""
        self.requests: RequestMetrics | None = None
        """Measures requests if the node has metrics, else is None. It must be set before any `listen`."""
        self.ports: dict[str, int] = {}
        """Maps the name of each listener to its open port."""

    def route(self, for_clients: dict[int, Route], for_nodes: dict[int, Route]) -> None:
        """Serve the APIs `for_clients` on all listeners, `for_nodes` only between nodes. Call this before `listen`."""
        self._for_clients, self._for_nodes = for_clients, {**for_clients, **for_nodes}

    async def listen(self, name: str, host: str, port: int) -> None:
        """Open a listener and serve it until the nursery ends. Raises OSError if the port is taken."""
        listener = await self._env.listen(host, port)
        self._listeners.append(listener)
        self.ports[name] = listener.port
        self._nursery.start_soon(self._accept, listener, name)

    def open_to_clients(self) -> None:
        """Begin to serve clients. Until now their requests waited in their sockets: the broker knew no leaders yet, and
        an error would only make a client back off.
        """
        self._ready.set()

    async def _accept(self, listener: Any, name: str) -> None:
        if name not in self._config.node_listeners:
            await self._ready.wait()
        while True:
            try:
                link = await listener.accept()
            except LinkClosed:
                return
            except OSError as error:  # out of file descriptors, or a peer that left before it was accepted
                self._env.trace("accept_failed", listener=name, error=str(error))
                await self._env.sleep(0.05)
                continue
            address = link.peer.rpartition(":")[0]
            if not self._has_room(name, address):
                self._env.trace("connection_refused", listener=name, peer=link.peer, reason="too many connections")
                link.close()
                continue
            self._per_address[address] = self._per_address.get(address, 0) + 1
            self._nursery.start_soon(self._serve, link, name, address)

    def _has_room(self, listener: str, address: str) -> bool:
        """Return whether one more connection may be opened. A listener for brokers alone has a limit of its own, so
        that clients cannot keep brokers out (KIP-402). At that limit a quiet connection of a broker is closed.
        """
        if listener not in self._inner:
            config = self.in_force()
            held = self._per_address.get(address, 0)
            return len(self._connections) < config.max_connections and held < config.max_connections_per_ip
        if len(self._of_brokers) < self._config.squall_inter_broker_max_connections:
            return True
        quietest = min(self._of_brokers, key=lambda conn: conn.last_active_ms)
        if self._env.mono() * 1000 - quietest.last_active_ms < _QUIET_MS:
            return False
        del self._of_brokers[quietest]  # now, and not when its task ends: others may come before that
        quietest.close()
        return True

    async def _serve(self, link: Transport, listener: str, address: str) -> None:
        between_nodes = listener in self._config.node_listeners
        routes = self._for_nodes if between_nodes else self._for_clients
        conn = Connection(link, listener, self._mark_dirty, self._nursery.start_soon)
        frames = FrameReader(self._env, link, self._memory, self._max_frame)
        self._connections[conn] = frames
        conn.last_active_ms = int(self._env.mono() * 1000)
        if listener in self._inner:
            self._of_brokers[conn] = None
        turns = self._scheduler_of(listener)
        max_parked, max_unsent, mono = self._max_parked, self._max_unsent, self._env.mono
        # `began` limits this connection's slice of a burst. `busy_since` leaves waits out: the clients' budget pays.
        busy_since = mono()
        try:
            while not conn.closed:
                burst = await frames.burst()
                began = mono()
                conn.last_active_ms = int(began * 1000)
                if turns is not None and turns.must_queue(conn):
                    began = await self._queue(conn, turns)
                busy_since = began
                last = burst[-1]
                for frame in burst:
                    if not conn.closed:
                        self._dispatch(conn, routes, frame)
                        if conn.held is not None:
                            busy_since = await self._wait_held(conn, turns, busy_since)
                        if frame is not last and (mono() - began >= _TURN_S or conn.congested(max_parked, max_unsent)):
                            began = busy_since = await self._give_way(conn, turns, busy_since)
                self.settle()
                if turns is not None:
                    turns.spend(mono() - busy_since)
                if conn.congested(max_parked, max_unsent):
                    await conn.wait_uncongested(max_parked, max_unsent)
        except MalformedFrame as wrong:
            self._env.trace("malformed_frame", peer=link.peer, listener=listener, why=str(wrong))
            if turns is not None:
                turns.spend(min(mono() - busy_since, _TURN_S))  # at most a turn: the time may include a wait for bytes
        except LinkClosed:
            pass  # LinkClosed alone, no other OSError: a disk's error must end the node, as it does with Kafka
        finally:
            frames.close()
            conn.close()
            del self._connections[conn]
            self._of_brokers.pop(conn, None)
            self._dirty.pop(conn, None)
            self._heavy.pop(conn, None)
            self._release(address)

    def _scheduler_of(self, listener: str) -> FairScheduler | None:
        apart = self._config.inter_broker_listener in self._inner and listener not in self._inner
        return self._turns if apart else None

    async def _give_way(self, conn: Connection, turns: FairScheduler | None, busy_since: float) -> float:
        """Pause between two requests that arrived together: send the known responses, let other tasks run, and wait
        while the connection is `congested`. Charge the time since `busy_since` to `turns`, the time budget of clients
        (None: no budget applies). Return the time at which the pause ended, in s of the node's clock.
        """
        self.settle()
        if turns is not None:
            turns.spend(self._env.mono() - busy_since)
        await trio.lowlevel.checkpoint()
        await conn.wait_uncongested(self._max_parked, self._max_unsent)
        if turns is not None and turns.must_queue(conn):
            return await self._queue(conn, turns)
        return self._is_active(conn)

    async def _wait_held(self, conn: Connection, turns: FairScheduler | None, busy_since: float) -> float:
        """Send the known responses, then wait for `Connection.release`, and until `turns` (if any) lets the connection
        run. Charge the time since `busy_since` to `turns`. Return the time at which the wait ended. Times are the
        node's, in s.
        """
        while conn.held is not None:
            self.settle()
            if turns is not None:
                turns.spend(self._env.mono() - busy_since)
            if conn.held is not None:
                await conn.held.wait()
            busy_since = self._env.mono()
        if turns is not None and turns.must_queue(conn):
            return await self._queue(conn, turns)
        return busy_since

    async def _queue(self, conn: Connection, turns: FairScheduler) -> float:
        """Wait until `turns` lets the connection run, and return the time then, in s of the node's clock."""
        await turns.queue(conn)
        return self._is_active(conn)

    def _is_active(self, conn: Connection) -> float:
        """Record that the connection is active now. Return the current time, in s of the node's clock."""
        now = self._env.mono()
        conn.last_active_ms = int(now * 1000)
        return now

    def _release(self, address: str) -> None:
        held = self._per_address[address] - 1
        if held:
            self._per_address[address] = held
        else:
            del self._per_address[address]

    def _mark_dirty(self, conn: Connection) -> None:
        self._dirty[conn] = None

    def _dispatch(self, conn: Connection, routes: dict[int, Route], frame: memoryview) -> None:
        assert conn.held is None
        size = len(frame)
        if size < _HEADER_SIZE:
            raise MalformedFrame(f"request header needs {_HEADER_SIZE} bytes, frame has {size}")
        key, version, correlation_id, client_id_size = _HEADER(frame)
        at = _HEADER_SIZE + client_id_size if client_id_size > 0 else _HEADER_SIZE
        if at > size or client_id_size < -1:
            raise MalformedFrame("client id runs past the frame")
        route = routes.get(key)
        if route is None:
            raise MalformedFrame(f"api key {key} is not served")
        if not route.min_version <= version <= route.max_version:
            if key != ApiKey.API_VERSIONS:
                raise MalformedFrame(f"{ApiKey(key).name} version {version} is not served")
            slot = self._slot(conn, key, correlation_id, version, False)
            assert route.plain is not None
            slot.reply(route.plain(None, slot).encode(0))  # the client may be able to read no version but 0
            return
        if version >= route.flexible_from:
            at = at + 1 if at < size and frame[at] == 0 else _tags_end(frame, at)
        slot = self._slot(conn, key, correlation_id, version, version >= route.tagged_from)
        if conn.client_id is None and client_id_size > 0:
            conn.client_id = str(frame[_HEADER_SIZE : _HEADER_SIZE + client_id_size], "utf-8", "replace")
        if route.hot is not None:
            if size > self._max_fetch and key == ApiKey.FETCH:
                raise MalformedFrame(f"a Fetch of {size} bytes: squall.fetch.request.max.bytes={self._max_fetch}")
            route.hot(slot, frame, at)
            return
        if size > LARGE:
            conn.hold()
            self._nursery.start_soon(self._read_large, route, frame, at, slot)
            return
        DONE.bytes += size
        request, _ = request_class(key).decode(frame, at, version)
        self._handle(route, request, slot)

    def _slot(self, conn: Connection, key: int, correlation_id: int, version: int, flexible: bool) -> PendingResponse:
        slot = PendingResponse(conn, correlation_id, version, flexible)
        conn.slots.append(slot)
        if self.requests is not None:
            slot.timer = self.requests.begin(key)
        return slot

    async def _read_large(self, route: Route, frame: memoryview, at: int, slot: PendingResponse) -> None:
        """Decode a large request off the event loop, then dispatch it. The connection's later requests wait."""
        conn = slot.conn
        try:
            request = await self._large.read(request_class(route.key), frame, at, slot.version)
        except MalformedFrame as wrong:
            self._malformed(slot, wrong)
            return
        finally:
            conn.release()  # before the handler, which may hold the connection again
        if not conn.closed:
            self._handle(route, request, slot, is_large=True)
            self.settle()

    def _handle(self, route: Route, request: Any, slot: PendingResponse, *, is_large: bool = False) -> None:
        """Call the handler of a request, and send its response. If `is_large`, a thread encodes the response."""
        if route.plain is None:
            assert route.waits is not None
            self._begin(partial(route.waits, request, slot), slot, holds=True, is_large=is_large)
            return
        try:
            answer = route.plain(request, slot)
            if answer is None:
                return
            if isinstance(answer, DeferredResponse):
                self._begin(answer.wait, slot, holds=answer.holds, is_large=is_large)
            elif isinstance(answer, bytes):
                slot.reply(answer)
            elif is_large:
                self._nursery.start_soon(self._write_large, answer, slot)
            else:
                slot.reply(_encode(answer, slot))
        except MalformedFrame as wrong:
            self._malformed(slot, wrong)
        except OUR_BUGS as bug:
            self._handler_failed(slot, bug)

    async def _write_large(self, answer: Any, slot: PendingResponse) -> None:
        try:
            slot.reply(await self._write(answer, slot))
        except OUR_BUGS as bug:
            self._handler_failed(slot, bug)
        self.settle()

    async def _write(self, answer: Any, slot: PendingResponse) -> Any:
        """Return the response to a large request, encoded in a thread, and count its error codes for the metrics."""
        if slot.timer is not None:
            slot.timer.count_errors_of(answer)
        return await self._large.write(answer, slot.version)

    def _begin(self, wait: Callable[[], Awaitable[Any]], slot: PendingResponse, *, holds: bool, is_large: bool) -> None:
        if holds:
            slot.conn.hold()
        self._nursery.start_soon(self._answer_later, wait, slot, holds, is_large)

    async def _answer_later(
        self, wait: Callable[[], Awaitable[Any]], slot: PendingResponse, holds: bool, is_large: bool
    ) -> None:
        turns = self._scheduler_of(slot.conn.listener)
        long = ResponseTask(turns, self._env.mono) if turns is not None else None
        try:
            if long is not None:
                await long.begin()
            answer = await wait()
            if slot.conn.closed:
                answer = []  # `reply` drops it, so nothing is encoded
            if not isinstance(answer, (bytes, list)) and not is_large:
                answer = _encode(answer, slot)
            if long is not None:
                long.end()  # before the wait below, which takes no time of the event loop
            if not isinstance(answer, (bytes, list)):
                answer = await self._write(answer, slot)
            slot.reply(answer)
        except MalformedFrame as wrong:
            self._malformed(slot, wrong)
        except OUR_BUGS as bug:
            self._handler_failed(slot, bug)
        finally:
            if holds:
                slot.conn.release()
        self.settle()

    def _malformed(self, slot: PendingResponse, wrong: MalformedFrame) -> None:
        self._env.trace("malformed_frame", peer=slot.conn.link.peer, why=str(wrong))
        slot.conn.close()

    def _handler_failed(self, slot: PendingResponse, bug: Exception) -> None:
        """End the connection: a handler raised one of OUR_BUGS, such as TypeError. (AssertionError stops the node.)"""
        where = " > ".join(frame.f_code.co_qualname for frame, _ in walk_tb(bug.__traceback__))
        self._env.trace("handler_failed", peer=slot.conn.link.peer, version=slot.version, why=repr(bug), where=where)
        slot.conn.close()

    def answer_later(
        self, handler: Callable[[Any, int, Callable[[list[Any]], None]], None]
    ) -> Callable[[PendingResponse, Any], None]:
        """Return a function `ask(slot, request)` that serves requests with `handler`, without a task. `ask` calls
        `handler(request, version, answer)`, which must call `answer` once with the response body, now or later.
        """

        def ask(slot: PendingResponse, request: Any) -> None:
            def answer(body: list[Any]) -> None:
                slot.reply(body)
                self.settle()

            try:
                handler(request, slot.version, answer)
            except OUR_BUGS as bug:
                self._handler_failed(slot, bug)

        return ask

    def settle(self) -> None:
        """Answer the parked requests that were woken, then send once on each connection that has new responses."""
        woken, dirty = self._woken, self._dirty
        while woken:  # first, because this makes more connections dirty
            request, _ = woken.popitem()
            request.wake()
        heavy = False
        while dirty:
            conn, _ = dirty.popitem()
            conn.flush()
            if conn.kept_bytes > _MUCH_KEPT and conn.listener not in self._inner:
                self._heavy[conn] = None
                heavy = True
        if heavy:
            self._limit_kept()

    def _limit_kept(self) -> None:
        """Close client connections, those with the most unsent response bytes first, until the rest together have at
        most `squall.replies.max.bytes`. Short requests may have large responses, and a client may read none of them.
        """
        kept = {conn: size for conn in self._heavy if (size := conn.kept_bytes) > _MUCH_KEPT}
        self._heavy = dict.fromkeys(kept)
        while sum(kept.values()) > self._max_kept:
            most = max(kept, key=kept.__getitem__)
            self._env.trace("replies_dropped", peer=most.link.peer, listener=most.listener, bytes=kept.pop(most))
            del self._heavy[most]
            most.abort()

    async def sweep_idle(self) -> None:
        """Free the receive memory of quiet connections, and close connections idle beyond connections.max.idle.ms."""
        limit_ms = self._config.connections_max_idle_ms
        while True:
            await self._env.sleep(_IDLE_SWEEP_S)
            now_ms = int(self._env.mono() * 1000)
            for conn, frames in list(self._connections.items()):
                idle_ms = now_ms - conn.last_active_ms
                if idle_ms > _IDLE_SWEEP_S * 1000:
                    frames.shrink_if_idle()
                if idle_ms > limit_ms >= 0:
                    conn.close()

    def connection_counts(self) -> dict[str, int]:
        """Return the number of open connections by listener. A listener without connections has 0."""
        return {name: sum(conn.listener == name for conn in self._connections) for name in self.ports}

    def close(self) -> None:
        """Stop listening and end every connection."""
        for listener in self._listeners:
            listener.close()
        for conn in list(self._connections):
            conn.close()


def _encode(answer: Any, slot: PendingResponse) -> bytes:
    """Return the response, encoded on the event loop, and count its error codes for the metrics."""
    if slot.timer is not None:
        slot.timer.count_errors_of(answer)
    encoded: bytes = answer.encode(slot.version)
    DONE.bytes += len(encoded)
    return encoded


def _tags_end(frame: memoryview, at: int) -> int:
    """Return where the header's tagged fields end. The caller has handled the usual case: a byte 0, no such fields."""
    if at >= len(frame):
        raise MalformedFrame("request header ends before its tagged fields")
    from squall.broker.protocol.header import decode_request_header

    return decode_request_header(frame).body
