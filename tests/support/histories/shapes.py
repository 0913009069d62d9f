"""Short histories with which test cases of several anomalies begin."""

from __future__ import annotations

from tests.support.histories.builder import HistoryBuilder


def three() -> tuple[HistoryBuilder, list[int], int]:
    """Return a history, the values of its three acknowledged records, and a reader."""
    h = HistoryBuilder()
    p = h.producer()
    values = [h.sent(p, off) for off in range(3)]
    h.final(list(enumerate(values)))
    return h, values, h.reader()


def retired_but_for_a_copy() -> tuple[HistoryBuilder, int, int]:
    """Return a history with retention, and the values of its records at the offsets 0 and 3. The test adds a copy of
    the first one at 5, and final reads from 3 on, because retention has deleted what is below.
    """
    h = HistoryBuilder(retention_ms=1000)
    p = h.producer(idempotence=False)
    return h, h.sent(p, 0), h.sent(p, 3)
