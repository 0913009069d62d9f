"""Last stable offsets that stand still, and the nearest that do not."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder, transacted
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()


def _left_open(*, waited_ms: int, ends_at: int) -> HistoryBuilder:
    h, (val,) = transacted(end="")
    h.final([(0, val)], end=1, hw=2, lso=0)
    reader = h.final_reader(1, 1)
    h.poll(reader, [], at=0, f="final_read", position=0, hw=2, lso=0)
    h.tick(waited_ms * 1_000_000)
    h.poll(reader, [], at=0, f="final_read", position=ends_at, hw=2, lso=ends_at)
    return h


@CASES.case("a last stable offset that stands for longer than the transaction's time-out", ("hanging-txn", ""))
def _() -> HistoryBuilder:
    return _left_open(waited_ms=1200, ends_at=0)


@CASES.case("a last stable offset that has not stood for the transaction's time-out yet")
def _() -> HistoryBuilder:
    return _left_open(waited_ms=800, ends_at=0)


@CASES.case("a last stable offset that moved on in the end")
def _() -> HistoryBuilder:
    return _left_open(waited_ms=1200, ends_at=2)


@CASES.plant("hanging-txn")
def _(history: GeneratedHistory) -> None:
    history.take_in(_left_open(waited_ms=1200, ends_at=0))
