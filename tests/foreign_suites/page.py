"""Writes the tables in docs/foreign-suites.md: the results of each suite on each target, and the explained failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.foreign_suites import known
from tests.foreign_suites.clusters import TARGETS
from tests.foreign_suites.playing import FAILED, PASSED, SKIPPED, Played
from tests.foreign_suites.suites import SUITES, Suite
from tests.shown.table import commit_of_checkout

PAGE = Path(__file__).resolve().parents[2] / "docs/foreign-suites.md"
BEGIN, END = "<!-- written by python -m tests.foreign_suites --docs -->\n", "<!-- end -->\n"
HEAD = ("suite", "target", "passed", "failed", "skipped", "no result", "date, UTC", "commit")


def write(suite: Suite, target: str, played: Played, page: Path = PAGE) -> None:
    """Replace the suite's row for this target, and the list of failures."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = {row[:2]: row for row in _read(old)}
    count = Counter(each.result for each in played.results)
    numbers = (count[PASSED], count[FAILED], count[SKIPPED], len(played.lost))
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    rows[f"{suite.name} {suite.version}", target] = (
        f"{suite.name} {suite.version}", target, *map(str, numbers), now, commit_of_checkout(),
    )  # fmt: skip
    told = [*_table(HEAD, sorted(rows.values())), "\n", *failures(known.read())]
    page.write_text(f"{before}{BEGIN}{''.join(told)}{END}{after}", encoding="utf-8")


def failures(rows: Iterable[known.Known]) -> list[str]:
    """Return the lines of the table of explained failures."""
    head = ("suite", "test", *(f"on {target}" for target in TARGETS), "class", "whose", "reason")
    return _table(head, (_failure(row) for row in rows))


def _failure(row: known.Known) -> Sequence[str]:
    fails = "fails now and then" if row.sometimes else "fails"
    on = (fails if target in row.on else "passes" for target in TARGETS)
    return (f"{row.suite} {SUITES[row.suite].version}", f"`{row.test}`", *on, row.kind, row.whose, row.reason)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = (head, ["---"] * len(head), *rows)
    return [f"| {' | '.join(cells)} |\n" for cells in ([cell.replace("|", "/") for cell in line] for line in lines)]


def _read(text: str) -> list[tuple[str, ...]]:
    """Return the rows of the page's first table."""
    first = text.partition("\n\n")[0]
    found = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in first.splitlines()]
    return [row for row in found[2:] if len(row) == len(HEAD)]
