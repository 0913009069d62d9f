"""Beginnings that short histories of several anomalies share."""

from __future__ import annotations

from tests.support.histories.builder import HistoryBuilder


def three() -> tuple[HistoryBuilder, list[int], int]:
    """Three records that are all there, and a reader."""
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    return h, values, h.reader()


def retired_but_for_a_copy() -> tuple[HistoryBuilder, int, int]:
    """Acknowledged at 0, and doubled at 5 behind another record at 3; retention has taken what is below 3."""
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer(idempotence=False)
    return h, h.sent(p, 0), h.sent(p, 3)
