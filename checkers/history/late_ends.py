"""Which requests for the end of a transaction may arrive while a later transaction is under way.

A client that gets no answer to an EndTxn within its request time-out asks again. The first request may reach the
coordinator after the second one. If the producer then writes its next transaction with the same epoch (V1), the
coordinator takes the request for one to end that transaction: KAFKA-17754.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from checkers.history.tables import Process

UNKNOWN = -1
"""An epoch that nobody told: it may be any."""


class LateEnds:
    """Follows each process's transactions in their order."""

    def __init__(self) -> None:
        self._asked_twice: dict[int, list[tuple[int, int]]] = {}
        """Process -> (epoch, how it was to end) of each transaction whose end was asked for twice."""

    def ended(self, process: Process, epoch: int, how: int, asked: int, answered: int) -> None:
        """A transaction of this process is over. `asked`, `answered`: ns, as `Txn.te` and `Txn.t1`."""
        timeout_ns = process.request_timeout_ns
        if asked >= 0 and timeout_ns and (answered < 0 or answered - asked >= timeout_ns):
            self._asked_twice.setdefault(process.proc, []).append((epoch, how))

    def before(self, proc: int, epoch: int) -> AbstractSet[int]:
        """How transactions of this process and epoch were to end whose EndTxn may arrive from now on."""
        told = self._asked_twice.get(proc, ())
        return {how for other, how in told if UNKNOWN in (other, epoch) or other == epoch}
