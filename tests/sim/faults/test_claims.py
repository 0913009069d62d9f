"""Two overlapping faults that both take one simulated broker down leave a valid run."""

from __future__ import annotations

import pytest

from squall.checkers.verdict import VALID
from tests.sim.faults.test_composed import simulated

pytestmark = pytest.mark.gate


def test_two_overlapping_kills_of_a_simulated_broker_leave_a_valid_run() -> None:
    kill = {"action": "kill", "target": "node:2"}
    verdict, reasons, (first, second) = simulated(
        {"at_s": 1, "duration_s": 3, **kill}, {"at_s": 2, "duration_s": 4, **kill}
    )
    assert verdict == VALID, reasons
    assert first.evidence is not None
    assert first.evidence["up"] == [{"node": 2, "held_by": [1], "state": "down"}]
    assert second.evidence is not None
    assert second.evidence["up"][0]["incarnation"] == 2
