"""Defines the invariants of a transaction's time-out, and of the aborted transactions in fetch responses.

The time for which a transaction has been open follows from the records in its coordinator's log, and not from the
coordinator's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Final, NamedTuple

from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant
from squall.chaos.runtimes.sim.invariants.transaction_journal import PREPARED, TransactionChange, TransactionRecord

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.log_replay import CompletedTxn

ONGOING: Final = 1
"""Is the state of an open transaction, by its number in Kafka's log."""
MARGIN_MS: Final = 2_000
"""Is a tolerance in ms. A coordinator checks for time-outs periodically. It may end a transaction this much later than
its second check after the transaction's time-out, because it must append a record, and may have to retry that.
"""


class OverdueTransaction(NamedTuple):
    """Describes a transaction that is still open although its time-out has passed. Times are in ms."""

    transactional_id: str
    timeout_ms: int
    open_ms: int
    """Is the time for which the transaction has been open, by the coordinator's wall clock."""
    overdue_ms: int
    """Is the time for which the transaction has been observed past its time-out while the coordinator could have ended
    it.
    """
    interval_ms: int
    """Is the interval at which the coordinator checks for timed-out transactions:
    transaction.abort.timed.out.transaction.cleanup.interval.ms.
    """


class TimedOutAbort(NamedTuple):
    """Describes a coordinator's decision to abort a transaction because of its time-out. Times in ms."""

    transactional_id: str
    timeout_ms: int
    open_ms: int
    """Is the time for which the transaction has been open, by the coordinator's wall clock."""


class ReadCommittedAnswer(NamedTuple):
    """Describes one partition of a read_committed Fetch response that has records."""

    offset: int
    end: int
    """Is the exclusive end offset of the response's records."""
    listed: Set[tuple[int, int]]
    """Holds (producer id, first offset) of the aborted transactions that the response lists."""
    aborted: tuple[CompletedTxn, ...]
    """Lists the aborted transactions with data among the records."""


@invariant("open-transaction-keeps-its-start", CheckTrigger.TXN_STEP, "KIP-98: the time-out counts from the start")
def open_transaction_keeps_its_start(step: TransactionChange) -> str | None:
    """A transaction starts at the time of its first record, and all its records up to the decision to commit or abort
    have that start time.
    """
    before, after = step.before, step.after
    if before is None or after is None or after.state not in (ONGOING, *PREPARED):
        return None
    if before.state == ONGOING:
        began_ms, record = before.started_ms, "next"
    elif after.state == ONGOING:
        began_ms, record = after.updated_ms, "first"
    else:
        return None
    if after.started_ms == began_ms:
        return None
    return f"{step.transactional_id} began at {began_ms} ms, and by its {record} record at {after.started_ms} ms"


@invariant("transaction-times-out", CheckTrigger.TXN_TIMES, "KIP-98: transaction.timeout.ms")
def transaction_times_out(found: OverdueTransaction) -> str | None:
    """If a transaction exceeds its time-out, its coordinator ends it within the next two checks for time-outs. (The
    count of checks begins again if the coordinator did not serve, or could not write to its log.)
    """
    if found.overdue_ms <= 2 * found.interval_ms + MARGIN_MS:
        return None
    return (
        f"{found.transactional_id} has been open for {found.open_ms} ms, its time-out is {found.timeout_ms} ms; its "
        f"coordinator looks every {found.interval_ms} ms"
    )


@invariant("aborted-after-its-timeout", CheckTrigger.TIMED_OUT, "KIP-98: transaction.timeout.ms")
def aborted_after_its_timeout(found: TimedOutAbort) -> str | None:
    """A coordinator aborts a transaction by its own decision only if the transaction has been open for longer than its
    time-out.
    """
    if found.open_ms > found.timeout_ms:
        return None
    return f"{found.transactional_id} was aborted after {found.open_ms} ms, its time-out is {found.timeout_ms} ms"


@invariant("aborted-are-listed", CheckTrigger.FETCHED, "KIP-98: AbortedTransactions of a Fetch response")
def aborted_are_listed(answer: ReadCommittedAnswer) -> str | None:
    """Each read_committed Fetch response lists every aborted transaction that has data among its records."""
    for each in answer.aborted:
        if (each.producer_id, each.first) not in answer.listed:
            return (
                f"records {answer.offset} to {answer.end - 1} hold data of producer id {each.producer_id}, whose "
                f"transaction from {each.first} on was aborted at {each.last}, and the response does not list it"
            )
    return None


class OverdueTransactionTracker:
    """Records since when each open transaction of one partition of __transaction_state has been observed past its
    time-out.
    """

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[tuple[str, int, int, int], int] = {}
        """Maps (transactional id, producer id, epoch, start) to the time, in ms of the coordinator's monotonic clock,
        at which the transaction was first seen overdue.
        """

    def forgive(self) -> None:
        """Restart all times now, because the coordinator could not end transactions: it could not write to its log, or
        was not running.
        """
        self._since.clear()

    def look(
        self, entries: Mapping[str, TransactionRecord], wall_ms: int, now_ms: int, interval_ms: int
    ) -> Iterator[OverdueTransaction]:
        """Yield the transactions that are past their time-out now. `wall_ms` and `now_ms` are the coordinator's wall
        clock and monotonic clock.
        """
        before, self._since = self._since, {}
        for name, entry in entries.items():
            open_ms = wall_ms - entry.started_ms
            if entry.state == ONGOING and open_ms > entry.timeout_ms:
                key = name, entry.producer_id, entry.epoch, entry.started_ms
                since = self._since[key] = before.get(key, now_ms)
                yield OverdueTransaction(name, entry.timeout_ms, open_ms, now_ms - since, interval_ms)
