"""Values that were not sent there, and the nearest that were."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.spoilers import acked, occurrences

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a value that nobody sent is a phantom", ("phantom", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0)), (1, 99)])
    return h


@CASES.case("a value in a partition that it was not sent to is a phantom there", ("phantom", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder(2)
    value = h.sent(h.producer(), 0)
    h.final([(0, value)])
    h.final([(0, value)], part=1)
    return h


@CASES.case("a value whose send had no answer is no phantom")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.final([(0, h.info(h.send(h.producer())).val)])
    return h


@CASES.plant("phantom")
def _(history: GeneratedHistory) -> None:
    for _, entry, i in occurrences(history, acked(history).val, "final_read"):
        entry.pairs[i] = (entry.pairs[i][0], (1 << 40) - 7)
