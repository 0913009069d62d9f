"""A request that has appended, and whose answer waits for high watermarks or flushes (R7, R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.purgatory import give_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.net.connection import PendingResponse
    from squall.broker.net.deadlines import Timers
    from squall.broker.replicas.purgatory import DelayedProduce

_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)
R = TypeVar("R", contravariant=True)


class ResponseWriter(Protocol[R]):
    """The handlers of the request's API."""

    timers: Timers

    def reply(self, slot: PendingResponse, results: R) -> None:
        """Send the answer."""


class DelayedProduceResponse(Generic[R]):
    """The answer of one request. Each of its partitions settles once; the last one sends the answer."""

    __slots__ = ("_api", "_owed", "_parked", "_results", "_slot", "bucket")

    def __init__(
        self, api: ResponseWriter[R], slot: PendingResponse, results: R, parked: Sequence[DelayedProduce]
    ) -> None:
        self._api, self._slot, self._results, self._parked = api, slot, results, parked
        self._owed = len(parked)
        """How many partitions are still waited for."""
        self.bucket = -1

    def is_over(self) -> bool:
        """Return whether the response has been sent or is no longer wanted."""
        return not self._owed

    def settled(self) -> None:
        """One partition has its answer; the last one sends the reply."""
        self._owed -= 1
        if not self._owed:
            self._api.timers.remove(self)
            self._api.reply(self._slot, self._results)

    def expire(self) -> None:
        """The time-out has passed: a producer's, or request.timeout.ms of a coordinator, which asks again. What is not
        acknowledged by now may or may not be replicated later.
        """
        if not self._owed:
            return
        self._owed = 0
        for append in give_up(self._parked):
            append.result.refuse(_TIMED_OUT)
        self._api.reply(self._slot, self._results)

    def abandon(self) -> None:
        """The connection has ended: nobody waits for this answer any more. What was appended stays in the log."""
        if self._owed:
            self._owed = 0
            self._api.timers.remove(self)
            give_up(self._parked)


class PiecewiseProduceResponse(DelayedProduceResponse[R]):
    """The answer of a request that appends in turns. `settled` is to be called once more after the last turn."""

    __slots__ = ("_growing",)

    def __init__(self, api: ResponseWriter[R], slot: PendingResponse, results: R) -> None:
        self._growing: list[DelayedProduce] = []
        super().__init__(api, slot, results, self._growing)
        self._owed = 1

    def wait_for(self, append: DelayedProduce) -> None:
        """One more partition is waited for, from the moment of its append on."""
        self._owed += 1
        self._growing.append(append)
        append.queue.add(append, self)
