"""Records in another order than they were handed over in, and the nearest in order."""

from __future__ import annotations

from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import findings_of
from squall.checkers.history.tables import OK
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


@CASES.case("a batch that is appended behind newer ones is reordered, each record of it", ("send-reorder", "final"))
def late_batch() -> HistoryBuilder:
    """37 records overtake 3, as when a client resends a refused batch behind others that were in flight."""
    h = HistoryBuilder()
    p = h.producer()
    late, newer = [h.send(p) for _ in range(3)], [h.send(p) for _ in range(37)]
    in_the_log = [h.send(h.producer()), *newer, *late, h.send(p)]
    for offset, send in enumerate(in_the_log):
        h.ok(send, offset)
    h.final([(offset, send.val) for offset, send in enumerate(in_the_log)])
    return h


def test_a_finding_counts_the_records_that_were_overtaken_and_says_how_many_overtook_them() -> None:
    (finding,) = findings_of(find_all(late_batch().history()))
    assert finding.count == 3
    assert [(each.off, each.other) for each in finding.witnesses] == [(38, 37), (39, 37), (40, 37)]


@CASES.case(
    "what final reads show is not excused by a lost record between, which only an acknowledgement shows",
    ("send-reorder", "final"),
    ("lost-write", ""),
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    first, between, last = h.send(p), h.send(p), h.send(p)
    h.ok(between, 0)
    h.ok(last, 1)
    h.ok(first, 2)
    h.final([(1, last.val), (2, first.val)])
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
    """Two records in one request whose answer was lost. Both are stored twice, and both are acknowledged at their
    second offsets. The first one's copy is below an earlier offset of the other one, which no reader read.
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
