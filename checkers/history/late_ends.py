"""Finds EndTxn requests that may arrive while a later transaction is under way.

A client that gets no answer to an EndTxn, because its request time-out passes or its connection breaks, asks again. The
first request may reach the coordinator after the second one. If the producer then writes its next transaction with the
same epoch (V1), the coordinator takes the request for one to end that transaction: KAFKA-17754.

Our own client reports how many of its requests were never answered. A library does not: of its transactions those count
whose end took the whole request time-out.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from squall.checkers.history.tables import ClientProcess

UNKNOWN = -1
"""An epoch that nobody told: it may be any. Or a number of requests that nobody told."""


class LateEndTxnTracker:
    """Follows each process's transactions in their order."""

    def __init__(self) -> None:
        self._asked_twice: dict[int, list[tuple[int, int]]] = {}
        """Process -> (epoch, how it was to end) of each transaction of whose EndTxn requests one was not answered."""

    def ended(self, process: ClientProcess, epoch: int, how: int, times: tuple[int, int], unanswered: int) -> None:
        """A transaction of this process is over. `times`: when its end was asked for and answered, ns, as `Txn.te` and
        `Txn.t1`. `unanswered`: requests for it that were sent and never answered.
        """
        asked, answered = times
        timeout_ns = process.request_timeout_ns
        slow = asked >= 0 and timeout_ns > 0 and (answered < 0 or answered - asked >= timeout_ns)
        if slow if unanswered == UNKNOWN else unanswered > 0:
            self._asked_twice.setdefault(process.proc, []).append((epoch, how))

    def before(self, proc: int, epoch: int) -> AbstractSet[int]:
        """Return the results (commit, abort) that EndTxn requests of this process and epoch ask for that may arrive
        from now on.
        """
        told = self._asked_twice.get(proc, ())
        return {how for other, how in told if UNKNOWN in (other, epoch) or other == epoch}
