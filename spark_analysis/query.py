"""Makes one SQL statement of what all modules of `squall.checkers.anomalies` look for."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.anomalies.check import Queries, WitnessQuery, WitnessRule
from squall.checkers.findings import Witness

TEXTS = ("anomaly", "evidence")
"""Lists the columns of a witness that are text; all others are integers."""
FOUND = tuple(name for name in Witness._fields if name != "signs")
"""Lists the columns that a query returns: all of `Witness` except `signs` (what may explain the witness), which
`squall.spark_analysis.signs` adds later.
"""
SEARCHED = 2_000_000
"""Limits the rows that a `SparkDriverSearch` searches in the driver: more rows raise TooManyRows. Each row takes about
a kilobyte during the search.
"""


class TooManyRows(Exception):
    """Reports that a search has more rows than the driver can search, so that its witnesses are not known."""


def views_of(found: Queries) -> set[str]:
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
