"""The table of loads has the medians of the pairs, and the row of an earlier measurement is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shown import load_rates
from tests.shown.load_rates import LOAD_RATES, FilledTopics, PairOfLoads, rates_row
from tests.shown.table import Sitting, add, read
from tests.support.load.filling import FilledTopic


def test_a_row_has_medians_and_the_range_of_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_rates, "fill", lambda *given, **options: FilledTopic(given[2], given[2] // 2))
    topics = FilledTopics("nowhere", 50_000, 1_000, transactions=True)
    assert (topics.committed, topics.names[0]) == (25_000, "gzip-1000-with")
    pairs = [PairOfLoads(100.0, 100.0), PairOfLoads(90.0, 100.0), PairOfLoads(120.0, 80.0)]
    row = rates_row("kafka", topics, pairs, [0, 7])
    assert row == ("kafka", 1_000, "with", "50,000", 3, "100", "100", "1.00 (0.90 to 1.50)", "0, 7")
    for _ in range(2):
        add(LOAD_RATES, [row], Sitting("then", "commit", "machine", "command"), tmp_path)
    assert len(read(LOAD_RATES, tmp_path)[1]) == 1
