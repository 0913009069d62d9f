"""Checks duplicates, and the nearest histories without one."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.shapes import retired_but_for_a_copy
from tests.support.histories.spoilers import acked

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a value that stands at two offsets is a duplicate", ("duplicate", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    h.final([(0, value), (1, value)])
    return h


@CASES.case("a value that stood elsewhere earlier is a duplicate by reads", ("duplicate", "reads"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    value = h.info(h.send(h.producer())).val
    h.poll(h.reader(), [(0, value)])
    h.final([(1, value)])
    return h


@CASES.case("a value that two readers find at one offset is no duplicate")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    h.poll(h.reader(), [(0, value)])
    h.final([(0, value)])
    return h


@CASES.case("a doubled record of which readers saw both is a duplicate, whatever was retired", ("duplicate", "reads"))
def _() -> HistoryBuilder:
    h, doubled, other = retired_but_for_a_copy()
    h.poll(h.reader(), [(0, doubled), (3, other), (5, doubled)])
    h.final([(3, other), (5, doubled)], at=3, log_start=3)
    return h


@CASES.plant("duplicate")
def _(history: GeneratedHistory) -> None:
    send = acked(history)
    beyond = history.logs[send.part][-1][1] + 5
    for poll in history.polls:
        if poll.f == "final_read" and send.part in poll.end:
            entry = next(entry for entry in poll.entries if entry.part == send.part)
            entry.pairs = [*entry.pairs, (beyond, send.val)]
