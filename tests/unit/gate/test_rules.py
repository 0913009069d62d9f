"""A test's marks and its measured cost say when it runs, and the gate's tests stay within their budgets."""

from __future__ import annotations

import pytest

from tests.support.gate import bounds, rules
from tests.support.gate.costs import Cost

UNIT, SIM, LIVE = "tests/unit/x.py::test_y[1]", "tests/sim/x.py::test_y", "tests/live/x.py::test_y"
CHEAP, DEAR = Cost(0.1, 0.1), Cost(2.5, 2.5)


@pytest.mark.parametrize(
    ("test", "marks", "costs", "when"),
    [
        (UNIT, {"parametrize"}, {UNIT: CHEAP}, "gate"),
        (UNIT, set(), {UNIT: DEAR}, "night"),
        (UNIT, {"gate"}, {UNIT: DEAR}, "gate"),
        (UNIT, {"night"}, {UNIT: CHEAP}, "night"),
        (UNIT, set(), {}, "gate"),
        (SIM, set(), {SIM: Cost(0, 0)}, "night"),
        (SIM, {"gate"}, {SIM: DEAR}, "gate"),
        (SIM, set(), {}, "gate"),
    ],
)
def test_marks_and_costs_decide(test: str, marks: set[str], costs: dict[str, Cost], when: str) -> None:
    assert rules.when(test, frozenset(marks), costs) == when


def test_a_test_with_a_bound_is_quiet_whatever_its_marks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BOUNDS_S", {"tests/unit/x.py::test_y": 0.5})
    assert rules.when(UNIT, frozenset({"gate"}), {}) == "quiet"


def test_a_test_without_a_row_counts_five_seconds() -> None:
    most = int(rules.BUDGETS_CPU_S[""] / rules.UNMEASURED_S)
    tests = [f"tests/unit/x.py::test_{number}" for number in range(most + 1)]
    assert rules.over_budget(tests[:most], {}) == []
    [line] = rules.over_budget(tests, {})
    assert "the CPU lanes take 705 CPU s; they may take 700" in line
    assert rules.over_budget(tests, dict.fromkeys(tests, CHEAP)) == []


def test_one_test_of_the_gate_may_take_five_seconds() -> None:
    [line] = rules.over_budget([UNIT], {UNIT: Cost(5.1, 5.1)})
    assert line.startswith(f"{UNIT} takes 5.1 CPU s")


def test_what_waits_and_spark_have_budgets_of_their_own() -> None:
    parity = "tests/parity/x.py::test_y"
    assert rules.over_budget([LIVE, parity, UNIT], {LIVE: Cost(100, 1), parity: Cost(100, 1), UNIT: CHEAP}) == []
    [line] = rules.over_budget([LIVE], {LIVE: Cost(1000, 1)})
    assert "waiting" in line
