"""Writes the table of tests that only the night runs, with the reason of each, into docs/testing.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.gate import rules
from tests.support.gate.costs import Cost
from tests.support.gate.playing import Selected

PAGE = "docs/testing.md"
BEGIN, END = "<!-- written by ./squall test --costs -->\n", "<!-- end -->\n"


def write(page: Path, selected: Iterable[Selected], costs: Mapping[str, Cost]) -> None:
    """Replace the table in the page. A page without the comment that marks its place stays as it is."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if end:
        page.write_text(f"{before}{begin}{''.join(rows(selected, costs))}{end}{after}", encoding="utf-8")


def rows(selected: Iterable[Selected], costs: Mapping[str, Cost]) -> Iterable[str]:
    """Yield the lines of the table. It has a row for each folder and reason: how many tests, and what they cost."""
    found: dict[tuple[str, str], list[float]] = {}
    for each in selected:
        if each.when != "gate":
            folder = each.test.partition("::")[0].rpartition("/")[0]
            cost = costs.get(each.test, Cost(0.0, 0.0))
            found.setdefault((folder, reason_of(each)), []).append(cost.cpu_s)
    yield "| tests | how many | CPU s | why not in the gate |\n|---|---|---|---|\n"
    for (folder, reason), cpu_s in sorted(found.items()):
        yield f"| `{folder}` | {len(cpu_s):,} | {sum(cpu_s):,.0f} | {reason} |\n"


def reason_of(selected: Selected) -> str:
    """Return the reason why only the night runs this test."""
    if selected.when == "quiet":
        return "asserts how long something takes"
    if selected.reason:
        return selected.reason
    folder = selected.test.split("/")[1]
    if folder in rules.PERMITTED_CPU_S:
        return f"above {rules.PERMITTED_CPU_S[folder]:g} CPU s"
    named = [place for place in rules.WHY_AT_NIGHT if selected.test.startswith(f"tests/{place}")]
    return rules.WHY_AT_NIGHT[max(named, key=len)] if named else "not chosen for the gate"
