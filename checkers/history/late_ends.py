"""Finds EndTxn requests that may arrive while a later transaction is under way.

A client that gets no response to an EndTxn, because its request time-out passes or its connection breaks, sends the
request again. The first request may reach the coordinator after the second one. If the producer then writes its next
transaction with the same epoch (V1), the coordinator applies the late request to that transaction: KAFKA-17754.

Our own client reports how many of its requests were never answered. Client libraries do not. For them, a request counts
as unanswered if the end of the transaction took at least the request time-out.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from squall.checkers.history.tables import ClientProcess

UNKNOWN = -1
"""Means that an epoch, or a number of requests, is not known; an unknown epoch may be any epoch."""


class LateEndTxnTracker:
    """Follows the transactions of each process in their order, to find EndTxn requests that may arrive during a later
    transaction.
    """

    def __init__(self) -> None:
        self._asked_twice: dict[int, list[tuple[int, int]]] = {}
        """Maps each process to (epoch, requested end) of each transaction with an unanswered EndTxn request."""

    def ended(self, process: ClientProcess, epoch: int, how: int, times: tuple[int, int], unanswered: int) -> None:
        """Record that a transaction of this process is over. `how` is the end that its client requested, as `Txn.how`.
        `times` are when the end was requested and answered, in ns, as `Txn.te` and `Txn.t1`. `unanswered` is the number
        of requests for the end that were never answered.
        """
        asked, answered = times
        timeout_ns = process.request_timeout_ns
        slow = asked >= 0 and timeout_ns > 0 and (answered < 0 or answered - asked >= timeout_ns)
        if slow if unanswered == UNKNOWN else unanswered > 0:
            self._asked_twice.setdefault(process.proc, []).append((epoch, how))

    def before(self, proc: int, epoch: int) -> AbstractSet[int]:
        """Return the ends (commit, abort) for which this process, with this epoch, has sent EndTxn requests that may
        still arrive.
        """
        reported = self._asked_twice.get(proc, ())
        return {how for other, how in reported if UNKNOWN in (other, epoch) or other == epoch}
