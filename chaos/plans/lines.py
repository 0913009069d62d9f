"""Finds the line of a plan's file that contains a mistake. It does no I/O."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

_TABLE = re.compile(r"\s*(\[{1,2})\s*([\w.\- \"]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([\w\-\"]+)\s*=")
_FAULT = re.compile(r"fault (\d+)\b")
_SETTING = re.compile(r"([a-z_]+(?:\.[\w\-]+)*): ")
_LINE = re.compile(r"line (\d+): ")

Where = tuple[str, ...]
"""Is a path of table names and a key. An array of tables (`faults`) is followed by the number of the table."""


def with_line(text: str, wrong: str) -> str:
    """Return the sentence `wrong` about the plan `text` with a line number in front, or unchanged if the line is not
    found.
    """
    line = _line_of(text, wrong)
    return f"line {line}: {wrong}" if line else wrong


def in_order(sentences: Iterable[str]) -> list[str]:
    """Sort sentences of `with_line` by their lines. Sentences without a line come last."""
    return sorted(sentences, key=lambda each: int(found[1]) if (found := _LINE.match(each)) else sys.maxsize)


def _line_of(text: str, wrong: str) -> int:
    """Return the number of the line; 0 if it is unknown."""
    if fault := _FAULT.match(wrong):
        inside = [(number, where) for number, where in _places(text) if where[:2] == ("faults", fault[1])]
        lines = text.splitlines()
        for number, where in inside:
            named = where[-1] if len(where) > 2 else ""
            if named and re.search(rf"\b{re.escape(named)}\b", wrong[fault.end() :]) and named != "params":
                return number
        said = re.findall(r"\b(\w+) = ", wrong)
        for number, _ in inside:
            if any(re.search(rf"\b{re.escape(name)}\s*=", lines[number - 1]) for name in said):
                return number
        return inside[0][0] if inside else 0
    if setting := _SETTING.match(wrong):
        wanted = tuple(setting[1].split("."))
        return max(((len(where), -number) for number, where in _places(text) if wanted[: len(where)] == where),
                   default=(0, 0))[1] * -1  # fmt: skip
    return 0


def _places(text: str) -> Iterator[tuple[int, Where]]:
    """Yield (line number, path) for every table and key that begins on a line, as TOML files of plans and matrices have
    them.
    """
    table: Where = ()
    name = ""
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if head := _TABLE.match(line):
            names = tuple(name.strip().strip('"') for name in head[2].split("."))
            if head[1] == "[[":
                counts[names[0]] = counts.get(names[0], -1) + 1
            table = (names[0], str(counts[names[0]]), *names[1:]) if names[0] in counts else names
            yield number, table
        elif key := _KEY.match(line):
            name = key[1].strip('"')
            yield number, (*table, name)
        elif line.lstrip().startswith("{"):  # as `write_plan` writes short faults: an array with a table on each line
            counts[name] = counts.get(name, -1) + 1
            yield number, (name, str(counts[name]))
