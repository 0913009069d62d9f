"""The gaps that the page draws are those that the checkers measure."""

from __future__ import annotations

import numpy as np
import pytest

from squall.checkers.history.tables import SEND
from squall.checkers.measures import measure
from squall.checkers.metrics import GAP, context_of
from squall.reports import samples
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.waiting_writes import add_writes, drawn_writes


def drawn(h: HistoryBuilder, begin: float, end: float) -> list[tuple[float, float]]:
    """The spans of its only partition, in ms."""
    rows = [record for record in h.history().records.rows() if record.kind == SEND]
    begun, done = (np.array([getattr(row, name) for row in rows]) / 1e6 for name in ("t0", "t1"))
    acked = np.array([row.st == 0 for row in rows])
    return [(span.begin, span.end) for span in samples._gaps(begun, np.maximum(begun, done), acked, begin, end)]


@pytest.mark.parametrize("seed", range(40))
def test_the_longest_one_is_the_one_that_is_measured(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "UNAVAILABLE_S", 0.0)
    monkeypatch.setattr(np, "median", lambda lengths: -1.0)  # all are long enough
    h = HistoryBuilder()
    add_writes(h, drawn_writes(seed))
    history = h.history()
    (length, begin), *_ = [each.numbers for each in measure(history, context_of(history, [])) if each.name == GAP]
    found = drawn(h, 0.0, 1_000.0)
    assert max((until - since, -since) for since, until in found) == pytest.approx((length / 1e6, -begin / 1e6))
    assert all(one[1] <= other[0] for one, other in zip(found, found[1:], strict=False)), "they do not overlap"


def test_time_in_which_nobody_tried_to_write_is_no_gap() -> None:
    h = HistoryBuilder()
    add_writes(h, [(100, 110, 0), (20_000, 20_010, 0), (21_000, 25_000, 0), (25_010, 25_020, 0)])
    assert drawn(h, 0.0, 30_000.0) == [(21_000.0, 25_000.0)]
    assert drawn(h, 22_000.0, 24_000.0) == [(22_000.0, 24_000.0)], "as far as the page shows it"
