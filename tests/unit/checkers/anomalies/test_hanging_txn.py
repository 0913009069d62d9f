"""Last stable offsets that stand still, and the nearest that do not."""

from __future__ import annotations

from squall.checkers.anomalies.hanging_txn import LOOKED_FOR_EVERY_MS
from squall.checkers.history.values import AFTER_HEALING
from tests.support.histories.builder import MS, GeneratedHistory, HistoryBuilder, transacted
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()

LONGEST_MS = 1_000 + LOOKED_FOR_EVERY_MS
"""Longest time that a transaction of `transacted` may be open: its timeout, and the interval of the check for it."""
HANGS = ("hanging-txn", "")


def _left_open(*, waited_ms: int, ends_at: int) -> HistoryBuilder:
    """Final readers get stuck at an open transaction; the last one reaches `ends_at` in the end."""
    h, (val,) = transacted(end="")
    h.final([(0, val)], end=1, hw=2, lso=0)
    reader = h.final_reader(1, 1)
    h.poll(reader, [], at=0, f="final_read", position=0, hw=2, lso=0)
    h.tick(waited_ms * MS)
    h.poll(reader, [], at=0, f="final_read", position=ends_at, hw=2, lso=ends_at)
    return h


@CASES.case("a last stable offset that stands for longer than a transaction may last", HANGS)
def _() -> HistoryBuilder:
    return _left_open(waited_ms=LONGEST_MS + 200, ends_at=0)


@CASES.case("a last stable offset that has not stood for as long as a transaction may last")
def _() -> HistoryBuilder:
    return _left_open(waited_ms=LONGEST_MS - 200, ends_at=0)


@CASES.case("a last stable offset that moved on in the end")
def _() -> HistoryBuilder:
    return _left_open(waited_ms=LONGEST_MS + 200, ends_at=2)


def _stuck(*, healed: bool = True, finally_at: int = 0, finals: bool = True) -> HistoryBuilder:
    """A reader of the workload is stuck at an open transaction, behind which the harness has written after healing."""
    h, (val,) = transacted(end="")
    reader = h.reader(isolation=1)
    after = h.sent(h.producer(**({AFTER_HEALING: True} if healed else {})), 1)
    h.poll(reader, [], at=0, hw=2, lso=0)
    h.tick((LONGEST_MS + 200) * MS)
    h.poll(reader, [], at=0, hw=2, lso=0)
    if finals:
        h.final([(0, val), (1, after)], end=2, hw=2, lso=finally_at)
        told = {"position": finally_at, "hw": 2, "lso": finally_at}
        h.final([(1, after)] if finally_at else [], end=finally_at, isolation=1, **told)
    return h


@CASES.case("a reader waits at a last stable offset after healing, and final reads find it still there", HANGS)
def _() -> HistoryBuilder:
    return _stuck()


@CASES.case("a reader waits at a last stable offset after healing, and final reads find that it went on")
def _() -> HistoryBuilder:
    return _stuck(finally_at=2)


@CASES.case("a reader waits at a last stable offset, and nobody knows whether anything was healed")
def _() -> HistoryBuilder:
    return _stuck(healed=False)


@CASES.case("a reader waits at a last stable offset after healing, and there was no final read")
def _() -> HistoryBuilder:
    return _stuck(finals=False)


@CASES.plant("hanging-txn")
def _(history: GeneratedHistory) -> None:
    history.take_in(_left_open(waited_ms=LONGEST_MS + 200, ends_at=0))
