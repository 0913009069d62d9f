"""Records of transactions that did not commit, read as committed, and the nearest that may be."""

from __future__ import annotations

from squall.checkers.history.tables import FAIL, INFO
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder, transacted
from tests.support.histories.case import Cases
from tests.support.histories.late_ends import REQUEST_TIMEOUT_MS, Second, in_a_row

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a final read_committed read shows a record of an aborted transaction", ("G1a", "final"))
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="abort")
    h.final([(0, val)], end=2)
    h.final([(0, val)], end=2, isolation=1)
    return h


@CASES.case("a read_committed poll shows a record of an aborted transaction", ("G1a", "reads"))
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="abort")
    h.poll(h.reader(isolation=1), [(0, val)])
    h.final([(0, val)], end=2)
    h.final([], end=2, isolation=1)
    return h


@CASES.case("a client that never asked for a commit has no committed records", ("G1a", "final"))
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="")
    h.final([(0, val)], end=2)
    h.final([(0, val)], end=2, isolation=1)
    return h


@CASES.case("a commit that definitely failed makes nothing visible", ("G1a", "final"))
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="commit", st=FAIL)
    h.final([(0, val)], end=2)
    h.final([(0, val)], end=2, isolation=1)
    return h


@CASES.case("a read_uncommitted reader may be given records of an aborted transaction")
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="abort")
    h.poll(h.reader(), [(0, val)])
    h.final([(0, val)], end=2)
    h.final([], end=2, isolation=1)
    return h


@CASES.case("a commit whose answer never came may have made its records visible")
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="commit", st=INFO)
    h.final([(0, val)], end=2)
    h.final([(0, val)], end=2, isolation=1)
    return h


@CASES.case("a commit whose answer never came may have made nothing visible")
def _() -> HistoryBuilder:
    h, (val,) = transacted(end="commit", st=INFO)
    h.final([(0, val)], end=2)
    h.final([], end=2, isolation=1)
    return h


HALF = Second("abort", visible=(True, False))


@CASES.case("a commit asked for twice may commit the first half of the next one of its epoch", ("G1a", "late end"))
def _() -> HistoryBuilder:
    return in_a_row("commit", HALF)


@CASES.case("a commit that was answered in time commits nothing of the next transaction", ("G1a", "final"))
def _() -> HistoryBuilder:
    return in_a_row("commit", HALF, waits_ms=REQUEST_TIMEOUT_MS - 1)


@CASES.case("a commit asked for twice commits nothing of the next epoch", ("G1a", "final"))
def _() -> HistoryBuilder:
    return in_a_row("commit", HALF, epoch=1)


@CASES.case("an abort asked for twice commits nothing of the next transaction", ("G1a", "final"))
def _() -> HistoryBuilder:
    return in_a_row("abort", HALF)


@CASES.plant("G1a")
def _(history: GeneratedHistory) -> None:
    other, (val,) = transacted(end="abort")
    other.final([(0, val)], end=2)
    other.final([(0, val)], end=2, isolation=1)
    history.take_in(other)
