"""Transactions that are visible in part or not at all, and the nearest that are whole."""

from __future__ import annotations

from squall.checkers.history.tables import INFO
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder, transacted
from tests.support.histories.case import Cases
from tests.support.histories.late_ends import REQUEST_TIMEOUT_MS, Second, in_a_row

CASES = Cases()
SKIPPED = ("poll-skip", "")
"""A reader at read_committed that is moved over a committed record, and gets none, misses it as well."""
test_the_reference = CASES.test()


@CASES.case("one of two records of a committed transaction is not visible", ("torn-txn", ""))
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2)
    h.final([(0, one), (1, two)], end=3)
    h.final([(0, one)], end=3, position=3, isolation=1)
    return h


@CASES.case("a record of unknown offset of a committed transaction may be among those that were deleted by request")
def _() -> HistoryBuilder:
    h, (_, two) = transacted(sends=2)
    h.sends[0].off = -1
    h.operation(h.process("admin"), "admin", what="delete_records", part=0, to=1)
    h.final([(1, two)], at=1, log_start=1, end=3, position=3)
    h.final([(1, two)], at=1, log_start=1, end=3, position=3, isolation=1)
    return h


@CASES.case("a transaction of unknown end is visible in one partition and not in the other", ("torn-txn", ""))
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2, parts=2, st=INFO)
    h.final([(0, one)], end=2)
    h.final([(0, two)], part=1, end=2)
    h.final([(0, one)], end=2, isolation=1)
    h.final([], part=1, end=2, position=2, isolation=1)
    return h


@CASES.case("a transaction of unknown end is visible in no partition")
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2, parts=2, st=INFO)
    h.final([(0, one)], end=2)
    h.final([(0, two)], part=1, end=2)
    h.final([], end=2, position=2, isolation=1)
    h.final([], part=1, end=2, position=2, isolation=1)
    return h


@CASES.case("a transaction of unknown end is still open where the last stable offset has not passed it")
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2, parts=2, st=INFO)
    h.final([(0, one)], end=2)
    h.final([(0, two)], part=1, end=2)
    h.final([(0, one)], end=2, isolation=1)
    h.final([], part=1, end=0, position=0, isolation=1)
    return h


@CASES.case("a committed transaction of which nothing is visible", ("lost-txn", ""), SKIPPED)
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2)
    h.final([(0, one), (1, two)], end=3)
    h.final([], end=3, position=3, isolation=1)
    return h


@CASES.case("a committed transaction that a reader of the final read has not come to")
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2)
    h.final([(0, one), (1, two)], end=3)
    h.poll(h.final_reader(1, 1), [], at=0, f="final_read", position=0)
    return h


@CASES.case("a committed transaction that is visible as a whole")
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2)
    h.final([(0, one), (1, two)], end=3)
    h.final([(0, one), (1, two)], end=3, isolation=1)
    return h


@CASES.case("an aborted transaction of which nothing is visible, and whose records were never final")
def _() -> HistoryBuilder:
    h, (one, two) = transacted(sends=2, end="abort")
    h.final([], end=3, position=3)
    h.final([], end=3, position=3, isolation=1)
    return h


HALF = Second("commit", visible=(False, True))
NONE = Second("commit", visible=(False, False))


@CASES.case("an abort asked for twice may take the first half of the next one of its epoch", ("torn-txn", "late end"))
def _() -> HistoryBuilder:
    return in_a_row("abort", HALF)


@CASES.case("an abort asked for twice may take all of the next transaction of its epoch", ("lost-txn", "late end"))
def _() -> HistoryBuilder:
    return in_a_row("abort", NONE)


@CASES.case("an abort that was answered in time takes nothing of the next transaction", ("torn-txn", ""), SKIPPED)
def _() -> HistoryBuilder:
    return in_a_row("abort", HALF, waits_ms=REQUEST_TIMEOUT_MS - 1)


@CASES.case("an abort asked for twice takes nothing of the next epoch", ("torn-txn", ""), SKIPPED)
def _() -> HistoryBuilder:
    return in_a_row("abort", HALF, epoch=1)


@CASES.case("a commit asked for twice makes no transaction vanish", ("lost-txn", ""), SKIPPED)
def _() -> HistoryBuilder:
    return in_a_row("commit", NONE)


def _once_seen(*, isolation: int) -> HistoryBuilder:
    """A transaction of unknown end: a poll showed one of its records, and the final reads show none."""
    h, (one, two) = transacted(sends=2, st=INFO)
    h.poll(h.reader(isolation=isolation), [(0, one)])
    h.final([(0, one), (1, two)], end=3)
    h.final([], end=3, position=3, isolation=1)
    return h


@CASES.case(
    "a transaction of unknown end of which a read_committed reader got a record vanishes", ("lost-txn", ""), SKIPPED
)
def _() -> HistoryBuilder:
    return _once_seen(isolation=1)


@CASES.case("a transaction of unknown end of which a read_uncommitted reader got a record was aborted")
def _() -> HistoryBuilder:
    return _once_seen(isolation=0)


@CASES.case("in a compacted partition a record of a transaction may go when its key has a later one")
def _() -> HistoryBuilder:
    h = HistoryBuilder(cleanup="compact")
    p = h.producer()
    txn = h.begin(p)
    one, two = (h.ok(h.send(p, key="k", txn=txn), off).val for off in range(2))
    h.end(txn, "commit")
    h.final([(0, one), (1, two)], end=3)
    h.final([(1, two)], end=3, position=3, isolation=1)
    return h


@CASES.plant("torn-txn")
def _(history: GeneratedHistory) -> None:
    h, (one, two) = transacted(sends=2)
    h.final([(0, one), (1, two)], end=3)
    h.final([(0, one)], end=3, position=3, isolation=1)
    history.take_in(h)


@CASES.plant("lost-txn")
def _(history: GeneratedHistory) -> None:
    h, (one, two) = transacted(sends=2)
    h.final([(0, one), (1, two)], end=3)
    h.final([], end=3, position=3, isolation=1)
    history.take_in(h)
