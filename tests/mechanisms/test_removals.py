"""Removing a rule works, and a test fails without it: tried with one rule in the gate, with more at night.

`./squall test --rules` tries all of them.
"""

from __future__ import annotations

import pytest

from tests.mechanisms import runner
from tests.mechanisms.mechanism import Mechanism, Removal, RemovalNotFoundError
from tests.mechanisms.table import MECHANISMS

SOURCE = '''\
class Rules:
    def is_late(self, age):
        """Older than a day."""
        limit = 86_400
        return age > limit

    def other(self): return 1
'''


@pytest.mark.gate
def test_a_body_is_replaced_and_the_rest_stays() -> None:
    edited = Removal("", "broker/x.py", "Rules.is_late", body="return False").edited(SOURCE)
    assert edited == SOURCE.replace("        limit = 86_400\n        return age > limit\n", "        return False\n")


@pytest.mark.gate
def test_a_piece_is_replaced_in_its_function_only() -> None:
    edited = Removal("", "broker/x.py", "Rules.is_late", piece="age > limit", by="True").edited(SOURCE)
    assert edited == SOURCE.replace("age > limit", "True")


@pytest.mark.gate
@pytest.mark.parametrize(
    ("function", "piece"), [("Rules.gone", ""), ("Nobody.is_late", ""), ("Rules", ""), ("Rules.is_late", "limit")]
)
def test_what_is_not_there_exactly_once_cannot_be_taken_out(function: str, piece: str) -> None:
    with pytest.raises(RemovalNotFoundError):
        Removal("", "broker/x.py", function, body="pass", piece=piece).edited(SOURCE)


@pytest.mark.parametrize("name", [pytest.param("R3.0", marks=pytest.mark.gate), "R3.1", "C1.3"])
def test_a_rule_that_is_taken_out_is_missed(name: str) -> None:
    [(_, mechanism, removal)] = runner.selected([name])
    outcome = runner.run(name, mechanism, removal)
    assert outcome.is_caught, outcome
    assert len(outcome.failed) < outcome.asked, "the other rules of the mechanism are still there"


def test_a_rule_that_no_test_holds_is_reported() -> None:
    removal = MECHANISMS["R3"].removals[0]
    elsewhere = {"tests/unit/log/test_epochs.py": ("test_epoch_for_offset",)}
    outcome = runner.run("R3.0", Mechanism("R3", "", "", elsewhere, (removal,)), removal)
    assert not outcome.is_caught
    assert not outcome.trouble
    assert "NO TEST FAILED" in runner.line_of(outcome)


def test_tests_that_cannot_run_prove_nothing() -> None:
    removal = MECHANISMS["R3"].removals[0]
    outcome = runner.run("R3.0", Mechanism("R3", "", "", {"tests/unit/log/gone.py": ("test_x",)}, (removal,)), removal)
    assert not outcome.is_caught
    assert "gone.py" in outcome.trouble


@pytest.mark.gate
def test_only_what_is_known_can_be_selected() -> None:
    with pytest.raises(KeyError, match=r"R99"):
        runner.selected(["R99"])
    assert len(runner.selected([])) == sum(len(mechanism.removals) for mechanism in MECHANISMS.values())
