"""Reads a night's test matrix from its files: the anomalies that the night forbids, and later changes of the matrix.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from squall.checkers.anomalies.registry import LOSS

FILE = "matrix.toml"
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
    """Return the rules of a night's test matrix that forbid anomalies. `matrix` is the parsed matrix, from night.json
    or from a file of its own. Malformed rules are left out.
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


def changes(planned: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between the matrix by which a night was planned and the matrix in its file, a line each.
    """
    before, after = dict(_flat(planned)), dict(_flat(now))
    reported = []
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            reported.append(f"{name} = {before[name]!r} is gone")
        elif name not in before:
            reported.append(f"{name} = {after[name]!r} is new")
        elif before[name] != after[name]:
            reported.append(f"{name} was {before[name]!r}, and is {after[name]!r}")
    return reported


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if _tables(value) else None
    if inside is None:
        yield name, value
        return
    for key, each in inside:
        yield from _flat(each, f"{name}.{key}" if name else str(key))


def _tables(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)


def _many(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _table(reported: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = reported.get(name)
    return found if isinstance(found, dict) else {}
