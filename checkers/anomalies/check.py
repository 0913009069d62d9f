"""Defines what a module of this folder looks for: in Python, by a finder, and with Spark, by SQL over views of a
converted history (`squall.spark_analysis.views`). Both find the same witnesses; tests/parity compares them.

Most anomalies show in a single row of a view: a `WitnessRule` describes such a row, and all rules of a view are
evaluated in one pass. Other anomalies need several rows to be compared: a `WitnessQuery` is an SQL statement of its
own. Witnesses that no statement can find are found in Python, by a `SparkDriverSearch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.checkers.anomalies.anomaly import AnomalyDefinition, HistoryViews
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult


@dataclass(frozen=True, slots=True)
class WitnessRule:
    """Describes a witness for each row of `view` in which `when` is true. All texts are SQL expressions on that row."""

    view: str
    when: str
    anomaly: str
    off: str
    evidence: str = "''"
    val: str = "-1L"
    op: str = "op"
    proc: str = "-1L"
    other: str = "-1L"
    columns: Mapping[str, str] = field(default_factory=dict)
    """Maps names of additional columns to SQL expressions; the other fields may use these names. In such an expression
    the view has the alias `row`. Window functions and subqueries are allowed.
    """


@dataclass(frozen=True, slots=True)
class WitnessQuery:
    """Describes an SQL statement whose rows are witnesses, with columns in the order of `FOUND`."""

    sql: str
    views: tuple[str, ...]
    """Lists the views and tables that the statement reads."""


@dataclass(frozen=True, slots=True)
class SparkDriverSearch:
    """Describes a search that runs in the Spark driver: `find` makes witnesses of the rows of a statement, because SQL
    cannot search a graph.

    In a sound history the statement returns few rows. If it returns more than SEARCHED rows, they are not searched, and
    the analysis fails.
    """

    sql: str
    views: tuple[str, ...]
    """Lists the views and tables that the statement reads."""
    find: Callable[[Sequence[Any]], Iterable[Witness]]


def has_transactions(history: ConversionResult) -> bool:
    """Return whether the history has a transaction."""
    return bool(history.outcomes.get("txn"))


def has_offset_fetches(history: ConversionResult) -> bool:
    """Return whether clients requested the committed offsets of a group (OffsetFetch)."""
    return bool(history.outcomes.get("fetch_offsets"))


Queries = Sequence[WitnessRule | WitnessQuery | SparkDriverSearch]
"""Is what Spark looks for in a history; empty if the history cannot show the anomaly: torn-txn, for example, needs
transactions.
"""

AnomalyFinder = Callable[[HistoryViews], Iterable[Witness]]
"""Is the type of a reference finder, which is simple and slow: it is the oracle of the Spark query, and fit for up to
about a million records.
"""


@dataclass(frozen=True, slots=True)
class AnomalyCheck:
    """Describes which anomalies one module looks for, and its finder."""

    module: str
    """Is the `__name__` of the module that defines this check."""
    anomalies: tuple[AnomalyDefinition, ...]
    find: AnomalyFinder | None = None
    """Finds the anomalies in a history; None if something other than a history shows them."""
    queries: Callable[[ConversionResult], Queries] = lambda history: ()
    """Returns what Spark looks for in a converted history."""
    exists: bool = True
    """Is False if nothing looks for these anomalies yet."""

    @property
    def name(self) -> str:
        """Return the name that the module and its tests share."""
        return self.module.rpartition(".")[2]
