"""Test cases for the invariants of transactions: each has a situation that breaks one, and the nearest situation that
does not.
"""

from __future__ import annotations

from typing import Any

from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity
from squall.chaos.runtimes.sim.invariants.headers import TxnMarkerBatch
from squall.chaos.runtimes.sim.invariants.log_replay import CompletedTxn, ProducerReplay, ReplayedBatch, WrittenMarker
from squall.chaos.runtimes.sim.invariants.transaction_journal import (
    COMPLETE_COMMIT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionChange,
    TransactionRecord,
)
from squall.chaos.runtimes.sim.invariants.transactions import LogProducerState, OpenTransaction, PreparedTransaction
from squall.chaos.runtimes.sim.invariants.txn_times import (
    MARGIN_MS,
    OverdueTransaction,
    ReadCommittedAnswer,
    TimedOutAbort,
)
from tests.support.clusters.known_partitions import known, one, view
from tests.support.clusters.quorum_cases import Arguments, Case

TRANSACTIONAL, CONTROL = 0x10, 0x30
SENDER = ProducerReplay(4, 7, (ReplayedBatch(5, 5, 20, 20), ReplayedBatch(6, 6, 21, 21)), 2, 21)
"""The state of producer 9: two batches of epoch 4, the second one in a transaction that is still open."""


def data(base: int, sequence: int, epoch: int = 4, *, transactional: bool = True) -> BatchIdentity:
    """Return a data batch of producer 9."""
    attributes = TRANSACTIONAL if transactional else 0
    return one(base, attributes=attributes, producer_id=9, producer_epoch=epoch, sequence=sequence)


def mark(base: int, epoch: int = 4, *, commit: bool = False, coordinator: int = 2) -> BatchIdentity:
    """Return a transaction marker of producer 9."""
    marker = TxnMarkerBatch(commit, coordinator)
    return one(base, attributes=CONTROL, producer_id=9, producer_epoch=epoch, marker=marker)


def memory(
    sender: ProducerReplay | None = SENDER, *, aborted: tuple[CompletedTxn, ...] = (), start: int = 0
) -> LogProducerState:
    opened = ((sender.first, 9),) if sender is not None and sender.first >= 0 else ()
    return LogProducerState({9: sender}, opened, aborted, start)


def states(found: ProducerReplay | None, wanted: ProducerReplay | None = SENDER, start: int = 0) -> Arguments:
    return memory(found), memory(wanted, start=start)


def index(*found: CompletedTxn, wanted: tuple[CompletedTxn, ...] = (), start: int = 0) -> Arguments:
    return memory(aborted=found), memory(aborted=wanted, start=start)


def came(batch: BatchIdentity, before: ProducerReplay | None, *decided: PreparedTransaction) -> Arguments:
    return WrittenMarker(batch, before), decided


def entry(state: int = PREPARE_COMMIT, epoch: int = 4, *, version: int = 0, **more: Any) -> TransactionRecord:
    fields = TransactionRecord(9, epoch, 4000, state, (("t", 0), ("t", 1)), 100, 200, (9, -1, version))
    return fields._replace(**more)


def decided(state: int = PREPARE_COMMIT, epoch: int = 4, **more: Any) -> PreparedTransaction:
    return PreparedTransaction("x", entry(state, epoch, **more))


def stable(lso: int, *batches: BatchIdentity, hw: int = 3, committed: int = 0) -> Arguments:
    about = known(tuple(one(n) for n in range(committed)), copies={1: batches})
    return None, view(hw=hw, leo=len(batches), lso=lso), about


def marked_at(index: int, *decisions: PreparedTransaction, commit: bool = False) -> Arguments:
    return WrittenMarker(mark(30, commit=commit), SENDER), ("t", index), decisions


def complete(sender: ProducerReplay | None) -> Arguments:
    return decided(), {("t", 0): RESTED, ("t", 1): sender}


