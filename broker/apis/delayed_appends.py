"""Delays the response to an append until high watermarks or flushes allow it (mechanisms R7 and R8 in
docs/mechanisms.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.purgatory import give_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from squall.broker.net.connection import PendingResponse
    from squall.broker.net.deadlines import ParkedRequestTimers
    from squall.broker.replicas.purgatory import DelayedProduce

_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)
R = TypeVar("R", contravariant=True)


class ResponseWriter(Protocol[R]):
    """Encodes and sends the response of an API that appends (Produce, WriteTxnMarkers)."""

    timers: ParkedRequestTimers

    def reply(self, slot: PendingResponse, results: R) -> None:
        """Encode the results of all partitions and send the response."""


class DelayedProduceResponse(Generic[R]):
    """Waits for the appends of one request, and sends the response once each append is acknowledged or has failed."""

    __slots__ = ("_api", "_owed", "_parked", "_results", "_slot", "bucket")

    def __init__(
        self, api: ResponseWriter[R], slot: PendingResponse, results: R, parked: Sequence[DelayedProduce]
    ) -> None:
        self._api, self._slot, self._results, self._parked = api, slot, results, parked
        self._owed = len(parked)
        """Counts the partitions whose append is not yet acknowledged."""
        self.bucket = -1

    def is_over(self) -> bool:
        """Return whether the response has been sent or is no longer wanted."""
        return not self._owed

    def settled(self) -> None:
        """Count one append as acknowledged or failed, and send the response if it was the last."""
        self._owed -= 1
        if not self._owed:
            self._api.timers.remove(self)
            self._api.reply(self._slot, self._results)

    def expire(self) -> None:
        """Answer REQUEST_TIMED_OUT for the partitions whose append is not acknowledged. Their records may still be
        replicated later. A Produce request expires after its own time-out, WriteTxnMarkers after request.timeout.ms; a
        coordinator then sends the markers again.
        """
        if not self._owed:
            return
        self._owed = 0
        for append in give_up(self._parked):
            append.result.refuse(_TIMED_OUT)
        self._api.reply(self._slot, self._results)

    def abandon(self) -> None:
        """Stop waiting, because the connection has ended. The appended records stay in the log."""
        if self._owed:
            self._owed = 0
            self._api.timers.remove(self)
            give_up(self._parked)


class PiecewiseProduceResponse(DelayedProduceResponse[R]):
    """Waits for appends that are made in several pieces: `wait_for` adds one. The caller must call `settled` one more
    time after the last piece. The response is not sent before that, even if all appends so far are acknowledged.
    """

    __slots__ = ("_growing",)

    def __init__(self, api: ResponseWriter[R], slot: PendingResponse, results: R) -> None:
        self._growing: list[DelayedProduce] = []
        super().__init__(api, slot, results, self._growing)
        self._owed = 1

    def wait_for(self, append: DelayedProduce) -> None:
        """Make the response wait for one more append, which has just been made."""
        self._owed += 1
        self._growing.append(append)
        append.queue.add(append, self)
