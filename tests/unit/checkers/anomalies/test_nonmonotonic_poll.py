"""Readers who are given what they had, and the nearest who are not."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.shapes import three
from tests.support.histories.spoilers import consecutive, long

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a poll that begins before the end of the one before it goes back", ("nonmonotonic-poll", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0]), (1, v[1])])
    h.poll(reader, [(1, v[1]), (2, v[2])])
    return h


@CASES.case("a poll whose records are out of order goes back inside", ("int-nonmonotonic-poll", ""))
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(1, v[1]), (0, v[0])])
    return h


@CASES.case("two readers do not follow each other")
def _() -> HistoryBuilder:
    h, v, reader = three()
    h.poll(reader, [(0, v[0])])
    h.poll(h.reader(), [(2, v[2])])
    h.poll(h.reader(), [(0, v[0])])
    return h


@CASES.plant("nonmonotonic-poll")
def _(history: GeneratedHistory) -> None:
    before, after = consecutive(history)
    after.pairs.insert(0, before.pairs[-1])


@CASES.plant("int-nonmonotonic-poll")
def _(history: GeneratedHistory) -> None:
    entry = next(entry for entry in long(history)[0].entries if len(entry.pairs) > 2)
    entry.pairs[0], entry.pairs[1] = entry.pairs[1], entry.pairs[0]
