"""Records in another order than they were handed over in, and the nearest in order."""

from __future__ import annotations

from checkers.history.tables import OK
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.spoilers import acked, same_stream, swap

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("one producer's records in the wrong order are reordered", ("send-reorder", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.send(p), h.send(p)
    h.ok(second, 0)
    h.ok(first, 1)
    h.final([(0, second.val), (1, first.val)])
    return h


@CASES.case("two producers' records have no order between them")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    first, second = h.send(h.producer()), h.send(h.producer())
    h.ok(second, 0)
    h.ok(first, 1)
    h.final([(0, second.val), (1, first.val)])
    return h


@CASES.case("acknowledged offsets in the wrong order are reordered by acknowledgements", ("send-reorder", "acks"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.send(p), h.send(p)
    h.ok(second, 0)
    h.ok(first, 1)
    return h


@CASES.case("a record in two places is in order if the first one is")
def _() -> HistoryBuilder:
    h = HistoryBuilder(2)
    p = h.producer()
    # Other partitions do not count either.
    first, second = h.sent(p, 5), h.sent(p, 0, part=1)
    h.final([(5, first)])
    h.final([(0, second)], part=1)
    return h


@CASES.case(
    "where the log has lost its beginning, copies of two that were sent again together are in order",
    ("duplicate", "final"),
)
def _() -> HistoryBuilder:
    h, first, second = both_again()
    h.final([(3, second), (5, first), (6, second)], at=3, log_start=3)
    return h


@CASES.case(
    "where the log has its beginning, the first copies count", ("send-reorder", "final"), ("duplicate", "final")
)
def _() -> HistoryBuilder:
    h, first, second = both_again()
    h.final([(3, second), (5, first), (6, second)])
    return h


@CASES.case("where the log has lost its beginning, one place each is an order", ("send-reorder", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer()
    first, second = h.send(p), h.send(p)
    h.ok(second, 3)
    h.ok(first, 5)
    h.final([(3, second.val), (5, first.val)], at=3, log_start=3)
    return h


def both_again() -> tuple[HistoryBuilder, int, int]:
    """Two records in one request, whose answer was lost: both stand twice, the first one at an offset below the other's
    first place that nobody read, and both are acknowledged where their copies are.
    """
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer(idempotence=False)
    first, second = h.send(p), h.send(p)
    h.ok(first, 5)
    h.ok(second, 6)
    return h, first.val, second.val


@CASES.plant("send-reorder")
def _(history: GeneratedHistory) -> None:
    send = acked(history)
    later = next(each for each in history.sends if each.t0 > send.t0 and same_stream(each, send) and each.st == OK)
    send.off, later.off = later.off, send.off
    swap(history, send.val, later.val)
