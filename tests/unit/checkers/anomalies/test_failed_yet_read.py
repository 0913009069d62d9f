"""Records that stand though their sends failed, and the nearest that may."""

from __future__ import annotations

from squall.checkers.history.tables import FAIL
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.spoilers import acked

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a record that definitely failed and that a final read finds was appended", ("failed-yet-read", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    failed, kept = h.fail(h.send(p)).val, h.sent(p, 1)
    h.final([(0, failed), (1, kept)])
    return h


@CASES.case("a record that definitely failed and that a reader got was committed", ("failed-yet-read", "reads"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    failed = h.fail(h.send(h.producer())).val
    h.poll(h.reader(), [(0, failed)])
    h.final([], end=0)
    return h


@CASES.case("a record whose fate the error left open may be read")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.info(h.send(h.producer())).val)])
    return h


@CASES.case("a record whose send is still under way may be read")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.send(h.producer()).val)])
    return h


@CASES.case("a record that definitely failed and that nobody reads is as it should be")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    h.fail(h.send(p))
    h.final([(0, h.sent(p, 0))])
    return h


@CASES.plant("failed-yet-read")
def _(history: GeneratedHistory) -> None:
    send = acked(history)
    send.st, send.off, send.err = FAIL, -1, "NOT_ENOUGH_REPLICAS"
