"""Reads and writes the tables in docs/shown. Each is written only by the command that measured it.

A table begins with its sittings. A sitting is one start of that command: when, of which commit, on which machine. Each
row names its sitting.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from squall.chaos.nightly.directory import write_whole
from squall.chaos.nightly.scheduling import machine

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/shown"
SITTING = ("sitting", "date, UTC", "commit", "machine", "command")
_BAR = re.compile(r"(?<!\\)\|")
Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """One file of docs/shown."""

    name: str
    title: str
    says: str
    """A sentence that says what a row is."""
    columns: tuple[str, ...]
    keys: int = 0
    """How many columns from the first one identify a row: a new row replaces the old one with the same values. 0: rows
    are only added.
    """

    def file(self, folder: Path) -> Path:
        """Return the path of the table's file."""
        return folder / f"{self.name}.md"


@dataclass(frozen=True, slots=True)
class Sitting:
    """One start of `python -m tests.shown`: when, of which commit, on which machine."""

    date: str
    commit: str
    machine: str
    command: str


def sitting(words: Sequence[str]) -> Sitting:
    """Return the sitting that begins now. words: the arguments of `python -m tests.shown`."""
    there = machine()
    load = os.getloadavg()[0]
    memory = there["memory_mib"] / 1024
    return Sitting(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        commit=commit_of_checkout(),
        machine=f"{there['cores']} cores, {memory:.0f} GiB, Python {there['python']}, load {load:.1f}",
        command=f"`.venv/bin/python -m tests.shown {shlex.join(words)}`",
    )


def commit_of_checkout() -> str:
    """Return the commit, with a remark if the checkout has changes outside of docs/shown."""
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", ".", ":(exclude)docs/shown")
    except OSError:
        return "unknown"
    return f"{commit}, changed" if changed else commit or "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def add(table: Table, rows: Iterable[Sequence[object]], of: Sitting, folder: Path = DOCS) -> None:
    """Write rows of a sitting into the table's file. Sittings that have no row any more are dropped."""
    sittings, kept = read(table, folder)
    head = (of.date, of.commit, of.machine, of.command)
    number = next((each for each, known in sittings.items() if known == head), max(sittings, default=0) + 1)
    sittings[number] = head
    for cells in (tuple(map(_cell, row)) for row in rows):
        assert len(cells) == len(table.columns), (table.name, cells)
        name = cells[: table.keys]
        kept = [each for each in kept if not name or each[1][: table.keys] != name]
        kept.append((number, cells))
    if table.keys:
        kept.sort(key=lambda each: [_natural(cell) for cell in each[1][: table.keys]])
    used = {each[0] for each in kept}
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(
        table.file(folder),
        "\n".join(
            (
                f"# {table.title}\n",
                f"{table.says} The commands below wrote this page.\n",
                *_lines(SITTING, [(str(n), *each) for n, each in sittings.items() if n in used]),
                "",
                *_lines((SITTING[0], *table.columns), [(str(n), *cells) for n, cells in kept]),
                "",
            )
        ),
    )


def read(table: Table, folder: Path = DOCS) -> tuple[dict[int, Cells], list[tuple[int, Cells]]]:
    """Return the sittings' texts by number, and each row as (number of its sitting, cells). If the file's columns
    differ from the table's, there are no rows.
    """
    file = table.file(folder)
    lines = file.read_text().splitlines() if file.exists() else []
    found = [tuple(cell.strip() for cell in _BAR.split(line)[1:-1]) for line in lines if line.startswith("| ")]
    heads = [number for number, cells in enumerate(found) if cells[:1] == SITTING[:1]]
    if len(heads) != 2 or found[heads[1]] != (SITTING[0], *table.columns):
        return {}, []
    first, second = found[heads[0] + 2 : heads[1]], found[heads[1] + 2 :]
    return {int(each[0]): each[1:] for each in first}, [(int(each[0]), each[1:]) for each in second]


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def _cell(value: object) -> str:
    text = f"{value:,.1f}" if isinstance(value, float) else str(value)
    return re.sub(r"\s+", " ", text.replace("\\|", "|").replace("|", "\\|")).strip()


def _natural(cell: str) -> list[tuple[int, str]]:
    """Return a sort key that puts 9 before 10."""
    return [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", cell)]
