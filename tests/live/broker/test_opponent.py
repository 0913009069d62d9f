"""Many malformed frames and batches are sent to a real broker. docs/testing.md has the command for a million."""

from __future__ import annotations

from pathlib import Path

from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.opponent import LIMITS, Opponent

FRAMES, BATCHES = 2_000, 1_500


def test_an_opponent_ends_no_broker_and_keeps_nobody_from_being_served(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, LIMITS)
    try:
        opponent = Opponent(broker)
        opponent.send_frames(FRAMES, seed=1)
        opponent.send_batches(BATCHES, seed=1)
        score = opponent.score
    finally:
        broker.stop()
    assert (score.frames, score.batches) == (FRAMES, BATCHES)
    assert broker.process.returncode == 0, "it stops as it would have stopped"
    assert {"INVALID_RECORD", "CORRUPT_MESSAGE", "INVALID_TIMESTAMP"} <= set(score.errors), score.line()
