"""Watches whether the requests of each connection take effect in the order in which they arrived.

The broker itself handles no further request of a connection until the earlier one has taken effect. The watch does not
rely on that. It observes when each request arrives, and when it takes effect: for Produce, for example, when any task
of the broker calls the function that appends the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from squall.broker.apis import (
    committed_offsets,
    consumer_groups,
    groups,
    transactions,
    txn_offsets,
)
from squall.broker.apis.produce import ProduceApi
from squall.broker.controller.controller import Controller
from squall.broker.net.served import FORWARDED
from squall.broker.net.server import Server
from squall.broker.protocol.apis import ApiKey
from squall.broker.replicas.coordinators.producer_ids import ProducerIdManager
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.chaos.runtimes.sim.invariants.request_order import RequestEffect
from squall.chaos.runtimes.sim.wrapping import FunctionWrapper, wrapped

if TYPE_CHECKING:
    from squall.broker.net.connection import Connection
    from squall.chaos.runtimes.sim.invariants.models import Asked

BY_ANSWER: Final = frozenset({*FORWARDED, ApiKey.LIST_OFFSETS})
"""Lists APIs whose moment of effect is not observed: it is some time before the answer (for ListOffsets, when the
broker reads the log). A client's request counts as taking effect when it is answered.
"""
BY_CALL: Final = frozenset({ApiKey.PRODUCE, ApiKey.DELETE_RECORDS, ApiKey.INIT_PRODUCER_ID, ApiKey.TXN_OFFSET_COMMIT})
"""Lists APIs whose requests take effect when the broker calls a function that is observed here. Requests of APIs that
are neither here nor in BY_ANSWER take effect as they arrive; only their responses may wait.
"""
_ASKING: Final[tuple[ModuleType, ...]] = (committed_offsets, consumer_groups, groups, transactions, txn_offsets)
"""Lists the broker's modules that pass requests to a coordinator, by a function `ask` that is observed here."""
OutOfOrderCallback = Callable[[int, RequestEffect, RequestEffect], None]
"""Is called when a request takes effect out of order: with the node's id, this request, and the request of the same
connection that took effect last.
"""


class RequestOrder:
    """Records in which order the requests of one connection arrive and take effect."""

    __slots__ = ("arrived", "last", "late", "__weakref__")

    def __init__(self) -> None:
        self.arrived = 0
        """Counts the requests that have arrived so far."""
        self.last = RequestEffect(0, 0)
        self.late = False
        """Is True if the request that is being dispatched counts as taking effect only when it is answered."""


class ConnectionOrderWatch:
    """Follows the requests of all connections of a simulation, and calls `tell` for each request that takes effect out
    of its connection's order.
    """

    def __init__(self) -> None:
        self.tell: OutOfOrderCallback = lambda node, effect, last: None
        self.effects: Counter[int] = Counter()
        """Maps an API key to the number of requests that took effect."""
        self.asked: Asked = {}
        self._lines: WeakKeyDictionary[Connection, RequestOrder] = WeakKeyDictionary()
        self._now: ContextVar[tuple[int, RequestOrder, RequestEffect] | None] = ContextVar("request", default=None)
        """Holds the request on whose behalf the current code runs: the node, the `RequestOrder` of the connection, and
        the request.
        """

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe the brokers' requests inside this block, by wrapping the brokers' functions (also those that a
        planted bug has replaced).
        """
        called = ((ProduceApi, "_append_all"), (ReplicaManager, "delete_records"), (ProducerIdManager, "take"))
        wrappers: list[FunctionWrapper] = [
            (Controller, "decide", self._asked),
            (Server, "_dispatch", self._dispatched),
            (Server, "_handle", self._handled),
            (Server, "_begin", self._begun),
            *((owner, name, self._effective) for owner, name in called),
            *((module, "ask", self._effective) for module in _ASKING),
        ]
        with wrapped(wrappers):
            yield

    def _asked(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def decide(controller: Controller, api_key: int, request: Any, now_ms: int) -> Any:
            if api_key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
                for topic in request.topics:
                    for part in topic.partitions:
                        target = None if part.replicas is None else tuple(part.replicas)
                        self.asked.setdefault((topic.name, part.partition_index), set()).add(target)
            return rule(controller, api_key, request, now_ms)

        return decide

    def _took_effect(self, node: int, line: RequestOrder, effect: RequestEffect) -> None:
        last = line.last
        if effect.number < last.number:
            self.tell(node, effect, last)
        elif effect is not last:
            line.last = effect
            self.effects[effect.key] += 1

    def _dispatched(self, rule: Callable[..., None]) -> Callable[..., None]:
        lines, now = self._lines, self._now

        @wraps(rule)
        def dispatch(server: Server, conn: Connection, routes: Any, frame: memoryview) -> None:
            line = lines.get(conn)
            if line is None:
                line = lines[conn] = RequestOrder()
            line.arrived += 1
            key = frame[0] << 8 | frame[1] if len(frame) > 1 else -1
            request = server._config.node_id, line, RequestEffect(line.arrived, key)
            before = now.set(request)
            try:
                rule(server, conn, routes, frame)
            finally:
                now.reset(before)
            route = routes.get(key)
            # The server answers a hot route without `_handle`, which notes the effect of all others.
            if route is not None and route.hot is not None and key not in BY_CALL:
                self._took_effect(*request)

        return dispatch

    def _handled(self, rule: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule)
        def handle(*args: Any, **kwargs: Any) -> None:
            _, line, effect = request = self._request()
            line.late = False
            rule(*args, **kwargs)
            if effect.key not in BY_CALL and not line.late:
                self._took_effect(*request)

        return handle

    def _request(self) -> tuple[int, RequestOrder, RequestEffect]:
        request = self._now.get()
        assert request is not None, "it was not dispatched"
        return request

    def _begun(self, rule: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule)
        def begin(server: Server, wait: Callable[[], Awaitable[Any]], slot: Any, **kwargs: bool) -> None:
            _, line, effect = request = self._request()
            # From another node to the controller they are decided as they come.
            line.late = effect.key in BY_ANSWER and slot.conn.listener != server._config.inter_broker_listener

            async def noted() -> Any:
                answer = await wait()
                self._took_effect(*request)
                return answer

            rule(server, noted if line.late else wait, slot, **kwargs)

        return begin

    def _effective(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(rule)
        def call(*args: Any, **kwargs: Any) -> Any:
            request = self._now.get()
            if request is None:
                return rule(*args, **kwargs)
            self._took_effect(*request)
            # Tasks that the call starts have its context: what they do later, for other requests too, is no effect.
            before = self._now.set(None)
            try:
                return rule(*args, **kwargs)
            finally:
                self._now.reset(before)

        return call
