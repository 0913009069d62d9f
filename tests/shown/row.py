"""What came of a run, as a row of the table, and the table in Markdown and JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CODES = {"valid": 0, "unknown": 2, "invalid": 1}
VERDICTS = tuple(CODES)
NOT_LANDED = re.compile(r"fault \d+ \(")
"""How a verdict's reason begins that is about a fault without evidence (`checkers.fault_classes.not_landed`)."""
HUNG, REFUSED = "hung", "refused"
JUDGING = "while it is judged"
"""The only moment at which all of a run is recorded already: judged again, it may be valid."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Times in seconds."""

    name: str
    group: str
    seed: int
    command: str
    kill: str
    moment: str
    verdict: str
    """valid, unknown or invalid; "none" where none was written, "hung" past the limit, "refused" with exit code 3."""
    exit_code: int
    reasons: list[str]
    wall_s: float
    acknowledged: int | None
    faults: list[str]
    landed: int | None
    """How many of the faults have evidence; None where the run did not come to say so."""
    left: list[str]
    """Everything that was still there afterwards."""
    judged_again: str = ""
    """What `./squall verify` says where the run itself was killed before it could say anything."""
    commit: str = ""
    began: str = ""
    load: float = 0.0
    """Of the machine when the run began: processes that want to run, averaged over a minute."""
    missed: str = ""
    """Why nothing was killed, where something was to be."""

    @property
    def wrong(self) -> list[str]:
        """What is not as it should be; empty where all is."""
        found = [f"left behind: {each}" for each in self.left]
        if self.verdict in (HUNG, REFUSED):
            return [*found, self.verdict]
        if "invalid" in (self.verdict, self.judged_again):
            found.append("invalid")
        if self.kill:
            found += [f"not killed: {self.missed}"] if self.missed else []
            return found + self._wrong_of_killed()
        expected = CODES.get(self.verdict)
        if expected is None:
            found.append("no verdict")
        elif self.exit_code != expected:
            found.append(f"exit code {self.exit_code} with {self.verdict}")
        if self.verdict == "unknown":
            found += [f"whose bug? {each}" for each in self.reasons if not NOT_LANDED.match(each)]
        return found

    def _wrong_of_killed(self) -> list[str]:
        if self.verdict == "none":
            fine = ("unknown", *(["valid"] if self.moment == JUDGING else []))
            return [] if self.judged_again in fine else [f"judged again: {self.judged_again or 'not at all'}"]
        expected = CODES[self.verdict]
        return [f"exit code {self.exit_code} with {self.verdict}"] if self.exit_code != expected else []


def read(path: Path) -> list[Row]:
    """The rows of an earlier start; none where there was none."""
    if not path.exists():
        return []
    return [Row(**{name: each[name] for name in Row.__dataclass_fields__ if name in each}) for each in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["rows"]
    assert isinstance(found, list), path
    return found


def write(folder: Path, rows: Sequence[Row], asked: int) -> None:
    """Replace table.json and table.md whole."""
    for name, text in (
        ("table.json", json.dumps({"asked": asked, "rows": [_json(each) for each in rows]}, indent=1) + "\n"),
        ("table.md", markdown(rows, asked)),
    ):
        fresh = folder / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(folder / name)


def _json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "wrong": row.wrong}


def markdown(rows: Sequence[Row], asked: int) -> str:
    """A summary by group, then every run."""
    lines = [f"# Runs shown: {len(rows)} of {asked}", "", *_summary(rows), ""]
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [row for row in rows if row.group == group]
        killed = any(row.kill for row in of_group)
        head = ["seed", *(["killed"] if killed else []), "verdict", "exit", "wall s", "acknowledged"]
        head += ["faults landed", "left behind", "why not valid"]
        lines += [f"## {group}", "", _line(head), _line(["---"] * len(head))]
        lines += [_line(_cells(row, killed=killed)) for row in of_group]
        lines += ["", f"The first one: `{of_group[0].command}`.", ""]
    return "\n".join(lines)


def _summary(rows: Sequence[Row]) -> list[str]:
    lines = [_line(["runs", "", *VERDICTS, "no verdict", "left something", "to look at"]), _line(["---"] * 8)]
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [row for row in rows if row.group == group]
        verdicts = Counter(row.verdict for row in of_group)
        other = len(of_group) - sum(verdicts[each] for each in VERDICTS)
        left = sum(1 for row in of_group if row.left)
        wrong = sum(1 for row in of_group if row.wrong)
        counts = (len(of_group), *(verdicts[each] for each in VERDICTS), other, left, wrong)
        lines.append(_line([group, *map(str, counts)]))
    commits = sorted({row.commit for row in rows if row.commit})
    return [*lines, "", f"Of {', '.join(commits) or 'no known commit'}."]


def _cells(row: Row, *, killed: bool) -> list[str]:
    landed = "?" if row.landed is None else f"{row.landed} of {len(row.faults)}"
    faults = f"{landed}: {', '.join(row.faults)}" if row.faults else landed
    verdict = f"{row.verdict}; judged again: {row.judged_again}" if row.judged_again else row.verdict
    acknowledged = "?" if row.acknowledged is None else f"{row.acknowledged:,}"
    why = "; ".join(dict.fromkeys((*row.reasons, *row.wrong)))
    return [
        str(row.seed),
        *([f"{row.kill}, {row.moment}"] if killed else []),
        verdict,
        str(row.exit_code),
        f"{row.wall_s:.0f}",
        acknowledged,
        faults,
        "; ".join(row.left) or "nothing",
        why,
    ]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(each.replace("|", "\\|").replace("\n", " ") for each in cells) + " |"
