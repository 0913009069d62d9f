"""Prepares tables that a phone shows as cards: each cell gets the name of its column. Pure."""

from __future__ import annotations

import re
from html import escape, unescape

_TABLE = re.compile(r"<table>.*?</table>", re.S)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.S)
_ROW = re.compile(r"<tr\b.*?</tr>", re.S)
_CELL = re.compile(r"<(t[dh])\b([^>]*)>")
_MARKUP = re.compile(r"<[^>]*>")


def with_names(html: str) -> str:
    """Return the page with the column's name in `data-what` of each cell of a table with a head. Tables are never
    nested.
    """
    return _TABLE.sub(lambda table: _named(table[0]), html)


def _named(table: str) -> str:
    head, mark, body = table.partition("</thead>")
    if not mark:
        return table
    names = [escape(unescape(_MARKUP.sub("", name)).strip(), quote=True) for name in _HEAD.findall(head)]
    return head + mark + _ROW.sub(lambda row: _row(row[0], names), body)


def _row(row: str, names: list[str]) -> str:
    cells = iter(names)

    def cell(found: re.Match[str]) -> str:
        name = next(cells, "")
        return f'<{found[1]}{found[2]} data-what="{name}">' if name and "data-what" not in found[2] else found[0]

    return _CELL.sub(cell, row)
