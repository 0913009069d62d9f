"""Records that fenced producers sent and that became visible, and the nearest that may."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()


def _taken_over(*, sent_after: bool, own_later: bool = False, asked_after: bool = True) -> HistoryBuilder:
    h = HistoryBuilder()
    old, new = h.producer(), h.producer()
    h.initialised(old)
    if own_later:
        h.initialised(new, epoch=1)
        h.initialised(old, epoch=2)
    txn = h.begin(old)
    send = None if sent_after else h.ok(h.send(old, txn=txn), 0)
    if not asked_after:
        h.ask_end(txn, "commit")
    if not own_later:
        h.initialised(new, epoch=1)
    send = send or h.ok(h.send(old, txn=txn), 0)
    if asked_after:
        h.end(txn, "commit")
    else:
        txn.t1, txn.completion = h.tick(), {"st": 0, "how": "commit", "pid": 4000, "pe": 0}
    h.final([(0, send.val)], end=2)
    h.final([(0, send.val)], end=2, isolation=1)
    return h


@CASES.case("a record that was sent after another producer took over became visible", ("zombie-write", "final"))
def _() -> HistoryBuilder:
    return _taken_over(sent_after=True)


@CASES.case("a commit asked for after another producer took over made a record visible", ("zombie-write", "final"))
def _() -> HistoryBuilder:
    return _taken_over(sent_after=False)


@CASES.case("a commit that was asked for just before another producer took over may make a record visible")
def _() -> HistoryBuilder:
    return _taken_over(sent_after=False, asked_after=False)


@CASES.case("a producer that took its id back may write")
def _() -> HistoryBuilder:
    return _taken_over(sent_after=True, own_later=True)


@CASES.case("of two that asked for an id side by side, the one that was answered first may have it")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    one, other = h.producer(), h.producer()
    asked = h.now
    h.initialised(one, epoch=1)
    h.initialised(other, epoch=0, asked=asked)
    txn = h.begin(one)
    send = h.ok(h.send(one, txn=txn), 0)
    h.end(txn, "commit")
    h.final([(0, send.val)], end=2)
    h.final([(0, send.val)], end=2, isolation=1)
    return h


@CASES.plant("zombie-write")
def _(history: GeneratedHistory) -> None:
    history.take_in(_taken_over(sent_after=True))
