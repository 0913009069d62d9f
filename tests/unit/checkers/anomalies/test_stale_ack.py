"""Acknowledgements below earlier ones, and the nearest that are not."""

from __future__ import annotations

from squall.checkers.history.tables import OK
from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import UNSEEN, Cases
from tests.support.histories.spoilers import acked, swap

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("an acknowledgement below an earlier one is stale", ("stale-ack", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    first, second = h.sent(h.producer(), 1), h.sent(h.producer(), 0)
    h.final([(0, second), (1, first)])
    return h


@CASES.case("an acknowledgement below one that came after its send began is not stale")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    second = h.send(h.producer())
    first = h.sent(h.producer(), 1)
    h.ok(second, 0)
    h.final([(0, second.val), (1, first)])
    return h


@CASES.case(
    "an acknowledgement below that of a lost record is stale by acknowledgements", ("stale-ack", "acks"), UNSEEN
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.sent(h.producer(), 1)
    h.final([(0, h.sent(h.producer(), 0))])
    return h


@CASES.plant("stale-ack")
def _(history: GeneratedHistory) -> None:
    send = acked(history)
    later = next(each for each in history.sends if each.t0 > send.t1 and each.part == send.part and each.st == OK)
    send.off, later.off = later.off, send.off
    swap(history, send.val, later.val)
