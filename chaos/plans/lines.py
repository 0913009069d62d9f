"""Finds the line of a plan's file at which a mistake is, for error messages. It does no I/O."""

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
"""Is the path of a table or key in the file. After the name of an array of tables (`faults`) comes the table's number.
"""


def with_line(text: str, wrong: str) -> str:
    """Put the line number in front of an error message (`wrong`) about the plan in `text`. Returns the message
    unchanged if its line is not found.
    """
    line = _line_of(text, wrong)
    return f"line {line}: {wrong}" if line else wrong


def in_order(sentences: Iterable[str]) -> list[str]:
    """Sort messages of `with_line` by their line numbers. Messages without a line come last."""
    return sorted(sentences, key=lambda each: int(found[1]) if (found := _LINE.match(each)) else sys.maxsize)


def _line_of(text: str, wrong: str) -> int:
    """Return the number of the line that an error message is about; 0 if it is not found."""
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
    """Yield (line number, path) for every line of a plan's or matrix' file on which a table or a key begins."""
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
