"""A night that is killed and resumed has the same results as the same night without interruption (its twin)."""

from __future__ import annotations

import html
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from squall.checkers.nightly import store
from tests.support.nightly.played import LIMIT_S, SMALL, nightly, results, until_one_has_ended
from tests.support.squall import start

MATRIX = (*SMALL, "--vary", "acks=all,1", "--seeds", "2", "--seed", "1")
WITH_SPARK_S = 400
OF_ITS_TIME = ("night", "run", "began", "seconds")
"""Columns that differ between two nights with the same runs."""


def rows(place: Path, night: str, table: str) -> list[dict[str, Any]]:
    """Return a night's rows in a table of the store, without what differs between twins."""
    (collected,) = (each for each in store.collections(place)[0] if each.night == night)
    found = store.rows([collected], table)
    plain = [{name: value for name, value in row.items() if name not in OF_ITS_TIME} for row in found]
    return sorted(plain, key=str)


def table_of(night: Path) -> str:
    """Return the text of the durability table on a night's page."""
    page = (night / "report/index.html").read_text()
    part = page[page.index('id="table"') : page.index('id="trends"')]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", part)).split())


@pytest.mark.night("a night is killed and has a twin: minutes")
def test_a_night_that_was_killed_and_resumed_has_the_table_of_its_twin(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start("nightly", *MATRIX, "--out", killed)
    until_one_has_ended(killed, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    assert 0 < len(results(killed)) < 4

    code, _, errors = nightly("--resume", killed, "--jobs", "1", limit_s=WITH_SPARK_S)
    assert code == 0, errors
    code, _, errors = nightly(*MATRIX, "--out", whole, limit_s=WITH_SPARK_S)
    assert code == 0, errors

    for table in ("runs", "findings", "faults", "latencies"):
        assert rows(tmp_path / "store", "killed", table) == rows(tmp_path / "store", "whole", table), table
    assert "acks=1, min ISR 2 of 3" in table_of(whole)
    assert table_of(killed) == table_of(whole)
