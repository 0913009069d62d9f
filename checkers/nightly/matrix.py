"""Reads from a night's test matrix which anomalies the night forbids. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from squall.checkers.anomalies.registry import LOSS

ALIASES = {"ours": "squall"}
"""Maps the words that a test matrix may use for the brokers under test to the words of plans."""


def axis_word(axis: str, value: Any) -> str:
    """Return the value of an axis as names of configurations write it: "on" for True, "all" for acks=-1."""
    word = ("on" if value else "off") if isinstance(value, bool) else str(value)
    if axis == "acks":
        return {"-1": "all"}.get(word, word)
    return ALIASES.get(word, word) if axis == "target" else word


@dataclass(frozen=True, slots=True)
class ForbiddenAnomalies:
    """Lists anomalies that a night forbids although configurations may permit them. `where` maps each axis of the
    night's test matrix to the values for which the rule holds.
    """

    where: Mapping[str, tuple[str, ...]]
    never: tuple[str, ...]

    def meets(self, cell: Mapping[str, str]) -> bool:
        """Return whether the rule applies to a configuration. `cell` maps axes to values, such as {"acks": "all"}."""
        return all(cell.get(axis) in values for axis, values in self.where.items())


def expectations(matrix: Mapping[str, Any]) -> tuple[ForbiddenAnomalies, ...]:
    """Return the rules of a night's test matrix that forbid anomalies. `matrix` is the parsed matrix of night.json.
    Malformed rules are left out.
    """
    listed = matrix.get("expect")
    return tuple(
        ForbiddenAnomalies(
            {
                axis: tuple(axis_word(axis, each) for each in _many(values))
                for axis, values in _table(reported, "where").items()
            },
            tuple(map(str, _many(reported.get("never", ())))),
        )
        for reported in (listed if isinstance(listed, list) else ())
        if isinstance(reported, dict)
    )


def forbidden(expected: Iterable[ForbiddenAnomalies], cell: Mapping[str, str], anomalies: Any) -> tuple[str, ...]:
    """Return those anomalies of a run that its configuration permits, but the rules of its night (`expected`) forbid.
    If the rules forbid one kind of loss, they forbid every kind. `cell` maps the axes of the run's item to their
    values, for example {"acks": "all"}. `anomalies` is the list `anomalies` of verdict.json.
    """
    never = {name for each in expected if each.meets(cell) for name in each.never}
    if never.intersection(LOSS):  # readers' positions decide by chance which loss it is
        never.update(LOSS)
    listed = anomalies if isinstance(anomalies, list) else []
    found = [str(each.get("name")) for each in listed if isinstance(each, dict) and each.get("permitted")]
    return tuple(dict.fromkeys(name for name in found if name in never))


def _many(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _table(reported: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = reported.get(name)
    return found if isinstance(found, dict) else {}
