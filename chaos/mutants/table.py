"""Makes the table of docs/shown/mutants.md from the results of hunts, and describes each mutant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from squall.chaos.mutants.mutant import ON_DISKS
from squall.chaos.mutants.registry import MUTANTS

if TYPE_CHECKING:
    from squall.chaos.mutants.hunt import MutantHuntResult
    from squall.chaos.mutants.mutant import Mutant

RESULTS_BEGIN, RESULTS_END = "<!-- results: made by squall hunt --docs -->", "<!-- end of results -->"

OWN, HISTORY, SWARM = "own", "history", "swarm"
"""Name the hunts of a mutant: with its own plan and every check; with its own plan and only what clients see; with the
swarm's plans.
"""
HEAD = ("#", "name", "must cause")
COLUMNS = {
    OWN: ("own plan", "plans", "CPU s", "steps"),
    HISTORY: ("own plan, history alone", "plans", "CPU s"),
    SWARM: ("swarm", "plans", "CPU s"),
}
NOT_HUNTED = "-"


def planted(mutant: Mutant) -> Iterator[str]:
    """Yield lines about one mutant: what its broker does wrong, where the bug is published, which functions are
    replaced, and which faults its plan has.
    """
    replaced_rules = "a setting" if mutant.is_setting else ", ".join(map(str, mutant.replaces))
    yield f"{mutant.id}  {mutant.name}: the broker {mutant.title}"
    yield f"  source: {mutant.source}"
    yield f"  replaces: {replaced_rules}"
    yield f"  faults: {', '.join(mutant.faults) or 'none'}"


def results_table(found: Sequence[MutantHuntResult], old_table: str = "", *, which: str = OWN) -> str:
    """Return the table with the results of these hunts in the columns of their kind. All other columns and rows of
    `old_table` stay. which: the kind of hunt: OWN (the mutant's own plan, every check), HISTORY (its own plan, only
    what clients see) or SWARM (the swarm's plans).
    """
    rows = {row[0]: row for line in old_table.splitlines() if (row := _cells(line))[0] in MUTANTS}
    for result in found:
        mutant = MUTANTS[result.mutant]
        # Bugs of transactions or groups are hunted only by what clients see, so their two hunts are the same.
        both = mutant.is_of_clients and which != SWARM
        results = {each: _result(result, mutant, each) for each in ((OWN, HISTORY) if both else (which,))}
        rows[result.mutant] = _row(mutant, results, rows.get(result.mutant, ()))
    head = [*HEAD, *(name for columns in COLUMNS.values() for name in columns)]
    return _markdown(head, [rows[mutant] for mutant in MUTANTS if mutant in rows])


def _row(mutant: Mutant, results: dict[str, Sequence[str]], old_row: Sequence[str]) -> Sequence[str]:
    """Return a mutant's row of the table. `results` has new cells, by the kind of hunt. All other cells come from
    `old_row`, which is empty if the mutant had no row.
    """
    in_files = ", ".join(name for name in mutant.expected if name in ON_DISKS)
    hidden = f"{in_files}, in files alone" if in_files else "nothing that clients see"
    row = [mutant.id, mutant.name, ", ".join(mutant.anomalies) or hidden]
    for which, columns in COLUMNS.items():
        kept = old_row[len(row) : len(row) + len(columns)]
        row += results.get(which) or kept or [NOT_HUNTED] * len(columns)
    return row


def _result(result: MutantHuntResult, mutant: Mutant, which: str) -> Sequence[str]:
    """Return the cells for one hunt in the mutant's row of the table. which: the kind of hunt: OWN (the mutant's own
    plan, every check), HISTORY (its own plan, only what clients see) or SWARM (the swarm's plans).
    """
    why = {OWN: mutant.masked, HISTORY: mutant.unseen or mutant.masked}.get(which, "")
    check = result.check or (f"nothing: {why}" if why else "nothing")
    if result.check and which == HISTORY:
        check = check.partition(" ")[2] + ("" if result.is_expected else " (not named)")
    return check, result.plans_text, f"{result.seconds:.1f}", *([result.steps_text] if which == OWN else [])


def write_docs(page: Path, found: Sequence[MutantHuntResult], which: str = OWN) -> None:
    """Write the results of hunts into the table of a page. They replace earlier results of the same mutants from the
    same kind of hunt; all others stay. which: the kind of hunt: OWN (the mutant's own plan, every check), HISTORY (its
    own plan, only what clients see) or SWARM (the swarm's plans).
    """
    text = page.read_text()
    before = text.partition(RESULTS_BEGIN)[2].partition(RESULTS_END)[0]
    page.write_text(replaced(text, RESULTS_BEGIN, RESULTS_END, results_table(found, before, which=which)))


def replaced(text: str, begin: str, end: str, table: str) -> str:
    """Return the text with `table` in place of everything between the marks `begin` and `end`. Each mark is on a line
    of its own.
    """
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{table}{end}{after}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