def opened(*others: OpenTransaction) -> Arguments:
    return OpenTransaction(9, 4), {("t", number): owner for number, owner in enumerate(others)}


def shards(found: TransactionRecord | None, wanted: TransactionRecord | None) -> Arguments:
    return {"x": found}, {"x": wanted}


OLD, GONE = CompletedTxn(9, 3, 8, 9), CompletedTxn(9, 20, 25, 26)
RESTED = SENDER._replace(first=-1)
BEGUN, MARKED = (data(0, 0), data(1, 1), data(2, 2)), (data(0, 0), mark(1), data(2, 1))

OPEN = TransactionRecord(9, 0, 1_000, 1, (), 5_000, 5_000, None)


def step(started_ms: int, state: int = 1) -> Arguments:
    return (TransactionChange("t", OPEN, OPEN._replace(started_ms=started_ms, state=state)),)


def begun(started_ms: int) -> Arguments:
    """The first record of a transaction, written at 5,000 ms."""
    rested = OPEN._replace(state=COMPLETE_COMMIT)
    return (TransactionChange("t", rested, OPEN._replace(started_ms=started_ms, updated_ms=5_000)),)


def overdue(for_ms: int) -> Arguments:
    return (OverdueTransaction("t", 1_000, 9_000, for_ms, 500),)


def timed_out(open_ms: int) -> Arguments:
    return (TimedOutAbort("t", 1_000, open_ms),)


def answer(*listed: tuple[int, int]) -> Arguments:
    return (ReadCommittedAnswer(0, 9, frozenset(listed), (CompletedTxn(7, 2, 5, 6),)),)


