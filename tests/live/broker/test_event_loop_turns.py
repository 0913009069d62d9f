"""Costly requests: no task of the broker works for long without yielding, so others wait only for a piece of the work.

The work between two yields is asserted in units, which are the same on any machine; its time only on an idle one. Each
row of the table once blocked the event loop for seconds, or filled the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.live.broker import rows_of_admins, rows_of_coordinators, rows_of_logs
from tests.live.broker.table import SETTINGS, Row
from tests.support.brokers.broker_process import BrokerProcess, LongestTurn

ROWS = (*rows_of_admins.ROWS, *rows_of_logs.ROWS, *rows_of_coordinators.ROWS)
Start = Callable[[Mapping[str, str] | None], BrokerProcess]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from running(tmp_path_factory, SETTINGS)


def running(folders: pytest.TempPathFactory, settings: Mapping[str, str]) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(folders.mktemp("turns"), dict(settings))
    try:
        yield broker
        assert broker.process.poll() is None, f"the broker ended: {broker.log.read_text()[-2000:]}"
    finally:
        broker.process.kill()  # to close a thousand logs in good order takes long, and shows nothing here
        broker.process.wait()


@pytest.fixture
def broker(
    row: Row, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    if row.settings is None:
        yield request.getfixturevalue("shared")
    else:
        yield from running(tmp_path_factory, {**SETTINGS, **row.settings})


def play(row: Row, broker: BrokerProcess) -> LongestTurn:
    """Return the longest time without a yield while the broker answers the row's requests."""
    playing = row.play(broker)
    next(playing)
    # Of the preparations, and of what clients of earlier rows asked for and did not wait for.
    broker.wait_for(lambda: all(broker.longest_turn().entries == 0 for _ in range(10)))
    before_mb = broker.rss_mb()
    assert next(playing, "over") == "over"
    turn = broker.longest_turn()
    assert broker.rss_mb() < before_mb + row.memory_mb
    broker.assert_serves()
    return turn


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=[pytest.mark.gate] * row.in_gate) for row in ROWS]
)
def test_a_turn_does_a_piece_of_a_request_that_asks_for_much(row: Row, broker: BrokerProcess) -> None:
    turn = play(row, broker)
    over = {
        unit: f"{getattr(turn, unit):,} of at most {getattr(row, unit):,}"
        for unit in ("bytes", "entries", "records", "steps")
        if getattr(turn, unit) > getattr(row, unit)
    }
    assert not over, turn


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_turn_takes_no_longer_than_it_did(row: Row, broker: BrokerProcess, bound_s: float) -> None:
    turn = play(row, broker)
    assert turn.seconds < bound_s, turn
