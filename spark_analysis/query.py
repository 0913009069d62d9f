"""Defines how a module of `squall.spark_analysis.queries` describes its witnesses, and which views it reads.

Most anomalies show in a single row of a view: a `WitnessRule` describes such a row, and all rules of a view are
evaluated in one pass. Other anomalies need several rows to be compared: a `WitnessQuery` is an SQL statement of its
own. Witnesses that no statement can find are found in Python, by a `SparkDriverSearch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

TEXTS = ("anomaly", "evidence")
"""Lists the columns of a witness that are text; all others are integers."""
FOUND = tuple(name for name in Witness._fields if name != "signs")
"""Lists the columns that a query returns: all of `Witness` except `signs` (what may explain the witness), which
`squall.spark_analysis.signs` adds later.
"""


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


SEARCHED = 2_000_000
"""Limits the rows that a `SparkDriverSearch` searches in the driver: more rows raise TooManyRows. Each row takes about
a kilobyte during the search.
"""


class TooManyRows(Exception):
    """Reports that a search has more rows than the driver can search, so that its witnesses are not known."""


def has_transactions(history: ConversionResult) -> bool:
    """Return whether the history has a transaction."""
    return bool(history.outcomes.get("txn"))


def has_offset_fetches(history: ConversionResult) -> bool:
    """Return whether clients requested the committed offsets of a group (OffsetFetch)."""
    return bool(history.outcomes.get("fetch_offsets"))


Query = Callable[[ConversionResult], Sequence[WitnessRule | WitnessQuery | SparkDriverSearch]]
"""Is a function that returns the rules and statements which find an anomaly in a history. The result is empty if the
history cannot show the anomaly: torn-txn, for example, needs transactions.
"""


def views_of(found: Iterable[WitnessRule | WitnessQuery | SparkDriverSearch]) -> set[str]:
    """Return the names of all views that these queries read."""
    return {view for each in found for view in ((each.view,) if isinstance(each, WitnessRule) else each.views)}


def statement(found: Sequence[WitnessRule | WitnessQuery]) -> str:
    """Return one SQL statement that selects the witnesses of all these rules and queries. Spark plans one statement
    faster than many: each costs a few tenths of a second.
    """
    passes: dict[str, list[WitnessRule]] = {}
    for each in found:
        if isinstance(each, WitnessRule):
            passes.setdefault(each.view, []).append(each)
    selects = [_pass(view, rules) for view, rules in passes.items()]
    selects += [each.sql for each in found if isinstance(each, WitnessQuery)]
    columns = ", ".join(FOUND)
    return "\nunion all\n".join(f"select {columns} from ({select})" for select in selects)


def _pass(view: str, rules: Sequence[WitnessRule]) -> str:
    columns = {name: sql for rule in rules for name, sql in rule.columns.items()}
    more = "".join(f", {sql} {name}" for name, sql in columns.items())
    witnesses = ",\n  ".join(map(_witness, rules))
    return f"select inline(array_compact(array(\n  {witnesses})))\nfrom (select row.*{more} from {view} row)"


def _witness(rule: WitnessRule) -> str:
    # A rule has no field `part`: that is a column of each row.
    values = {name: getattr(rule, name, name) for name in FOUND}
    typed = (f"'{name}', {sql if name in TEXTS else f'bigint({sql})'}" for name, sql in values.items())
    return f"if({rule.when}, named_struct({', '.join(typed)}), null)"
