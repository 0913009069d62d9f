"""Last stable offsets that cannot be, and the nearest that can."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a last stable offset above the high watermark cannot be", ("lso-violation", "above the high watermark"))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [], at=0, hw=4, lso=5)
    return h


@CASES.case("a last stable offset may be the high watermark")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=1), [(3, h.info(h.send(h.producer())).val)], hw=4, lso=4)
    return h


@CASES.case(
    "read_committed must not return what stands at the last stable offset", ("lso-violation", "read at or above it")
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=1), [(3, h.info(h.send(h.producer())).val)], hw=4, lso=3)
    return h


@CASES.case("read_uncommitted may return what stands above the last stable offset")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=0), [(3, h.info(h.send(h.producer())).val)], hw=4, lso=3)
    return h


@CASES.case(
    "what stands at the high watermark is not to be read", ("lso-violation", "read at or above the high watermark")
)
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(isolation=0), [(3, h.info(h.send(h.producer())).val)], hw=3, lso=3)
    return h


@CASES.case("what stands just below the high watermark may be read, and so it may where none is known")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    p = h.producer()
    h.poll(h.reader(isolation=0), [(3, h.info(h.send(p)).val)], hw=4, lso=3)
    h.poll(h.reader(isolation=0), [(4, h.info(h.send(p)).val)], hw=-1, lso=-1)
    return h


@CASES.plant("lso-violation")
def _(history: GeneratedHistory) -> None:
    entries = [entry for poll in history.polls for entry in poll.entries]
    entry = history.rng.choice(entries)
    entry.lso = entry.hw + 1
