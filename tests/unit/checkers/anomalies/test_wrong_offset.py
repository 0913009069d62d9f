"""Records that are not where they were acknowledged, and the nearest that are."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import UNSEEN, Cases
from tests.support.histories.shapes import retired_but_for_a_copy
from tests.support.histories.spoilers import acked

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a value found elsewhere than acknowledged is at a wrong offset", ("wrong-offset", "final"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 1))])
    return h


@CASES.case("where the acknowledged place was retired, a copy elsewhere proves nothing")
def _() -> HistoryBuilder:
    h, doubled, other = retired_but_for_a_copy()
    h.final([(3, other), (5, doubled)], at=3, log_start=3)
    return h


@CASES.case("what stands elsewhere than acknowledged, above what was retired, is misplaced", ("wrong-offset", "final"))
def _() -> HistoryBuilder:
    h, _, other = retired_but_for_a_copy()
    h.final([(4, other)], at=3, log_start=3)
    return h


@CASES.case(
    "what only an earlier reader found elsewhere is at a wrong offset by reads", ("wrong-offset", "reads"), UNSEEN
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [(0, h.sent(h.producer(), 1))])
    h.final([], end=0)
    return h


@CASES.plant("wrong-offset")
def _(history: GeneratedHistory) -> None:
    acked(history).off += 1
