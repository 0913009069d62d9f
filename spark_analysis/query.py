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
"""Columns of a witness that are text; all others are whole numbers."""
FOUND = tuple(name for name in Witness._fields if name != "signs")
"""What a query finds; the signs are set on all witnesses together (`squall.spark_analysis.signs`)."""


@dataclass(frozen=True, slots=True)
class WitnessRule:
    """A witness for each row of `view` where `when` holds. All texts are SQL expressions on that row."""

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
    """Further columns of the row, which is called `row` here: windows and subqueries may stand in them."""


@dataclass(frozen=True, slots=True)
class WitnessQuery:
    """A statement whose rows are witnesses, its columns in the order of `FOUND`."""

    sql: str
    views: tuple[str, ...]
    """What it reads."""


@dataclass(frozen=True, slots=True)
class SparkDriverSearch:
    """Rows that come to the driver, where `find` makes witnesses of them: a search in a graph is no matter of SQL.

    Their number is a small part of the history's where all is well. Beyond SEARCHED nothing is found out, and the
    analysis fails.
    """

    sql: str
    views: tuple[str, ...]
    """What it reads."""
    find: Callable[[Sequence[Any]], Iterable[Witness]]


SEARCHED = 2_000_000
"""Rows. Each takes the driver about a kilobyte while it searches."""


class TooManyRows(Exception):
    """More rows than the driver can search: nobody knows what is in them."""


def has_transactions(history: ConversionResult) -> bool:
    """Return whether there is a transaction in the history."""
    return bool(history.outcomes.get("txn"))


def has_positions(history: ConversionResult) -> bool:
    """Return whether the history has requests for committed positions of groups."""
    return bool(history.outcomes.get("fetch_offsets"))


Query = Callable[[ConversionResult], Sequence[WitnessRule | WitnessQuery | SparkDriverSearch]]
"""The rules and statements for a history: none for what that history cannot show."""


def views_of(found: Iterable[WitnessRule | WitnessQuery | SparkDriverSearch]) -> set[str]:
    """All views that are read."""
    return {view for each in found for view in ((each.view,) if isinstance(each, WitnessRule) else each.views)}


def statement(found: Sequence[WitnessRule | WitnessQuery]) -> str:
    """All witnesses as one statement: planning each further one costs a few tenths of a second."""
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
    values = {name: getattr(rule, name, name) for name in FOUND}
    typed = (f"'{name}', {sql if name in TEXTS else f'bigint({sql})'}" for name, sql in values.items())
    return f"if({rule.when}, named_struct({', '.join(typed)}), null)"