TXNS: dict[str, list[Case]] = {
    "open-transaction-keeps-its-start": [
        ("a partition later", step(5_001), step(5_000)),
        ("as it is decided", step(5_001, PREPARE_COMMIT), step(5_001, COMPLETE_COMMIT)),
        ("an earlier transaction's", begun(4_999), begun(5_000)),
    ],
    "transaction-times-out": [("one ms beyond the limit", overdue(1_001 + MARGIN_MS), overdue(1_000 + MARGIN_MS))],
    "aborted-after-its-timeout": [("one ms too early", timed_out(1_000), timed_out(1_001))],
    "aborted-are-listed": [("none", answer(), answer((7, 2))), ("another", answer((7, 3)), answer((8, 1), (7, 2)))],
    "producer-state-is-a-replay": [
        ("a newer epoch", states(SENDER._replace(epoch=5)), states(SENDER)),
        ("the next sequence", states(SENDER._replace(expected=6)), states(SENDER)),
        ("the coordinator's epoch", states(SENDER._replace(coordinator_epoch=-1)), states(SENDER)),
        ("a transaction that is not open", states(RESTED), states(RESTED, RESTED)),
        ("forgotten", states(None), states(None, None)),
        ("invented", states(RESTED, None), states(RESTED, None, start=10)),
        ("the newest batch", states(SENDER._replace(window=SENDER.window[:1])), states(SENDER)),
        ("all batches", states(SENDER._replace(window=())), states(SENDER._replace(window=SENDER.window[1:]))),
        (
            "a transaction from before the start",
            states(SENDER._replace(first=3)),
            states(SENDER._replace(first=3), start=10),
        ),
        (
            "the order of what is open",
            (LogProducerState({}, ((5, 8), (3, 9)), ()), LogProducerState({}, ((3, 9), (5, 8)), ())),
            (LogProducerState({}, ((3, 9), (5, 8)), ()), LogProducerState({}, ((3, 9), (5, 8)), ())),
        ),
    ],
    "aborted-index-is-a-replay": [
        ("an entry is missing", index(wanted=(GONE,)), index(GONE, wanted=(GONE,))),
        ("an entry too many", index(GONE, GONE, wanted=(GONE,)), index(OLD, GONE, wanted=(OLD, GONE))),
        ("the first offset", index(GONE._replace(first=21), wanted=(GONE,)), index(GONE, wanted=(GONE,))),
        ("the stable offset", index(GONE._replace(stable=20), wanted=(GONE,)), index(GONE, wanted=(GONE,))),
        ("of deleted batches", index(OLD, GONE, wanted=(GONE,)), index(OLD, GONE, wanted=(GONE,), start=10)),
        ("missing behind the start", index(OLD, wanted=(GONE,), start=10), index(OLD, GONE, wanted=(GONE,), start=10)),
    ],
    "stable-offset-is-a-replay": [
        ("an open transaction", stable(3, *BEGUN), stable(0, *BEGUN)),
        ("held back for nothing", stable(1, one(0), one(1), one(2)), stable(3, one(0), one(1), one(2))),
        ("a marker that is not committed", stable(1, *MARKED[:2], hw=1), stable(0, *MARKED[:2], hw=1)),
        (
            "a marker that was committed when another one led",
            stable(1, *MARKED[:2], hw=1, committed=1),
            stable(1, *MARKED[:2], hw=1, committed=2),
        ),
        ("the second transaction", stable(3, *MARKED), stable(2, *MARKED)),
    ],
    "marker-epochs": [
        ("of the producer", came(mark(30, 3), SENDER), came(mark(30, 4), SENDER)),
        ("of the coordinator", came(mark(30, coordinator=1), SENDER), came(mark(30, coordinator=2), SENDER)),
        ("of an unknown producer", came(mark(30, 3), SENDER), came(mark(30, 3), None)),
    ],
    "marker-once": [
        ("nothing is open", came(mark(30), RESTED), came(mark(30), SENDER)),
        ("of a later coordinator", came(mark(30), RESTED), came(mark(30, coordinator=3), RESTED)),
        (
            "of a later coordinator, where each transaction has its epoch",
            came(mark(30, coordinator=3), RESTED, decided(version=2)),
            came(mark(30, coordinator=3), RESTED, decided(version=2), decided()),
        ),
        ("of the next epoch", came(mark(30), RESTED), came(mark(30, 5), RESTED)),
        ("before any other", came(mark(30), RESTED), came(mark(30), RESTED._replace(coordinator_epoch=-1))),
    ],
    "marker-is-decided": [
        ("nothing is", marked_at(0), marked_at(0, decided(PREPARE_ABORT))),
        ("the contrary", marked_at(0, decided(PREPARE_COMMIT)), marked_at(0, decided(PREPARE_COMMIT), commit=True)),
        ("elsewhere", marked_at(2, decided(PREPARE_ABORT)), marked_at(1, decided(PREPARE_ABORT))),
    ],
    "completed-is-marked": [
        ("no marker", complete(None), complete(RESTED)),
        ("still open", complete(SENDER), complete(RESTED)),
        ("data only", complete(RESTED._replace(coordinator_epoch=-1)), complete(RESTED)),
        ("an older marker", complete(RESTED._replace(epoch=3)), complete(RESTED._replace(epoch=5))),
        ("open, of an older epoch", complete(SENDER._replace(epoch=3)), complete(SENDER._replace(epoch=5))),
    ],
    "one-transaction-per-id": [
        ("an older epoch", opened(OpenTransaction(9, 3)), opened(OpenTransaction(9, 4))),
        ("another producer id", opened(OpenTransaction(8, 4)), opened()),
    ],
    "coordinator-state-is-a-replay": [
        ("another state", shards(entry(), entry(COMPLETE_COMMIT)), shards(entry(), entry())),
        ("forgotten", shards(None, entry()), shards(None, None)),
        ("invented", shards(entry(), None), shards(entry(), entry())),
        ("a partition less", shards(entry(places=(("t", 0),)), entry()), shards(entry(), entry())),
        ("the generation", shards(entry(version=2), entry()), shards(entry(version=2), entry(tagged=None))),
    ],
}
