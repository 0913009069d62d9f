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


@CASES.plant("send-reorder")
def _(history: GeneratedHistory) -> None:
    send = acked(history)
    later = next(each for each in history.sends if each.t0 > send.t0 and same_stream(each, send) and each.st == OK)
    send.off, later.off = later.off, send.off
    swap(history, send.val, later.val)
