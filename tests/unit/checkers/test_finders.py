"""Each finder on hand-written histories: where it fires, and the nearest history where it must not."""

from __future__ import annotations

import pytest

from checkers.catalog import CATALOG, FOUND
from checkers.reference import find_all
from tests.support.histories.anomaly_cases import CASES

FROM_HISTORIES = [name for name in FOUND if CATALOG[name].found_by.startswith("reference")]


@pytest.mark.parametrize("sentence", CASES)
def test_the_reference_finds_what_is_there_and_nothing_else(sentence: str) -> None:
    case = CASES[sentence]
    found = {(witness.anomaly, witness.evidence) for witness in find_all(case.build().history())}
    assert found == case.found


@pytest.mark.parametrize("name", FROM_HISTORIES)
def test_every_anomaly_has_a_history_where_it_shows(name: str) -> None:
    assert any(name == found for case in CASES.values() for found, _ in case.found)


def test_witnesses_say_where_and_who() -> None:
    case = CASES["a poll that leaves out a record is a skip"]
    history = case.build()
    (witness,) = find_all(history.history())
    reader = history.polls[-1].proc
    assert (witness.part, witness.off, witness.other, witness.proc) == (0, 2, 0, reader)
