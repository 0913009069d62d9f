"""Readers whose positions became out of range, and the nearest histories in which retention explains it."""

from __future__ import annotations

from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import findings_of
from tests.support.histories.builder import MS, GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases

CASES = Cases()
test_the_reference = CASES.test()

TRUNCATED, OUT_OF_RANGE = ("thrown-back", "log truncated"), ("thrown-back", "offset out of range")


def read_to(position: int, retention_ms: int = -1) -> tuple[HistoryBuilder, int, list[int]]:
    """Return a history with records up to `position`, which a reader got."""
    h = HistoryBuilder(retention_ms=retention_ms)
    p, reader = h.producer(), h.reader()
    values = [h.sent(p, off) for off in range(position)]
    h.poll(reader, list(enumerate(values)))
    return h, reader, values


@CASES.case("a reader whose last record the new leader does not have was thrown back", TRUNCATED)
def _() -> HistoryBuilder:
    h, reader, values = read_to(3)
    h.event("log_truncated", p=reader, part=0, position=3, log_start=-1, end=2)
    h.final(list(enumerate(values)))
    return h


@CASES.case("a reader of whose epoch the leader knows nothing was thrown back where nothing is ever removed", TRUNCATED)
def _() -> HistoryBuilder:
    h, reader, _ = read_to(3)
    h.event("log_truncated", p=reader, part=0, position=3, log_start=-1, end=-1)
    return h


@CASES.case("a leader forgets old epochs with the records that retention removes")
def _() -> HistoryBuilder:
    h, reader, _ = read_to(3, retention_ms=1000)
    h.event("log_truncated", p=reader, part=0, position=3, log_start=-1, end=-1)
    return h


@CASES.case("a reader beyond the end of the log was thrown back", OUT_OF_RANGE)
def _() -> HistoryBuilder:
    h, reader, _ = read_to(3)
    h.event("offset_out_of_range", p=reader, part=0, position=3, log_start=0, end=1)
    return h


@CASES.case("a reader beyond the end of a log with retention was thrown back", OUT_OF_RANGE)
def _() -> HistoryBuilder:
    h, reader, _ = read_to(3, retention_ms=10_000)
    h.poll(h.reader(), [], at=2, log_start=2, hw=3)
    h.event("offset_out_of_range", p=reader, part=0, position=3, log_start=-1, end=-1)
    return h


@CASES.case("a reader whose place retention removed is moved on, not thrown back")
def _() -> HistoryBuilder:
    h, reader, _ = read_to(3, retention_ms=1000)
    h.event("offset_out_of_range", p=reader, part=0, position=3, log_start=5, end=9)
    h.poll(h.reader(), [], at=5, log_start=5, hw=9)
    return h


def refused(later_ms: int) -> HistoryBuilder:
    """Retention of 10 s. `later_ms` after its last poll a reader is out of range; the next leader's log has it all."""
    h, reader, values = read_to(3, retention_ms=10_000)
    h.tick(later_ms * MS)
    h.event("offset_out_of_range", p=reader, part=0, position=2, log_start=-1, end=-1)
    h.final(list(enumerate(values)))
    return h


@CASES.case("a leader that is no more may have removed what its successor still has")
def _() -> HistoryBuilder:
    return refused(20_000)


@CASES.case("no leader has removed what is younger than its retention", OUT_OF_RANGE)
def _() -> HistoryBuilder:
    return refused(2_000)


def stuck(*positions: int) -> HistoryBuilder:
    """One reader's polls fail again and again because these positions are out of range; another reader's fails once."""
    h, reader, _ = read_to(5)
    other = h.reader()
    for position in positions:
        h.event("offset_out_of_range", p=reader, part=0, position=position, log_start=0, end=1)
    h.event("log_truncated", p=other, part=0, position=3, log_start=-1, end=2)
    h.event("log_truncated", p=reader, part=0, position=positions[-1], log_start=-1, end=1)
    return h


@CASES.case("a reader that is stuck where it was thrown back counts once", OUT_OF_RANGE, TRUNCATED)
def _() -> HistoryBuilder:
    return stuck(*[3] * 40)


def test_each_reader_counts_once_for_each_position_that_is_gone() -> None:
    found = findings_of(find_all(stuck(*[3] * 40, *[5] * 40).history()))
    assert [(each.anomaly, each.evidence, each.count) for each in found] == [
        ("thrown-back", "log truncated", 1),
        ("thrown-back", "offset out of range", 2),
    ]


@CASES.plant("thrown-back")
def _(history: GeneratedHistory) -> None:
    reader = next(poll.proc for poll in history.polls if poll.f == "poll")
    history.event("log_truncated", p=reader, part=1, position=7, log_start=-1, end=5)
