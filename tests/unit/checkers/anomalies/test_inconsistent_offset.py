"""Offsets with two values, and the nearest histories without."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import LOST, Cases
from tests.support.histories.spoilers import acked, occurrences

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("two final reads that differ at an offset are inconsistent", ("inconsistent-offset", "final"), LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    one, other = h.info(h.send(h.producer())).val, h.info(h.send(h.producer())).val
    h.final([(0, one)])
    h.final([(0, other)], round_=2)
    return h


@CASES.case("a reader and a final read that differ are inconsistent by reads", ("inconsistent-offset", "reads"), LOST)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    one, other = h.info(h.send(h.producer())).val, h.info(h.send(h.producer())).val
    h.poll(h.reader(), [(0, one)])
    h.final([(0, other)])
    return h


@CASES.case(
    "an offset acknowledged for one value and read with another is inconsistent", ("inconsistent-offset", "acks"), LOST
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.sent(h.producer(), 0)
    h.final([(0, h.info(h.send(h.producer())).val)])
    return h


@CASES.case("a send without an answer claims no offset")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.info(h.send(h.producer()))
    h.final([(0, h.sent(h.producer(), 0))])
    return h


@CASES.plant("inconsistent-offset")
def _(history: GeneratedHistory) -> None:
    send, other = acked(history), history.send(0)
    _, entry, i = history.rng.choice(occurrences(history, send.val, "final_read"))
    other.part = send.part
    entry.pairs[i] = (entry.pairs[i][0], other.val)
