"""docs/mutants.md: its tables, made from the registry and from what a hunt has found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.mutants.registry import MUTANTS

if TYPE_CHECKING:
    from chaos.mutants.hunt import Hunted

MUTANTS_BEGIN, MUTANTS_END = "<!-- mutants: made by chaos/mutants/table.py -->", "<!-- end of mutants -->"
SWARM_BEGIN, SWARM_END = "<!-- swarm: made by squall hunt --swarm --docs -->", "<!-- end of swarm -->"
RESULTS_BEGIN, RESULTS_END = "<!-- results: made by squall hunt --docs -->", "<!-- end of results -->"


def mutants_table() -> str:
    """Every mutant: what it does wrong, where that was published, which rules it replaces, what provokes it."""
    rows = [
        (
            m.id,
            m.name,
            m.title,
            m.source,
            "a setting" if m.is_setting else ", ".join(f"`{r}`" for r in m.replaces),
            ", ".join(m.faults) or "none",
        )
        for m in MUTANTS.values()
    ]
    return _markdown(("#", "name", "the broker ...", "source", "replaces", "faults"), rows)


def results_table(found: Sequence[Hunted], before: str = "") -> str:
    """What each hunt came to; of mutants that were not hunted now, the rows that the table had before."""
    rows = {row[0]: row for line in before.splitlines() if (row := _cells(line))[0] in MUTANTS}
    rows |= {h.mutant: _result(h) for h in found}
    head = ("#", "name", "found by", "seed", "plans tried", "CPU s", "steps after shrinking")
    return _markdown(head, [rows[mutant] for mutant in MUTANTS if mutant in rows])


def _result(h: Hunted) -> Sequence[str]:
    m = MUTANTS[h.mutant]
    check = h.check or (f"nothing: {m.masked}" if m.masked else "nothing")
    seed = "-" if h.seed is None else str(h.seed)
    return m.id, m.name, check, seed, str(h.tried), f"{h.seconds:.1f}", h.told_steps


def write_docs(page: Path, found: Sequence[Hunted], *, swarm: bool = False) -> None:
    """Put the table of mutants and that of these results into the page, in place of those that are there. `swarm`: they
    were hunted with the swarm's plans.
    """
    begin, end = (SWARM_BEGIN, SWARM_END) if swarm else (RESULTS_BEGIN, RESULTS_END)
    text = replaced(page.read_text(), MUTANTS_BEGIN, MUTANTS_END, mutants_table())
    before = text.partition(begin)[2].partition(end)[0]
    page.write_text(replaced(text, begin, end, results_table(found, before)))


def replaced(text: str, begin: str, end: str, table: str) -> str:
    """The text with a table between two marks, each of which stands on a line of its own."""
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}{end}{after}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
