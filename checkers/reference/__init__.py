"""The obvious slow finder of each anomaly: the oracle for the Spark jobs. Good for up to about a million records."""

from __future__ import annotations

from checkers.findings import Witness
from checkers.history.tables import History
from checkers.reference import readers, records, told


def find_all(history: History) -> list[Witness]:
    """Every witness in a history, sorted."""
    return sorted([*records.find(history), *readers.find(history), *told.find(history)])
