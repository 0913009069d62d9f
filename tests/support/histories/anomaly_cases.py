"""Collects the short test histories of all anomalies: each comes from the test file of the anomaly's module."""

from __future__ import annotations

from importlib import import_module

from squall.checkers.anomalies.registry import IN_HISTORY
from tests.support.histories.case import Case, Cases, Plant


def cases_of(name: str) -> Cases:
    """Return the cases of tests/unit/checkers/anomalies/test_NAME.py."""
    found = import_module(f"tests.unit.checkers.anomalies.test_{name}").CASES
    assert isinstance(found, Cases)
    return found


CASES: dict[str, Case] = {
    f"{check.name}: {sentence}": case for check in IN_HISTORY for sentence, case in cases_of(check.name).short.items()
}
PLANTS: dict[str, Plant] = {name: plant for check in IN_HISTORY for name, plant in cases_of(check.name).plants.items()}
